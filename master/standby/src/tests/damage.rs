//! A copy that differs from what its standby has acknowledged is neither promoted nor saved nor
//! continued.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt as _;

use halite_proto::v1::StandbyFile;

use super::promotion::{forced, pair, promote};
use super::*;
use crate::copy::Copy;
use crate::export::export;
use crate::promote::{CheckError, PromoteError, Promoted, PromotionRequest};

const ROWS: i64 = 50;

/// Creates a standby that has acknowledged many rows, and its master.
async fn acknowledged() -> (MasterHost, Arc<Store>, MasterHost) {
    let (master, store, standby) = pair().await;
    fs::write(master.config.config_dir.join("cluster.yaml"), "declared").unwrap();
    let mut link = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(link.following().await);
    for number in 2..=ROWS {
        write(&store, number, 100).await;
    }
    link.cut().await;
    (master, store, standby)
}

fn in_copy(standby: &MasterHost, name: &str) -> PathBuf {
    directory(&standby.config).join("copy-1").join(name)
}

fn flip(path: &Path, at: u64) {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    byte[0] ^= 1;
    file.write_all_at(&byte, at).unwrap();
}

/// A damage, and a part of its message.
type Case = (&'static str, fn(&MasterHost), &'static str);

const CASES: [Case; 6] = [
    (
        "a flipped bit",
        |standby| {
            let log = in_copy(standby, "store.db-wal");
            let length = fs::metadata(&log).unwrap().len();
            flip(&log, length / 4 * 3);
        },
        "that this standby has acknowledged",
    ),
    (
        "a short log",
        |standby| {
            let log = OpenOptions::new()
                .write(true)
                .open(in_copy(standby, "store.db-wal"))
                .unwrap();
            let length = log.metadata().unwrap().len();
            log.set_len(length - 1).unwrap();
        },
        "that this standby has acknowledged",
    ),
    (
        "a damaged header",
        |standby| flip(&in_copy(standby, "store.db-wal"), 17),
        "frame 0 of the",
    ),
    (
        "no log",
        |standby| fs::remove_file(in_copy(standby, "store.db-wal")).unwrap(),
        "frame 0 of the",
    ),
    (
        "a missing file",
        |standby| fs::remove_file(in_copy(standby, "files/state/ca/halite.key")).unwrap(),
        "state/ca/halite.key is missing",
    ),
    (
        "a changed file",
        |standby| flip(&in_copy(standby, "files/config/cluster.yaml"), 0),
        "config/cluster.yaml differs from the file",
    ),
];

#[tokio::test]
async fn a_damaged_copy_is_refused_and_taken_again() {
    for (name, damage, text) in CASES {
        let (master, store, standby) = acknowledged().await;
        damage(&standby);
        let log = in_copy(&standby, "store.db-wal");
        let before = fs::read(&log).ok();
        let error = promote(&standby, &PromotionRequest::default(), None).await;
        let error = error.unwrap_err();
        assert!(
            matches!(error, PromoteError::Check(CheckError::Damaged { .. })),
            "{name}"
        );
        let said = error.to_string();
        assert!(said.contains(text), "{name}: {said}");
        assert!(said.contains("--force --cluster prod"), "{name}: {said}");
        assert_eq!(fs::read(&log).ok(), before, "{name}: nothing is changed");
        // The standby itself does not continue it.
        let receiver = standby.receiver();
        assert_eq!(receiver.hello().position, None, "{name}");
        let mut link = link(&master, &store, receiver, PATIENT, None);
        assert!(link.following().await, "{name}");
        link.cut().await;
        let done = promote(&standby, &PromotionRequest::default(), None)
            .await
            .unwrap();
        assert_eq!(done, Promoted::Done(2), "{name}");
        let own = standby.config.state_dir.join("store.db");
        let expected: Vec<i64> = (1..=ROWS).collect();
        assert_eq!(numbers(&own).await, expected, "{name}");
        store.close().await;
    }
}

#[tokio::test]
async fn what_is_left_of_a_damaged_copy_is_promoted_by_force() {
    // The other damages leave nothing that could become a master.
    for (name, damage, _) in [CASES[0], CASES[1], CASES[5]] {
        let (_master, store, standby) = acknowledged().await;
        damage(&standby);
        let done = promote(&standby, &forced(), None).await.unwrap();
        assert_eq!(done, Promoted::Done(2), "{name}");
        let own = standby.config.state_dir.join("store.db");
        let found = numbers(&own).await;
        let expected: Vec<i64> = (1..).take(found.len()).collect();
        assert_eq!(found, expected, "{name}");
        store.close().await;
    }
}

#[tokio::test]
async fn a_damaged_log_is_saved_in_no_backup() {
    let (_master, store, standby) = acknowledged().await;
    let root = directory(&standby.config);
    let scratch = TempDir::new().unwrap();
    export(&root, scratch.path()).await.unwrap();
    CASES[0].1(&standby);
    let error = export(&root, scratch.path()).await.unwrap_err();
    assert!(matches!(error, CopyError::Damaged { .. }), "{error}");
    store.close().await;
}

#[tokio::test]
async fn a_file_that_the_master_removes_blocks_no_promotion_wherever_it_dies() {
    for is_complete in [false, true] {
        let (_master, store, standby) = acknowledged().await;
        let mut copy = Copy::open(&directory(&standby.config)).unwrap().unwrap();
        let removed = StandbyFile {
            path: "config/cluster.yaml".to_owned(),
            removed: true,
            ..StandbyFile::default()
        };
        copy.take_file(&removed).unwrap();
        if is_complete {
            copy.sync().unwrap();
        }
        drop(copy);
        let done = promote(&standby, &PromotionRequest::default(), None)
            .await
            .unwrap();
        assert_eq!(done, Promoted::Done(2));
        let file = standby.config.config_dir.join("cluster.yaml");
        // Until its removal is complete, the previous state counts.
        assert_eq!(file.exists(), !is_complete);
        store.close().await;
    }
}

#[tokio::test]
async fn a_file_that_is_removed_and_comes_again_stays() {
    let (_master, store, standby) = acknowledged().await;
    let root = directory(&standby.config);
    let mut copy = Copy::open(&root).unwrap().unwrap();
    let mut file = StandbyFile {
        path: "config/cluster.yaml".to_owned(),
        removed: true,
        ..StandbyFile::default()
    };
    copy.take_file(&file).unwrap();
    file.removed = false;
    file.data = b"again".to_vec();
    copy.take_file(&file).unwrap();
    copy.sync().unwrap();
    let copy = Copy::open(&root).unwrap().unwrap();
    assert!(copy.damage().is_empty(), "{:?}", copy.damage());
    assert_eq!(
        fs::read(in_copy(&standby, "files/config/cluster.yaml")).unwrap(),
        b"again"
    );
    store.close().await;
}

#[tokio::test]
async fn a_copy_of_an_earlier_version_is_continued() {
    let (master, store, standby) = acknowledged().await;
    let files: std::collections::BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(&fs::read(in_copy(&standby, "files.json")).unwrap()).unwrap();
    let modes: std::collections::BTreeMap<&String, &serde_json::Value> = files
        .iter()
        .map(|(place, kept)| (place, &kept["mode"]))
        .collect();
    let modes = serde_json::to_vec(&modes).unwrap();
    fs::write(in_copy(&standby, "modes.json"), modes).unwrap();
    fs::remove_file(in_copy(&standby, "files.json")).unwrap();
    fs::remove_file(in_copy(&standby, "acknowledged.json")).unwrap();
    let receiver = standby.receiver();
    assert!(receiver.hello().position.is_some());
    let mut link = link(&master, &store, receiver, PATIENT, None);
    assert!(link.following().await);
    write(&store, ROWS + 1, 10).await;
    link.cut().await;
    assert!(in_copy(&standby, "acknowledged.json").exists());
    let done = promote(&standby, &forced(), None).await.unwrap();
    assert_eq!(done, Promoted::Done(2));
    store.close().await;
}
