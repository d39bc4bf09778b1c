//! The first start of an etcd member as data.

use serde::{Deserialize, Serialize};

/// The file that exists while the container may be there in which a member that joins receives its
/// data. A boot ends both.
pub const JOINING_MARK: &str = "/run/halite-etcd-joining";

/// The directory below a data directory in which the first member of a cluster is made. Its data are
/// moved to their place when they are whole; the directory stays until the member is recorded.
#[must_use]
pub fn scratch(data: &str) -> String {
    format!("{}/founding", data.trim_end_matches('/'))
}

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
