//! Static pods, and systemd units in their place, as data.

use serde::{Deserialize, Serialize};

/// A wait for a static pod, or for a unit whose file takes the place of the manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticPod {
    /// The name of the pod, its container and the program in it, for example `etcd`.
    pub name: String,
    /// The unit that runs the program, if it is not the kubelet's.
    #[serde(default)]
    pub unit: Option<String>,
    /// The path of the manifest, or of the unit's file.
    pub manifest: String,
    /// The path of the record of the last manifest whose pod was ready.
    pub record: String,
    /// The URL of the readiness probe. As for the kubelet, any certificate is accepted.
    pub ready: String,
    /// The URL that answers when the program runs but waits for other hosts.
    pub live: Option<String>,
    /// A URL that must answer for any manifest of this pod to become ready.
    pub behind: Option<String>,
    /// `true` if a running pod counts as done without the answer of `ready`: it may wait for its
    /// peers.
    pub quorum: bool,
    /// Seconds until the wait fails.
    pub seconds: u64,
    /// The process that was ended; the wait is for its successor.
    pub ended: Option<Process>,
    /// Files that the program reads only when it starts.
    pub reads: Vec<String>,
}

impl StaticPod {
    /// The object of the wait, for display.
    #[must_use]
    pub fn title(&self) -> String {
        match &self.unit {
            Some(unit) => format!("unit {unit}"),
            None => format!("static pod {}", self.name),
        }
    }
}

/// A process of a static pod's container, or of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// The start, in clock ticks since boot: together with the id it identifies one process.
    pub started: u64,
    /// The pod's uid, or the name of the unit.
    pub uid: String,
}
