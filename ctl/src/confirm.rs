//! Questions on the terminal, mostly before a command causes a loss.

use std::io;
use std::io::{BufRead as _, IsTerminal as _};

use anyhow::{Context as _, bail};

use crate::output::Screen;

/// Asks a question, and returns whether the answer is yes. With `yes`, the operator's `--yes`, it
/// does not ask.
///
/// # Errors
/// Standard input is not a terminal, or cannot be read.
pub fn confirmed(question: &str, yes: bool, screen: &mut Screen) -> anyhow::Result<bool> {
    if yes {
        return Ok(true);
    }
    if !io::stdin().is_terminal() {
        bail!("cannot ask for confirmation without a terminal; pass --yes to skip it");
    }
    let answer = answered(&format!("{question} [y/N] "), screen)?.unwrap_or_default();
    let is_yes = matches!(answer.trim(), "y" | "Y" | "yes");
    if !is_yes {
        screen.note("nothing was changed");
    }
    Ok(is_yes)
}

/// Asks a question, and returns the line that the operator types; `None` at the end of the input.
///
/// # Errors
/// Standard input cannot be read.
pub fn answered(question: &str, screen: &mut Screen) -> anyhow::Result<Option<String>> {
    screen.clear();
    screen.ask(question);
    let mut line = String::new();
    let read = io::stdin().lock().read_line(&mut line);
    let length = read.context("cannot read the answer")?;
    Ok((length > 0).then_some(line))
}
