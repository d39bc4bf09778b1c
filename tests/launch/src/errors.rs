//! Errors of the system, with the failed operation.

use std::io;

/// Adds the failed operation to an error of the system.
pub(crate) trait Context<T> {
    /// `WHAT: CAUSE`
    fn context(self, what: impl FnOnce() -> String) -> io::Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, what: impl FnOnce() -> String) -> io::Result<T> {
        self.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", what())))
    }
}
