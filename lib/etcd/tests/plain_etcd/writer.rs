//! A loop of writes during the changes, and the proof that no acknowledged write is missing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use halite_etcd::{Client, Members as _};
use tokio::task::JoinHandle;

use super::site::{answered, eventually};

/// A loop of writes, each with its own key.
pub struct Writer {
    stop: Arc<AtomicBool>,
    task: JoinHandle<Written>,
}

/// The numbers of the writes.
pub struct Written {
    /// The writes that the cluster acknowledged.
    pub acknowledged: Vec<u64>,
    /// The number of writes with an unknown outcome.
    pub unknown: usize,
}

impl Writer {
    /// Starts the loop. It needs its own client.
    pub fn start(client: Client) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let task = tokio::spawn(async move {
            let mut written = Written {
                acknowledged: Vec::new(),
                unknown: 0,
            };
            for number in 0u64.. {
                if stopped.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("write/{number}");
                match client.put(key.as_bytes(), key.as_bytes()).await {
                    Ok(()) => written.acknowledged.push(number),
                    Err(_) => written.unknown += 1,
                }
                // Leaves time for the members on a machine with two cores.
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
            written
        });
        Self { stop, task }
    }

    /// Stops the loop and reads every acknowledged write.
    pub async fn finish(self, client: &Client) -> Written {
        self.stop.store(true, Ordering::Relaxed);
        let written = self.task.await.unwrap();
        for number in &written.acknowledged {
            let key = format!("write/{number}");
            let value = answered(&key, async || client.get(key.as_bytes()).await).await;
            assert_eq!(
                value.as_deref(),
                Some(key.as_bytes()),
                "acknowledged, and lost"
            );
        }
        written
    }
}

/// Waits until all members have the same hash at one revision after one compaction, while writes
/// continue. A lagging member does not have the revision yet.
pub async fn assert_equal_hashes(client: &Client) {
    let members = answered("who is a member", async || client.list().await).await;
    for member in &members {
        let what = format!("{} and the first member have one revision", member.title());
        eventually(&what, async || {
            let Ok(first) = client.hash_kv(&members[0], 0).await else {
                return false;
            };
            let Ok(own) = client.hash_kv(member, first.revision).await else {
                return false;
            };
            if own.compacted != first.compacted {
                return false;
            }
            assert_eq!(own, first, "{} has other data", member.title());
            true
        })
        .await;
    }
}
