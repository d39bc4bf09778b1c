//! The times at which a wait is reported.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The interval between two reports of a wait, and before the first one.
pub const SAY: Duration = Duration::from_secs(10);

/// The time of the next report of a wait.
#[derive(Debug, Default)]
pub struct NextReport {
    /// The time of the last report.
    said: Mutex<Duration>,
}

impl NextReport {
    /// Returns whether a wait of this length is due for a report, and records the report.
    pub fn take(&self, since: Duration) -> bool {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = since >= *said + SAY;
        if is_due {
            *said = since;
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_reported_every_ten_seconds() {
        let due = NextReport::default();
        let reported: Vec<u64> = (0..35)
            .filter(|second| due.take(Duration::from_secs(*second)))
            .collect();
        assert_eq!(reported, [10, 20, 30]);
    }
}
