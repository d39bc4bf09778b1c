//! Questions on the terminal before something that cannot be undone.

use std::io;
use std::io::{BufRead as _, IsTerminal as _, Write as _};

/// Asks a question, and reads the answer; none without a terminal.
///
/// # Errors
/// The terminal cannot be read or written.
pub fn asked(question: &str) -> io::Result<Option<bool>> {
    if !io::stdin().is_terminal() {
        return Ok(None);
    }
    eprint!("{question} [y/N] ");
    io::stderr().flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(Some(matches!(answer.trim(), "y" | "Y" | "yes")))
}
