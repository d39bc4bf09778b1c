//! Progress of concurrent builds.
//!
//! On a terminal each build has its own line at the bottom, which is rewritten. Elsewhere each
//! message is a new line that begins with the build's name.

use std::io::{IsTerminal as _, Write as _, stdout};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum length of a rewritten line, in columns: a longer one would wrap and could not be
/// rewritten.
const COLUMNS: usize = 100;

/// Shorter builds get no message at their end.
const SHORT: Duration = Duration::from_secs(1);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Rewritten,
    Plain,
    Silent,
}

/// The lines of all running builds.
#[derive(Debug)]
pub struct Board {
    output: Output,
    lines: Mutex<Vec<(String, String)>>,
}

/// The line of one build. When it is dropped, a message with the build's time replaces it.
#[derive(Debug)]
pub struct Line<'a> {
    board: &'a Board,
    name: String,
    start: Instant,
}

impl Board {
    /// Rewrites lines if standard output is a terminal. Nothing else may print there while a build
    /// runs.
    #[must_use]
    pub fn for_terminal() -> Self {
        Self::with(if stdout().is_terminal() {
            Output::Rewritten
        } else {
            Output::Plain
        })
    }

    /// Prints each message as a new line.
    #[must_use]
    pub fn plain() -> Self {
        Self::with(Output::Plain)
    }

    /// Prints nothing.
    #[must_use]
    pub fn silent() -> Self {
        Self::with(Output::Silent)
    }

    fn with(output: Output) -> Self {
        Self {
            output,
            lines: Mutex::default(),
        }
    }

    /// Starts the line of a build. Concurrent builds must have different names.
    #[must_use]
    pub fn line(&self, name: &str) -> Line<'_> {
        Line {
            board: self,
            name: name.to_owned(),
            start: Instant::now(),
        }
    }

    /// Prints a message that remains, above the lines of the builds.
    pub fn say(&self, name: &str, text: &str) {
        self.change(|_| Some(format!("  {name}: {text}")));
    }

    /// Changes the lines, and prints what `change` returns above them.
    fn change(&self, change: impl FnOnce(&mut Vec<(String, String)>) -> Option<String>) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let before = lines.len();
        let staying = change(&mut lines);
        let text = match self.output {
            Output::Rewritten => rewritten(before, staying.as_deref(), &lines),
            Output::Plain => staying.map(|line| line + "\n").unwrap_or_default(),
            Output::Silent => return,
        };
        let mut out = stdout().lock();
        // A closed terminal ends no build.
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

impl Line<'_> {
    /// Shows the build's progress.
    pub fn say(&mut self, text: &str) {
        if self.board.output != Output::Rewritten {
            self.board.say(&self.name, text);
            return;
        }
        self.board.change(|lines| {
            match lines.iter_mut().find(|(name, _)| *name == self.name) {
                Some((_, old)) => text.clone_into(old),
                None => lines.push((self.name.clone(), text.to_owned())),
            }
            None
        });
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.board.change(|lines| {
            lines.retain(|(name, _)| *name != self.name);
            let took = self.start.elapsed();
            (took > SHORT).then(|| format!("  {}: {} s", self.name, took.as_secs()))
        });
    }
}

/// Control sequences and text that replace `before` lines by one that remains and those of the
/// builds.
fn rewritten(before: usize, staying: Option<&str>, lines: &[(String, String)]) -> String {
    let mut text = String::new();
    if before > 0 {
        // Up, then clear to the end of the screen (ECMA-48).
        text.push_str(&format!("\x1b[{before}A\x1b[J"));
    }
    if let Some(line) = staying {
        text.push_str(line);
        text.push('\n');
    }
    for (name, status) in lines {
        let line: String = format!("  {name}: {status}")
            .chars()
            .take(COLUMNS)
            .collect();
        text.push_str(&line);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_builds_are_replaced_and_messages_stay_above_them() {
        let lines = [
            ("a".to_owned(), "1 s".to_owned()),
            ("b".to_owned(), "2 s".to_owned()),
        ];
        assert_eq!(rewritten(0, None, &lines), "  a: 1 s\n  b: 2 s\n");
        assert_eq!(
            rewritten(2, Some("done"), &lines[..1]),
            "\x1b[2A\x1b[Jdone\n  a: 1 s\n"
        );
    }

    #[test]
    fn a_line_disappears_with_its_build() {
        let board = Board::with(Output::Rewritten);
        let mut line = board.line("a");
        line.say("1 s");
        assert_eq!(board.lines.lock().unwrap().len(), 1);
        drop(line);
        assert!(board.lines.lock().unwrap().is_empty());
    }
}
