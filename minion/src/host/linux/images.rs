//! Images in containerd's `k8s.io` namespace, through `ctr`.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::command::{run_checked, run_checked_until};
use crate::host::{HostError, HostResult, Stop};

const QUESTION: Duration = Duration::from_secs(60);
const PULL: Duration = Duration::from_secs(1800);
/// Directory in which containerd finds the hosts of each registry (`hosts.toml`).
const HOSTS: &str = "/etc/containerd/certs.d";

/// The present references, remembered until an effect may have changed them.
#[derive(Debug, Default)]
pub struct Images {
    known: Mutex<Known>,
    /// Held while containerd is asked: parallel states share one answer.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    /// Counts invalidations, so that an older answer is not stored.
    forgotten: u64,
    references: Option<BTreeSet<String>>,
}

impl Images {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remembered(&self, reference: &str) -> Option<bool> {
        self.known()
            .references
            .as_ref()
            .map(|references| references.contains(reference))
    }

    /// Forgets the remembered references.
    pub fn forget(&self) {
        let mut known = self.known();
        known.forgotten += 1;
        known.references = None;
    }

    /// Returns whether an image exists.
    ///
    /// # Errors
    /// containerd cannot be asked.
    pub async fn has(&self, reference: &str) -> HostResult<bool> {
        let _one = self.asking.lock().await;
        if let Some(found) = self.remembered(reference) {
            return Ok(found);
        }
        let before = self.known().forgotten;
        let list = run_checked(
            &["ctr", "-n", "k8s.io", "images", "ls", "-q"],
            &[],
            QUESTION,
        )
        .await?;
        let list: BTreeSet<String> = list.lines().map(|l| l.trim().to_owned()).collect();
        let found = list.contains(reference);
        let mut known = self.known();
        if known.forgotten == before {
            known.references = Some(list);
        }
        Ok(found)
    }

    /// Pulls an image from the hosts that containerd is configured to use for its registry's name.
    ///
    /// # Errors
    /// `ctr` fails, or is ended by `stop`.
    pub async fn pull(&self, reference: &str, stop: &Stop) -> HostResult<()> {
        if reference.starts_with('-') {
            return Err(HostError::refused(format!(
                "`{reference}` is not an image reference"
            )));
        }
        self.forget();
        let argv = [
            "ctr",
            "-n",
            "k8s.io",
            "images",
            "pull",
            "--hosts-dir",
            HOSTS,
            reference,
        ];
        let pulled = run_checked_until(&argv, &[], PULL, stop).await.map(drop);
        // A parallel state may have asked during the pull; its list is outdated.
        self.forget();
        pulled
    }
}
