//! Background tasks that continue after any failure.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;

/// The pause before a task restarts.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs an endless task. If it panics or ends nevertheless, it is logged and restarted.
pub async fn supervise<F: Future>(name: &str, start: impl Fn() -> F) {
    loop {
        match AssertUnwindSafe(start()).catch_unwind().await {
            Ok(_) => tracing::error!(task = name, "a background task ended: restarting it"),
            // The panic itself is on standard error.
            Err(_) => tracing::error!(task = name, "a background task panicked: restarting it"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_started_again() {
        let (starts, works) = (AtomicU32::new(0), Notify::new());
        let start = || async {
            match starts.fetch_add(1, Ordering::SeqCst) {
                0 => panic!("the first time"),
                1 => {}
                _ => {
                    works.notify_one();
                    std::future::pending().await
                }
            }
        };
        tokio::select! {
            () = supervise("test", start) => unreachable!("the task never ends"),
            () = works.notified() => {}
        }
        assert_eq!(starts.load(Ordering::SeqCst), 3);
    }
}
