//! A small backup, made and read.

use std::collections::BTreeMap;
use std::path::Path;

use halite_backup::{
    BackupFile, Directory, Error, EtcdSource, Header, Identity, Manifest, SNAPSHOT,
};
use halite_names::AgeRecipient;
use halite_testkit::empty_etcd_snapshot;

/// The files of the example, in the order in which they are written.
pub fn files() -> Vec<(&'static str, u32, Vec<u8>)> {
    vec![
        ("config/cluster.yaml", 0o600, b"kind: Cluster\n".to_vec()),
        ("config/nodes/cp-1.yaml", 0o644, b"kind: Node\n".to_vec()),
        ("state/ca/etcd.key", 0o600, vec![7; 300]),
        ("state/empty", 0o600, Vec::new()),
        (SNAPSHOT, 0o600, empty_etcd_snapshot()),
    ]
}

/// A header; `number` is the second at which the backup was started.
pub fn header(cluster_id: &str, number: i64, recipients: Vec<AgeRecipient>) -> Header {
    Header {
        cluster: "prod".to_owned(),
        cluster_id: cluster_id.to_owned(),
        created: jiff::Timestamp::from_second(1_800_000_000 + number).unwrap(),
        epoch: 3,
        halite: "0.1.0".to_owned(),
        kubernetes: "v1.36.3".to_owned(),
        bundle: Some("1".to_owned()),
        etcd: EtcdSource {
            member: "cp-1".to_owned(),
            version: "3.6.6".to_owned(),
            cluster: "cafe".to_owned(),
            keys: None,
        },
        recipients,
    }
}

/// Makes a backup in a directory, and returns its path.
pub fn make(directory: &Path, header: Header) -> Result<std::path::PathBuf, Error> {
    let mut pending = Directory::new(directory).begin(header)?;
    for (path, mode, content) in files() {
        pending
            .writer
            .file(path, mode, content.len() as u64, &mut content.as_slice())?;
    }
    Ok(pending.finish()?.path().to_owned())
}

/// Mode and content of each file.
pub type Contents = BTreeMap<String, (u32, Vec<u8>)>;

/// The whole content of a backup, after all checks.
pub fn contents(file: &Path, identities: &[Identity]) -> Result<(Manifest, Contents), Error> {
    let opened = BackupFile::open(file)?;
    opened.check()?;
    let mut contents = BTreeMap::new();
    let manifest = opened.read(identities, &mut |path, mode, content| {
        let mut bytes = Vec::new();
        content.read_to_end(&mut bytes)?;
        contents.insert(path.to_owned(), (mode, bytes));
        Ok(())
    })?;
    Ok((manifest, contents))
}
