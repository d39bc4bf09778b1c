//! The first start of an etcd member as data.

use serde::{Deserialize, Serialize};

/// The file that exists while the container may be there in which a member that joins receives its
/// data. A boot ends both.
pub const JOINING_MARK: &str = "/run/halite-etcd-joining";

/// The first start of a member, before there is a pod or unit of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstStart {
    /// The image that has etcd.
    pub image: String,
    /// etcd with its arguments, as in the container.
    pub command: Vec<String>,
    /// The data directory on the host and in the container.
    pub data: String,
    /// Another directory that etcd reads, on the host and in the container.
    pub reads: String,
    /// Seconds until etcd serves; of a member that joins, seconds in which nothing arrives.
    pub seconds: u64,
}

impl FirstStart {
    /// The directory below the data directory in which the first member of a cluster is made. It is
    /// moved to its place when it is whole.
    #[must_use]
    pub fn scratch(&self) -> String {
        format!("{}/founding", self.data.trim_end_matches('/'))
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
