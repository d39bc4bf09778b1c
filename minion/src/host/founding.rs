//! The first start of an etcd member as data.

use serde::{Deserialize, Serialize};

/// The file that exists while a container may run in which a joining member receives its data. A
/// boot ends both.
pub const JOINING_MARK: &str = "/run/halite-etcd-joining";

/// The directory below a data directory in which the first member of a cluster is made. Its data
/// are moved to their place once they are complete; the directory stays until the member is
/// recorded.
#[must_use]
pub fn scratch(data: &str) -> String {
    format!("{}/founding", data.trim_end_matches('/'))
}

/// The first start of a member, before its pod or unit exists.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstStart {
    /// The image that contains etcd.
    pub image: String,
    /// etcd with its arguments, as in the container.
    pub command: Vec<String>,
    /// The data directory on the host and in the container.
    pub data: String,
    /// Another directory that etcd reads, on the host and in the container.
    pub reads: String,
    /// Seconds until etcd serves; for a joining member, seconds during which nothing arrives.
    pub seconds: u64,
}

impl FirstStart {
    /// The directory in which the first member of a cluster is made, see [`scratch`].
    #[must_use]
    pub fn scratch(&self) -> String {
        scratch(&self.data)
    }

    /// The directory of the member in the data directory.
    #[must_use]
    pub fn member(&self) -> String {
        format!("{}/member", self.data.trim_end_matches('/'))
    }

    /// The first file of the member's log.
    #[must_use]
    pub fn log(&self) -> String {
        format!(
            "{}/wal/0000000000000000-0000000000000000.wal",
            self.member()
        )
    }
}
