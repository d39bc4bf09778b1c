//! A pseudo-terminal, and what a person would see on it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// The time after which a terminal that displays nothing fails the test, on the slowest machine.
const LIMIT: Duration = Duration::from_secs(300);

/// A pseudo-terminal with its screen.
pub struct Pty {
    /// The end that programs write to.
    terminal: File,
    /// The other end, for what a person types.
    keyboard: File,
    /// Their output.
    written: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    marks: usize,
}

impl Pty {
    /// Opens a terminal with this size.
    #[must_use]
    pub fn new(columns: u16, rows: u16) -> Self {
        let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&controller).unwrap();
        unlockpt(&controller).unwrap();
        let name = ptsname(&controller, Vec::new()).unwrap();
        let name = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes())).to_owned();
        let terminal = File::options().read(true).write(true).open(name).unwrap();
        let keyboard = File::from(controller.try_clone().unwrap());
        let pty = Self {
            terminal,
            keyboard,
            written: read(controller),
            screen: vt100::Parser::new(rows, columns, 1000),
            marks: 0,
        };
        pty.set_size(columns, rows);
        pty
    }

    fn set_size(&self, columns: u16, rows: u16) {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&self.terminal, size).unwrap();
    }

    /// The terminal, for a program or a `Screen`.
    #[must_use]
    pub fn terminal(&self) -> File {
        self.terminal.try_clone().unwrap()
    }

    /// The lines that are displayed now, without blanks at their ends and without empty lines at
    /// the end.
    ///
    /// # Panics
    /// The terminal does not pass on what is written to it.
    #[must_use]
    pub fn lines(&mut self) -> Vec<String> {
        self.settle();
        let text = self.screen.screen().contents();
        text.trim_end()
            .lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    }

    /// Types a text, as a person would. A line ends with a line feed; `\x03` is Ctrl-C, `\x04` is
    /// Ctrl-D.
    pub fn type_text(&mut self, text: &str) {
        self.keyboard.write_all(text.as_bytes()).unwrap();
    }

    /// Waits until the displayed lines satisfy a condition.
    ///
    /// # Panics
    /// They do not within 300 s.
    pub fn wait_until(&mut self, holds: impl Fn(&[String]) -> bool) {
        let start = std::time::Instant::now();
        while !holds(&self.lines()) {
            let is_late = start.elapsed() > LIMIT;
            assert!(!is_late, "not displayed in time: {:#?}", self.lines());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// The lines that are displayed now, each with the escape sequences of its colours.
    #[must_use]
    pub fn coloured(&mut self) -> String {
        self.settle();
        String::from_utf8(self.screen.screen().contents_formatted()).unwrap()
    }

    /// Waits until everything that was written is displayed: until a title that is set behind it
    /// arrives.
    fn settle(&mut self) {
        self.marks += 1;
        let mark = format!("\x1b]0;mark {}\x07", self.marks);
        self.terminal.write_all(mark.as_bytes()).unwrap();
        let mut seen = Vec::new();
        while !seen.windows(mark.len()).any(|part| part == mark.as_bytes()) {
            seen.extend(self.written.recv_timeout(LIMIT).unwrap());
        }
        self.screen.process(&seen);
    }
}

/// Reads all the time, so that no program has to wait for the test.
fn read(controller: OwnedFd) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    let mut controller = File::from(controller);
    std::thread::spawn(move || {
        let mut part = [0; 4096];
        while let Ok(length @ 1..) = controller.read(&mut part) {
            if sender.send(part[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}
