//! A host's knowledge of its etcd member: the record that one ran there, and its write-ahead log.
//!
//! A state writes the record as soon as there is a log. A host with a record but no log has lost
//! its member's data: an etcd that starts there would be a new, empty cluster.

use serde::{Deserialize, Serialize};

use crate::etcd_log::Ids;

/// The grain with the [`Member`] of a host; absent on a host that has neither record nor log.
pub const GRAIN: &str = "etcd";

/// The record's path. It is not in etcd's directory, which may be a separate file system.
pub const RECORD: &str = "/var/lib/halite/etcd-member.json";

/// The directory of the write-ahead log, relative to etcd's data directory.
pub const LOG: &str = "member/wal";

/// etcd's data directory.
pub const DATA: &str = "/var/lib/etcd";

/// Returns whether a file name in the log's directory belongs to the log.
#[must_use]
pub fn is_log(name: &str) -> bool {
    name.strip_suffix(".wal")
        .is_some_and(|name| !name.is_empty())
}

/// The content of the record, as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EtcdRecord {
    /// The member's name.
    pub member: String,
    /// The members at its first start, as in `--initial-cluster`.
    #[serde(default)]
    pub initial_cluster: String,
    /// The id of its cluster, in hexadecimal as etcd prints it. A record without ids accepts the
    /// ids of the existing data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_id: Option<String>,
    /// The id of the member, likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_id: Option<String>,
}

impl EtcdRecord {
    /// A record of a member with these ids, if they are known.
    #[must_use]
    pub fn new(member: &str, initial_cluster: &str, ids: Option<Ids>) -> Self {
        Self {
            member: member.to_owned(),
            initial_cluster: initial_cluster.to_owned(),
            cluster_id: ids.map(|ids| format!("{:x}", ids.cluster)),
            member_id: ids.map(|ids| format!("{:x}", ids.member)),
        }
    }

    /// The text of the record's file: one line.
    ///
    /// # Errors
    /// The error of the serialiser.
    pub fn text(&self) -> Result<String, serde_json::Error> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// Its ids, if it has both.
    #[must_use]
    pub fn ids(&self) -> Option<Ids> {
        let id = |text: &Option<String>| u64::from_str_radix(text.as_deref()?, 16).ok();
        Some(Ids {
            cluster: id(&self.cluster_id)?,
            member: id(&self.member_id)?,
        })
    }
}

/// The etcd member of a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedMember {
    /// Its name; `None` if no record names it.
    pub member: Option<String>,
    /// There is a record, even if it cannot be read.
    pub recorded: bool,
    /// There is a write-ahead log.
    pub log: bool,
}

impl ReportedMember {
    /// Returns whether the data of a member that ran on the host is missing.
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
            let member = ReportedMember {
                member: None,
                recorded,
                log,
            };
            assert_eq!(member.is_lost(), lost, "{member:?}");
        }
        assert!(is_log("0000000000000000-0000000000000000.wal"));
        assert!(!is_log("0.tmp") && !is_log(".wal"));
    }

    #[test]
    fn a_record_is_one_line_of_json() {
        let mut record = EtcdRecord::new("cp-1", "cp-1=https://10.0.0.1:2380", None);
        let text = r#"{"member":"cp-1","initialCluster":"cp-1=https://10.0.0.1:2380"}"#;
        assert_eq!(record.text().unwrap(), format!("{text}\n"));
        record.cluster_id = Some("cd".to_owned());
        assert!(record.text().unwrap().ends_with(",\"clusterId\":\"cd\"}\n"));
    }

    #[test]
    fn a_record_has_both_ids_or_none() {
        let ids = Ids {
            cluster: u64::MAX,
            member: 0x12,
        };
        let record = EtcdRecord::new("cp-1", "cp-1=https://10.0.0.1:2380", Some(ids));
        assert_eq!(record.ids(), Some(ids));
        assert_eq!(record.cluster_id.as_deref(), Some("ffffffffffffffff"));
        let read: EtcdRecord = serde_json::from_str(&record.text().unwrap()).unwrap();
        assert_eq!(read, record);
        for (cluster, member) in [
            (None, Some("12")),
            (Some("12"), None),
            (Some("x"), Some("12")),
        ] {
            let record = EtcdRecord {
                cluster_id: cluster.map(str::to_owned),
                member_id: member.map(str::to_owned),
                ..record.clone()
            };
            assert_eq!(record.ids(), None, "{record:?}");
        }
    }
}
