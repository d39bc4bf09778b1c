//! The parts of a backup that the master gives to `ctl`.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use halite_backup::{BackupFile, BackupWriter, Header};
use halite_core::refusal::Refusal;
use halite_pillar::ca_rotation::RotationStage;
use halite_proto::v1::backup_part::Part;
use halite_store::Store;
use halite_testkit::empty_etcd_snapshot;
use serde_json::{Value, json};

use super::etcd_tests::{TREE, degraded};
use super::fixture::{Life, Site};

/// Mode and content of each file.
type Files = BTreeMap<String, (u32, Vec<u8>)>;

/// A backup as the master sends it: the head, and each file with its mode and content.
fn backup(life: &Life) -> Result<(Value, Files), Refusal> {
    let parts = life.runtime.block_on(async {
        let parts = life.backend.backup().await?;
        parts
            .collect::<Vec<_>>()
            .await
            .into_iter()
            .collect::<Result<Vec<_>, _>>()
    })?;
    let (mut head, mut files, mut ended) = (Value::Null, BTreeMap::new(), false);
    let mut current = String::new();
    for part in parts.into_iter().map(|part| part.part.unwrap()) {
        assert!(!ended, "a part after the end");
        match part {
            Part::HeadJson(text) => head = serde_json::from_str(&text).unwrap(),
            Part::File(file) => {
                current.clone_from(&file.path);
                let before = files.insert(file.path, (file.mode, Vec::new()));
                assert!(before.is_none(), "{current} is there twice");
            }
            Part::Data(data) => files.get_mut(&current).unwrap().1.extend(data),
            Part::End(end) => ended = end,
        }
    }
    assert!(ended, "no end");
    Ok((head, files))
}

/// Assembles the files of a backup as `ctl` does, reads them, and returns whether the cluster's CA
/// signed the backup.
fn is_signed(head: &Value, files: &Files) -> bool {
    let mut facts = head.clone();
    facts["recipients"] = json!([]);
    let header: Header = serde_json::from_value(facts).unwrap();
    let header = Header {
        created: jiff::Timestamp::from_second(header.created.as_second()).unwrap(),
        ..header
    };
    let mut writer = BackupWriter::new(Vec::new(), header).unwrap();
    for (path, (mode, content)) in files {
        let size = content.len() as u64;
        let added = writer.file(path, *mode, size, &mut content.as_slice());
        added.unwrap();
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("test.halite-backup");
    std::fs::write(&path, writer.finish().unwrap().0).unwrap();
    let read = BackupFile::open(&path)
        .unwrap()
        .read(&[], &mut |_, _, _| Ok(()));
    read.unwrap().is_signed
}

#[test]
fn a_backup_has_what_a_new_first_host_cannot_make() {
    let mut site = Site::new(TREE);
    let cluster = Arc::new(degraded());
    cluster.set_snapshot(empty_etcd_snapshot().chunks(1000).map(Vec::from).collect());
    site.etcd = Some((cluster.clone(), Duration::ZERO));
    let etc = site.path().join("etc");
    std::fs::create_dir_all(etc.join("custom/app")).unwrap();
    std::fs::create_dir_all(etc.join("operator")).unwrap();
    std::fs::write(etc.join("custom/app/init.sls"), "own: {}\n").unwrap();
    std::fs::write(etc.join("operator/operator.key"), "made again").unwrap();
    std::os::unix::fs::symlink("/nowhere", etc.join("dangling")).unwrap();
    let life = site.live();
    let (head, files) = backup(&life).unwrap();
    assert_eq!(head["cluster"], "test");
    assert_eq!(head["clusterId"].as_str().unwrap().len(), 64);
    // Neither the leader, which is busy enough, nor the member that does not answer.
    assert_eq!(
        head["etcd"],
        json!({"member": "cp-3", "version": "3.6.0", "cluster": "1", "keys": {"revision": 100, "count": 100}})
    );
    assert_eq!(head["backup"]["keep"], 28);
    for path in [
        "config/cluster.yaml",
        "config/nodes/bootstrap-1.yaml",
        "config/custom/app/init.sls",
        "state/ca/halite.key",
        "state/ca/etcd.crt",
        "state/sa.key",
        "state/store.db",
        "etcd/snapshot.db",
    ] {
        assert!(files.contains_key(path), "{path}: {:?}", files.keys());
    }
    assert!(
        !files.keys().any(|path| path.contains("operator")),
        "{:?}",
        files.keys()
    );
    assert_eq!(files["state/store.db"].0, 0o600);
    assert_eq!(files["state/ca/halite.key"].0, 0o600);
    assert_eq!(files["etcd/snapshot.db"].1, empty_etcd_snapshot());
    let keys: Vec<&str> = files.keys().map(String::as_str).collect();
    assert!(is_signed(&head, &files), "{keys:?}");

    // The copy of the store is usable: a master that starts with it raises the epoch.
    let restored = tempfile::tempdir().unwrap();
    let path = restored.path().join("store.db");
    std::fs::write(&path, &files["state/store.db"].1).unwrap();
    let store = life.runtime.block_on(Store::open(&path)).unwrap();
    assert_eq!(store.epoch(), head["epoch"].as_u64().unwrap() + 1);

    // Without a quorum it is unknown which data are right.
    cluster.stop("cp-3");
    let refused = backup(&life).unwrap_err();
    assert!(
        refused
            .message
            .contains("cannot take a snapshot of etcd: 3 members, 0 of them"),
        "{refused}"
    );
}

/// A stage of a rotation begins, and a rotation ends, while etcd gives its snapshot.
#[test]
fn the_keys_in_a_backup_are_those_of_one_moment_around_its_snapshot() {
    let mut site = Site::new(TREE);
    let cluster = Arc::new(degraded());
    cluster.set_snapshot(empty_etcd_snapshot().chunks(1000).map(Vec::from).collect());
    site.etcd = Some((cluster.clone(), Duration::ZERO));
    let life = site.live();
    let (cas, mut steps) = (Arc::clone(&life.app.cas), 0);
    cluster.at_snapshot(move || {
        steps += 1;
        let begin = |stage| {
            cas.begin_stage("etcd", stage, "test", 1_800_000_000_000)
                .unwrap()
        };
        match steps {
            1 => begin(RotationStage::Only),
            2 => cas.end_rotation("etcd").unwrap(),
            _ => false,
        };
    });
    let (head, files) = backup(&life).unwrap();
    assert!(is_signed(&head, &files));
    for (path, (_, content)) in files
        .iter()
        .filter(|(path, _)| path.starts_with("state/ca/"))
    {
        let path = site.path().join(path);
        assert_eq!(
            std::fs::read(&path).unwrap(),
            *content,
            "{}",
            path.display()
        );
    }
    assert!(files.contains_key("state/ca/etcd.dropped.json"));
    assert!(!files.contains_key("state/ca/etcd.rotation.json"));

    let (path, mut number) = (site.path().join("state/sa.pub"), 0);
    cluster.at_snapshot(move || {
        number += 1;
        std::fs::write(&path, number.to_string()).unwrap();
    });
    let refused = backup(&life).unwrap_err();
    assert!(
        refused
            .message
            .contains("change during a rotation; run the command again"),
        "{refused}"
    );
}
