//! Static pods as data.

use serde::{Deserialize, Serialize};

/// A wait for a static pod.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StaticPod {
    /// The name of the pod, its container and the program in it, for example `etcd`.
    pub name: String,
    /// The path of the manifest.
    pub manifest: String,
    /// The path of the record of the last manifest whose pod was ready.
    pub record: String,
    /// The URL of the readiness probe. As for the kubelet, any certificate is accepted.
    pub ready: String,
    /// The URL that answers when the program runs but lacks what it needs from other hosts.
    pub live: Option<String>,
    /// A URL without whose answer no manifest of this pod could be ready.
    pub behind: Option<String>,
    /// A pod that runs is done without the answer of `ready`: it may wait for its peers.
    pub quorum: bool,
    /// Seconds until the wait fails.
    pub seconds: u64,
    /// The process that was ended; the wait is for its successor.
    pub ended: Option<Process>,
    /// Files that the program reads only when it starts.
    pub reads: Vec<String>,
}

/// A process of a static pod's container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// The start, in clock ticks since boot: with the id it names one process.
    pub started: u64,
    /// The pod's uid.
    pub uid: String,
}
