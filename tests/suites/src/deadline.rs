//! The end of a run with a time limit: a test that hangs is named before the caller of the run ends
//! it without a word.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Time after which a run with a budget ends itself.
pub(crate) const END: Duration = Duration::from_secs(87 * 60);

/// The test that runs.
static RUNNING: Mutex<&str> = Mutex::new("no test");

/// Notes which test runs.
pub(crate) fn begin(name: &'static str) {
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = name;
}

/// Ends this process with the name of the running test, if it still runs at [`END`].
pub(crate) fn watch() {
    thread::spawn(|| {
        thread::sleep(END);
        let running = *RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        println!(
            "FAILED {running}: it still ran when the run had taken {} minutes",
            END.as_secs() / 60
        );
        std::process::exit(1);
    });
}
