//! Background tasks that go on whatever happens in them.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt as _;

/// The pause before a task starts again.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs a task that has no end. One that panics or ends all the same is logged and started again.
pub async fn supervise<F: Future>(name: &str, start: impl Fn() -> F) {
    loop {
        match AssertUnwindSafe(start()).catch_unwind().await {
            Ok(_) => tracing::error!(task = name, "a background task ended: starting it again"),
            // The panic itself is on standard error.
            Err(_) => tracing::error!(task = name, "a background task panicked: starting it again"),
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
            () = supervise("test", start) => unreachable!("it has no end"),
            () = works.notified() => {}
        }
        assert_eq!(starts.load(Ordering::SeqCst), 3);
    }
}
