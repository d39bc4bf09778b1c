//! Progress of concurrent builds.
//!
//! On a terminal each build has a live line. Elsewhere each message is a new line that begins with
//! the build's name.

use std::io::{Write as _, stdout};
use std::time::{Duration, Instant};

use halite_terminal::live::Live;

/// Shorter builds get no message at their end.
const SHORT: Duration = Duration::from_secs(1);

/// The lines of all running builds.
#[derive(Debug)]
pub struct Board(Output);

#[derive(Debug)]
enum Output {
    Live(Live),
    Plain,
    Silent,
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
        let live = Live::stdout();
        Self(if live.has_terminal() {
            Output::Live(live)
        } else {
            Output::Plain
        })
    }

    /// Prints each message as a new line.
    #[must_use]
    pub fn plain() -> Self {
        Self(Output::Plain)
    }

    /// Prints nothing.
    #[must_use]
    pub fn silent() -> Self {
        Self(Output::Silent)
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
        let line = format!("  {name}: {text}\n");
        let print = || {
            let mut out = stdout().lock();
            // A terminal that was lost ends no build.
            let _ = out.write_all(line.as_bytes()).and_then(|()| out.flush());
        };
        match &self.0 {
            Output::Live(live) => live.above(print),
            Output::Plain => print(),
            Output::Silent => {}
        }
    }
}

impl Line<'_> {
    /// Shows the build's progress.
    pub fn say(&mut self, text: &str) {
        match &self.board.0 {
            Output::Live(live) => live.set(&self.name, &format!("  {}: {text}", self.name)),
            _ => self.board.say(&self.name, text),
        }
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        if let Output::Live(live) = &self.board.0 {
            live.remove(&self.name);
        }
        let took = self.start.elapsed();
        if took > SHORT {
            self.board.say(&self.name, &format!("{} s", took.as_secs()));
        }
    }
}
