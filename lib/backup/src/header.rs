//! The header of a backup, readable by anyone who may read the file.

use halite_names::AgeRecipient;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// The facts about a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Header {
    /// The name of the cluster.
    pub cluster: String,
    /// The identity of the cluster: SHA-256 of the certificate of its own CA. Another cluster of
    /// the same name has a different one. Backups made by older versions have the alias.
    #[serde(alias = "cluster_id")]
    pub cluster_id: String,
    /// The time at which it was started.
    pub created: Timestamp,
    /// The epoch of the master's store.
    pub epoch: u64,
    /// The version of Halite that made it.
    pub halite: String,
    /// The version of Kubernetes.
    pub kubernetes: String,
    /// The version of the bundle in use.
    pub bundle: Option<String>,
    /// The source of etcd's snapshot.
    pub etcd: EtcdSource,
    /// The keys that can decrypt it; empty if it is not encrypted.
    pub recipients: Vec<AgeRecipient>,
}

/// The member of etcd that made the snapshot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EtcdSource {
    /// Its name.
    pub member: String,
    /// The version of its program.
    pub version: String,
    /// The id of the cluster of members, in hexadecimal as etcd writes it.
    pub cluster: String,
    /// The keys that the member had when the backup started; backups made by older versions do not
    /// record them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keys: Option<CountedKeys>,
}

/// The keys of a member at a revision that is in the snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedKeys {
    /// The revision.
    pub revision: i64,
    /// The number of keys.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_an_earlier_version_is_read() {
        let text = r#"{"cluster": "prod", "cluster_id": "ab12", "created": "2026-11-23T14:00:00Z", "epoch": 1,
            "halite": "0.1.0", "kubernetes": "v1.36.3", "bundle": null,
            "etcd": {"member": "cp-1", "version": "3.6.6", "cluster": "1"}, "recipients": []}"#;
        let header: Header = serde_json::from_str(text).unwrap();
        assert_eq!(
            (header.cluster_id.as_str(), header.etcd.keys),
            ("ab12", None)
        );
        let written = serde_json::to_value(&header).unwrap();
        assert_eq!(written["clusterId"], "ab12", "{written}");
    }
}
