//! Live lines at the bottom of a terminal: one for each thing that runs, rewritten as it advances.
//! Everything else is printed above them.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{IsTerminal as _, Write as _, stdout};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::termios::tcgetwinsize;

use crate::paint::fitted;

/// The live lines of one terminal. All methods may be called from any thread.
#[derive(Debug)]
pub struct Live {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` if there is no terminal: nothing is drawn.
    terminal: Option<File>,
    colour: bool,
    /// The lines by their keys.
    lines: BTreeMap<String, String>,
    /// The columns of each line on the terminal.
    drawn: Vec<usize>,
}

impl Live {
    /// Lines on `file`, if that is a terminal.
    #[must_use]
    pub fn new(file: File, colour: bool) -> Self {
        let state = State {
            terminal: file.is_terminal().then_some(file),
            colour,
            lines: BTreeMap::new(),
            drawn: Vec::new(),
        };
        Self {
            state: Mutex::new(state),
        }
    }

    /// Lines on standard output, if that is a terminal.
    #[must_use]
    pub fn stdout() -> Self {
        Self::new(own(&stdout()), false)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if there is a terminal.
    pub fn has_terminal(&self) -> bool {
        self.state().terminal.is_some()
    }

    /// Adds the line of `key`, or replaces it. The lines are in the order of their keys.
    pub fn set(&self, key: &str, text: &str) {
        let mut state = self.state();
        if state.terminal.is_none() {
            return;
        }
        let old = state.lines.insert(key.to_owned(), text.to_owned());
        if old.as_deref() != Some(text) {
            state.draw();
        }
    }

    /// Removes the line of `key`.
    pub fn remove(&self, key: &str) {
        self.retain(|other| other != key);
    }

    /// Removes the lines whose keys do not satisfy `keeps`.
    pub fn retain(&self, keeps: impl Fn(&str) -> bool) {
        let mut state = self.state();
        let before = state.lines.len();
        state.lines.retain(|key, _| keeps(key));
        if state.lines.len() != before {
            state.draw();
        }
    }

    /// Prints above the lines with `print`, which must end its output with a line feed.
    pub fn above<T>(&self, print: impl FnOnce() -> T) -> T {
        let mut state = self.state();
        let lines = std::mem::take(&mut state.lines);
        state.draw();
        let printed = print();
        state.lines = lines;
        state.draw();
        printed
    }
}

impl State {
    /// Replaces the drawn lines by the current ones, in one write, so that nothing flickers.
    fn draw(&mut self) {
        let Some(terminal) = &mut self.terminal else {
            return;
        };
        if self.drawn.is_empty() && self.lines.is_empty() {
            return;
        }
        let (columns, rows) = size(terminal);
        let mut text = String::new();
        // After the terminal became narrower, a line may take several rows.
        let up: usize = (self.drawn.iter())
            .map(|width| width.div_ceil(columns).max(1))
            .sum();
        if up > 0 {
            // A String can always be written to.
            let _ = write!(text, "\x1b[{up}A\r");
        }
        // A quarter is left for scrolling output, and the last row for the cursor.
        let most = rows.saturating_sub(rows / 4 + 1).max(1);
        let shown = match self.lines.len() {
            all if all <= most => all,
            _ => most - 1,
        };
        self.drawn.clear();
        let more = self.lines.len() - shown;
        let more = (more > 0).then(|| format!("… and {more} more"));
        for line in self.lines.values().take(shown).chain(&more) {
            // A character in the last column makes some terminals wrap.
            let (line, width) = fitted(line, columns.saturating_sub(1), self.colour);
            text.push_str(&line);
            text.push_str("\x1b[K\n");
            self.drawn.push(width);
        }
        text.push_str("\x1b[J");
        // A terminal that was lost must not stop the command.
        let _ = terminal
            .write_all(text.as_bytes())
            .and_then(|()| terminal.flush());
    }
}

/// Columns and rows of the terminal; 80 and 24 if it does not report them.
pub(crate) fn size(terminal: &File) -> (usize, usize) {
    match tcgetwinsize(terminal) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => {
            (usize::from(size.ws_col), usize::from(size.ws_row))
        }
        _ => (80, 24),
    }
}

/// The open file of a standard stream.
pub(crate) fn own(stream: &impl AsFd) -> File {
    let owned = stream.as_fd().try_clone_to_owned();
    owned.map_or_else(|_| nowhere(), File::from)
}

/// A file that discards its output, for a stream that cannot be opened.
#[expect(
    clippy::expect_used,
    reason = "fails only on a system without /dev/null or free descriptors"
)]
pub(crate) fn nowhere() -> File {
    File::options()
        .write(true)
        .open("/dev/null")
        .expect("/dev/null can be opened")
}
