//! Changes whose process is killed at random moments, and which are then run again.

use std::sync::Arc;
use std::time::Duration;

use halite_etcd::{ChangeError, Changes, Client, Joined, MemberHost, Removal};

use super::site::{PATIENCE, changes, pace};

/// Random numbers that can be repeated with a seed (SplitMix64).
pub struct Chance(u64);

impl Chance {
    /// The seed of `HALITE_ETCD_SEED`, or of the process.
    pub fn new() -> Self {
        let given = std::env::var("HALITE_ETCD_SEED").ok();
        let seed = given.map_or(u64::from(std::process::id()), |text| text.parse().unwrap());
        println!("HALITE_ETCD_SEED={seed}");
        Self(seed)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % limit
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        let place = self.below(items.len() as u64);
        &items[usize::try_from(place).unwrap()]
    }
}

/// The number of kills of each change.
pub fn kills() -> usize {
    let given = std::env::var("HALITE_ETCD_KILLS").ok();
    given.map_or(6, |text| text.parse().unwrap())
}

/// One change, as a process of the master would run it.
#[derive(Debug, Clone)]
pub enum MemberChange {
    Add(MemberHost),
    Promote(MemberHost),
    Remove(Removal),
}

impl MemberChange {
    async fn run(self, changes: Changes<'_>) -> Result<Option<Joined>, ChangeError> {
        match self {
            Self::Add(host) => changes.add_learner(&host, false).await.map(Some),
            Self::Promote(host) => changes.promote(&host).await.map(|_| None),
            Self::Remove(removal) => changes.remove(&removal).await.map(|()| None),
        }
    }
}

/// Kills the change at random moments, and finally runs it to its end. Returns the result and the
/// number of kills that interrupted it.
pub async fn with_kills(
    client: &Arc<Client>,
    change: &MemberChange,
    chance: &mut Chance,
) -> (Option<Joined>, usize) {
    let mut cut = 0;
    for _ in 0..kills() {
        let own = change.clone();
        // Connections of a separate client would die with the process, as the calls in flight do.
        let client = Arc::clone(client);
        let process = tokio::spawn(async move {
            let pace = pace();
            own.run(changes(client.as_ref(), &pace, PATIENCE)).await
        });
        // A whole change takes some tens of milliseconds, or seconds while etcd refuses.
        tokio::time::sleep(Duration::from_micros(chance.below(30_000))).await;
        process.abort();
        match process.await {
            Err(killed) if killed.is_cancelled() => cut += 1,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
            // Done, or refused for now because a member was missing.
            Ok(_) => {}
        }
    }
    (to_the_end(client, change).await, cut)
}

/// Runs a change until it succeeds. A refusal while a member restarts is retried.
pub async fn to_the_end(client: &Arc<Client>, change: &MemberChange) -> Option<Joined> {
    let start = std::time::Instant::now();
    loop {
        let pace = pace();
        let changes = changes(client.as_ref(), &pace, PATIENCE);
        match change.clone().run(changes).await {
            Ok(joined) => return joined,
            Err(ChangeError::QuorumLost { .. } | ChangeError::Silent { .. })
                if start.elapsed() < PATIENCE =>
            {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("{change:?}: {error}"),
        }
    }
}
