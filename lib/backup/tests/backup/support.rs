//! A small backup, made and read.

use std::collections::BTreeMap;
use std::path::Path;

use halite_backup::{
    BackupFile, Directory, Error, EtcdSource, Header, Identity, Manifest, SNAPSHOT,
};
use halite_names::AgeRecipient;
use sha2::{Digest as _, Sha256};

/// The files of the example, in the order in which they are written.
pub fn files() -> Vec<(&'static str, u32, Vec<u8>)> {
    vec![
        ("config/cluster.yaml", 0o600, b"kind: Cluster\n".to_vec()),
        ("config/nodes/cp-1.yaml", 0o644, b"kind: Node\n".to_vec()),
        ("state/ca/etcd.key", 0o600, vec![7; 300]),
        ("state/empty", 0o600, Vec::new()),
        (SNAPSHOT, 0o600, snapshot()),
    ]
}

/// A snapshot of an empty database of one page size (see `bbolt/internal/common/meta.go`).
pub fn snapshot() -> Vec<u8> {
    let mut meta = Vec::new();
    for value in [0xED0C_DAED_u32, 2, 1024, 0] {
        meta.extend(value.to_le_bytes());
    }
    for value in [1_u64, 0, 1, 2, 9] {
        meta.extend(value.to_le_bytes());
    }
    let sum = meta.iter().fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    meta.extend(sum.to_le_bytes());
    let mut content = vec![0; 2048];
    content[16..16 + meta.len()].copy_from_slice(&meta);
    let hash = Sha256::digest(&content);
    content.extend(hash);
    content
}

/// A header; `number` is the second at which the backup was begun.
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
        },
        recipients,
    }
}

/// Makes a backup in a directory, and answers with its path.
pub fn make(directory: &Path, header: Header) -> Result<std::path::PathBuf, Error> {
    let mut pending = Directory::new(directory).begin(header)?;
    for (path, mode, content) in files() {
        pending
            .writer
            .file(path, mode, content.len() as u64, &mut content.as_slice())?;
    }
    pending.finish()
}

/// Mode and content of each file.
pub type Contents = BTreeMap<String, (u32, Vec<u8>)>;

/// Everything that a backup has, after all checks.
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
