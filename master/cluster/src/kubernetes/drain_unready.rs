//! Pods that are ending on a node that is not Ready: there may be no kubelet that ends their
//! containers and then removes them from the API, and a drain would wait for them until its limit.
//!
//! The drain of a host that is cleaned next continues without them, like kubectl's with
//! `--skip-wait-for-delete-timeout`. Their containers end with the host; once its Node object is
//! deleted after that, kube-controller-manager removes the pods (`gcOrphaned` in
//! `pkg/controller/podgc`).

use halite_core::clock::Clock;
use halite_store::Millis;
use serde_json::Value;

use super::drain_pods::Pod;
use super::node::{Readiness, readiness};

/// The time after a pod's grace period in which a working kubelet kills the containers, unmounts
/// the volumes and removes the pod, in milliseconds.
const MARGIN: Millis = 30_000;

/// The patience of one round of a drain with pods that are ending.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// The time of day; `None` if the drain waits for each pod without a limit of its own.
    now: Option<Millis>,
}

impl Patience {
    /// The patience with the pods of this node. There is a clock if the host is cleaned after the
    /// drain.
    pub(super) fn on(node: &Value, cleaned: Option<&dyn Clock>) -> Self {
        let is_ready = matches!(
            readiness(Some(node)),
            Readiness::Ready | Readiness::UnderPressure(_)
        );
        let now = match cleaned {
            Some(clock) if !is_ready => Some(clock.now()),
            _ => None,
        };
        Self { now }
    }

    /// Returns whether the drain continues without the end of a pod.
    pub(super) fn is_over(self, pod: &Pod) -> bool {
        self.left(pod).is_some_and(|left| left <= 0)
    }

    /// Reports that a pod is ending, and the rest of the wait for it, if that is limited.
    pub(super) fn ending(self, pod: &Pod) -> String {
        match self.left(pod) {
            Some(left) => format!(
                "it is ending, and the node is not Ready: waiting at most {} s more",
                left / 1000 + 1
            ),
            None => "it is ending".to_owned(),
        }
    }

    /// The milliseconds until the drain continues without a pod.
    fn left(self, pod: &Pod) -> Option<Millis> {
        let until = pod.ends_by?.saturating_add(MARGIN);
        Some(until.saturating_sub(self.now?))
    }
}
