//! Errors of the system, with what was being done.

use std::io;

/// Adds what was being done to an error of the system.
pub(crate) trait Context<T> {
    /// `WHAT: CAUSE`
    fn context(self, what: impl FnOnce() -> String) -> io::Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> io::Result<T> {
        self.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", what())))
    }
}
