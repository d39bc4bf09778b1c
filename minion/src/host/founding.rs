//! The founding of an etcd cluster as data.

use serde::{Deserialize, Serialize};

/// The first start of a cluster's first member.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Founding {
    /// The image that has etcd.
    pub image: String,
    /// etcd with its arguments, as in the container.
    pub command: Vec<String>,
    /// The data directory on the host and in the container.
    pub data: String,
    /// Another directory that etcd reads, on the host and in the container.
    pub reads: String,
    /// Seconds until etcd serves.
    pub seconds: u64,
}

impl Founding {
    /// The directory below the data directory in which the member is made. It is moved to its place
    /// when it is whole.
    #[must_use]
    pub fn scratch(&self) -> String {
        format!("{}/founding", self.data.trim_end_matches('/'))
    }

    /// The directory of the member in the data directory.
    #[must_use]
    pub fn member(&self) -> String {
        format!("{}/member", self.data.trim_end_matches('/'))
    }
}
