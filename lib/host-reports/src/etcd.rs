//! What a host knows of its etcd member: the record that one ran there, and its write-ahead log.
//!
//! A state writes the record as soon as there is a log. A host with a record and without a log has
//! lost the data of its member: an etcd that starts there would be a new, empty cluster.

use serde::{Deserialize, Serialize};

/// The grain with the [`Member`] of a host; absent on a host without record and log.
pub const GRAIN: &str = "etcd";

/// The record's path. It is not in etcd's directory, which may be a file system of its own.
pub const RECORD: &str = "/var/lib/halite/etcd-member.json";

/// The directory of the write-ahead log, relative to etcd's data directory.
pub const LOG: &str = "member/wal";

/// etcd's data directory.
pub const DATA: &str = "/var/lib/etcd";

/// Returns whether a name in the log's directory is that of a part of the log.
#[must_use]
pub fn is_log(name: &str) -> bool {
    name.strip_suffix(".wal")
        .is_some_and(|name| !name.is_empty())
}

/// The etcd member of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its name, if a record says it.
    pub member: Option<String>,
    /// There is a record, even if it cannot be read.
    pub recorded: bool,
    /// There is a write-ahead log.
    pub log: bool,
}

impl Member {
    /// Returns whether the data of a member that ran on the host is gone.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.recorded && !self.log
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_record_without_a_log_is_a_loss() {
        for (recorded, log, lost) in [
            (false, false, false),
            (false, true, false),
            (true, true, false),
            (true, false, true),
        ] {
            let member = Member {
                member: None,
                recorded,
                log,
            };
            assert_eq!(member.is_lost(), lost, "{member:?}");
        }
        assert!(is_log("0000000000000000-0000000000000000.wal"));
        assert!(!is_log("0.tmp") && !is_log(".wal"));
    }
}
