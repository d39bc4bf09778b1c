//! Reads files whose file system may hang, on threads of their own and with a timeout.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::refusal::Refusal;

/// The timeout of a file system.
pub(super) const LIMIT: Duration = Duration::from_secs(5);

/// A value that is read repeatedly. At most one reading is under way, so that a hanging file system
/// blocks one thread; all callers that asked before the reading started share its result.
pub(super) struct Slow<K, T> {
    limit: Duration,
    last: Arc<Mutex<Option<Reading<K, T>>>>,
    /// `true` from the timeout of a reading until that reading ends.
    hung: Arc<AtomicBool>,
}

struct Reading<K, T> {
    began: Instant,
    key: K,
    value: T,
}

impl<K, T> Default for Slow<K, T> {
    fn default() -> Self {
        Self {
            limit: LIMIT,
            last: Arc::default(),
            hung: Arc::default(),
        }
    }
}

impl<K, T> Slow<K, T>
where
    K: PartialEq + Send + 'static,
    T: Clone + Send + 'static,
{
    /// Reads the value of `key`. `read` gets the result of the last reading with this key.
    ///
    /// # Errors
    /// `hung`, if the file system does not answer.
    pub(super) async fn read(
        &self,
        key: K,
        read: impl FnOnce(Option<T>) -> T + Send + 'static,
        hung: impl Fn() -> Refusal,
    ) -> Result<T, Refusal> {
        let asked = Instant::now();
        if self.hung.load(Ordering::SeqCst) && self.last.try_lock().is_err() {
            return Err(hung());
        }
        let flag = Arc::clone(&self.hung);
        let reading = async {
            let mut last = Arc::clone(&self.last).lock_owned().await;
            if let Some(shared) = last.as_ref()
                && shared.key == key
                && shared.began >= asked
            {
                return Ok(shared.value.clone());
            }
            let began = Instant::now();
            in_background(move || {
                let before = last.take().filter(|last| last.key == key);
                let value = read(before.map(|last| last.value));
                *last = Some(Reading {
                    began,
                    key,
                    value: value.clone(),
                });
                flag.store(false, Ordering::SeqCst);
                Ok(value)
            })
            .await
        };
        tokio::time::timeout(self.limit, reading)
            .await
            .unwrap_or_else(|_| {
                self.hung.store(true, Ordering::SeqCst);
                Err(hung())
            })
    }
}

/// Runs blocking work on a thread where it does not delay any stream.
///
/// # Errors
/// The errors of the work.
pub async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| Refusal::internal(format!("the work ended early: {error}")))?
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc;

    use futures_util::FutureExt as _;

    use super::*;

    fn hung() -> Refusal {
        Refusal::conflict("it hangs")
    }

    #[tokio::test]
    async fn a_hung_read_delays_one_caller_and_reads_resume_when_it_ends() {
        let slow = Slow {
            limit: Duration::from_millis(20),
            ..Slow::<(), u32>::default()
        };
        let (free, hangs) = mpsc::channel::<()>();
        let read = move |_| {
            let _ = hangs.recv();
            1
        };
        assert!(slow.read((), read, hung).await.is_err());
        let second = slow.read((), |_| 2, hung).now_or_never();
        assert!(second.expect("a second wait").is_err());
        free.send(()).unwrap();
        while slow.last.try_lock().is_err() {
            tokio::task::yield_now().await;
        }
        let slow = Slow {
            limit: LIMIT,
            ..slow
        };
        let next = slow.read((), |before| before.unwrap() + 10, hung).await;
        assert_eq!(next.unwrap(), 11);
    }

    #[tokio::test]
    async fn those_who_ask_while_another_reads_share_the_next_reading() {
        let slow: Arc<Slow<&str, u32>> = Arc::default();
        let readings = Arc::new(AtomicU32::new(0));
        let have_asked = Arc::new(AtomicBool::new(false));
        let all = (0..50).map(|_| {
            let (slow, readings) = (Arc::clone(&slow), Arc::clone(&readings));
            let have_asked = Arc::clone(&have_asked);
            async move {
                let read = move |_| {
                    while !have_asked.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                    readings.fetch_add(1, Ordering::SeqCst)
                };
                slow.read("a", read, hung).await.unwrap();
            }
        });
        let mut all = pin!(futures_util::future::join_all(all));
        // The first reading lasts until all callers have asked, however slow this thread is.
        assert!(all.as_mut().now_or_never().is_none());
        have_asked.store(true, Ordering::SeqCst);
        all.await;
        assert!(readings.load(Ordering::SeqCst) <= 2);
        let other = slow.read("b", |before| u32::from(before.is_some()), hung);
        assert_eq!(
            other.await.unwrap(),
            0,
            "the value of another key is not reused"
        );
    }
}
