//! The time of the cluster in memory.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::FakeCluster;
use crate::pace::{Moment, Pace, Wait};

/// Time that passes only in pauses; each is a second and a tick of the cluster.
pub struct FakePace<'a> {
    cluster: &'a FakeCluster,
    state: Mutex<(Duration, Vec<String>)>,
}

impl<'a> FakePace<'a> {
    /// The time of this cluster.
    #[must_use]
    pub fn new(cluster: &'a FakeCluster) -> Self {
        let state = Mutex::default();
        Self { cluster, state }
    }

    fn state(&self) -> MutexGuard<'_, (Duration, Vec<String>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The texts of the reports.
    #[must_use]
    pub fn reports(&self) -> Vec<String> {
        self.state().1.clone()
    }
}

impl Pace for FakePace<'_> {
    fn now(&self) -> Duration {
        self.state().0
    }

    fn pause(&self) -> Moment<'_> {
        self.state().0 += Duration::from_secs(1);
        self.cluster.tick();
        Box::pin(std::future::ready(()))
    }

    fn report<'a>(&'a self, wait: &'a Wait) -> Moment<'a> {
        self.state().1.push(wait.to_string());
        Box::pin(std::future::ready(()))
    }
}
