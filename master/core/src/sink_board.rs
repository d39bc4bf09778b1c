//! The receivers of notifications that fail, for `ctl health`.

use std::sync::{Mutex, PoisonError};

/// The troubles of the last attempts.
#[derive(Debug, Default)]
pub struct SinkBoard {
    troubles: Mutex<Vec<String>>,
}

impl SinkBoard {
    /// Replaces the troubles: one sentence for each failing receiver.
    pub fn put(&self, troubles: Vec<String>) {
        *self.troubles.lock().unwrap_or_else(PoisonError::into_inner) = troubles;
    }

    /// The troubles.
    #[must_use]
    pub fn troubles(&self) -> Vec<String> {
        let troubles = self.troubles.lock().unwrap_or_else(PoisonError::into_inner);
        troubles.clone()
    }
}
