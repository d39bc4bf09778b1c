//! Output of programs: its formats, and pipes that their readers may close (`halite-minion grains |
//! head`).

use std::io;
use std::io::{ErrorKind, Write};

use clap::ValueEnum;

/// The format of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// One JSON document.
    Json,
    /// One YAML document.
    Yaml,
    /// Text and tables for people.
    Table,
}

/// The exit code of a program whose reader has gone, as a shell shows it for one that `SIGPIPE`
/// ended.
///
/// Rust ignores that signal, and the daemons need it ignored: a client that goes away must not end
/// them.
pub const CLOSED_PIPE: i32 = 141;

/// Prints a line on standard output.
///
/// Ends the program quietly if the reader of a pipe has gone.
///
/// # Errors
/// The line cannot be written for another reason.
pub fn print(line: &str) -> io::Result<()> {
    write(&mut io::stdout().lock(), &format!("{line}\n"))
}

/// Prints a line on standard output, about work that a reader which has gone must not stop.
pub fn say(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Prints a line on standard error. If it cannot be written, nothing can report that.
pub fn report(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Writes a text and flushes it. Ends the program quietly if the reader of a pipe has gone.
///
/// # Errors
/// The text cannot be written for another reason.
pub fn write(out: &mut impl Write, text: &str) -> io::Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(CLOSED_PIPE),
        written => written,
    }
}
