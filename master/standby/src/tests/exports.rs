//! A copy that is exported while the standby continues it.

use super::*;
use crate::copy::Copy;
use crate::export::export;

/// Exports the store and returns the numbers of its lines.
async fn exported(standby: &MasterHost) -> Vec<i64> {
    let scratch = TempDir::new().unwrap();
    let taken = export(&directory(&standby.config), scratch.path()).await;
    let taken = taken.unwrap();
    // It is marked as a copy: a master that starts with it raises the epoch.
    let numbers = numbers(&taken.store).await;
    let store = Store::open(&taken.store).await.unwrap();
    assert!(store.epoch() > taken.epoch);
    store.close().await;
    numbers
}

/// Logs repeatedly end and are written into the store's file; each time all previously answered
/// lines are present, without gaps.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_copy_is_whole_while_the_master_writes() {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    std::fs::write(master.config.config_dir.join("cluster.yaml"), "first").unwrap();
    let store = master.store().await;
    accept(&store, "w").await;
    let mut first = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(first.following().await);
    let answered = Arc::new(std::sync::atomic::AtomicI64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let writer = tokio::spawn({
        let (store, answered, stop) = (Arc::clone(&store), answered.clone(), stop.clone());
        async move {
            let mut number = 0;
            while !stop.load(Ordering::SeqCst) {
                number += 1;
                // Large enough for many logs.
                write(&store, number, 200_000).await;
                answered.store(number, Ordering::SeqCst);
            }
        }
    });
    for _ in 0..5 {
        let before = answered.load(Ordering::SeqCst);
        let found = exported(&standby).await;
        let last = i64::try_from(found.len()).unwrap();
        assert!(last >= before, "{last} of {before}");
        assert_eq!(found, (1..=last).collect::<Vec<_>>());
    }
    stop.store(true, Ordering::SeqCst);
    writer.await.unwrap();
    // The standby lost nothing by the export.
    first.cut().await;
    let (_scratch, path) = taken_over(&standby).await;
    let last = answered.load(Ordering::SeqCst);
    assert_eq!(numbers(&path).await, (1..=last).collect::<Vec<_>>());
}

#[tokio::test]
async fn files_have_the_masters_modes_and_no_copy_is_an_error() {
    use std::os::unix::fs::PermissionsExt as _;
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    let scratch = TempDir::new().unwrap();
    let root = directory(&standby.config);
    let error = export(&root, scratch.path()).await.unwrap_err();
    assert!(error.to_string().contains("no whole copy"), "{error}");
    let document = master.config.config_dir.join("cluster.yaml");
    std::fs::write(&document, "first").unwrap();
    std::fs::set_permissions(&document, std::fs::Permissions::from_mode(0o640)).unwrap();
    let store = master.store().await;
    let mut first = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(first.following().await);
    std::fs::write(scratch.path().join("left"), "of a killed process").unwrap();
    let taken = export(&root, scratch.path()).await.unwrap();
    assert!(!scratch.path().join("left").exists());
    let (place, path) = &taken.files[0];
    assert_eq!(place, "config/cluster.yaml");
    assert_eq!(std::fs::read_to_string(path).unwrap(), "first");
    let mode = std::fs::metadata(path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    // A copy that a promotion has started to change does not count.
    first.cut().await;
    Copy::open(&root).unwrap().unwrap().touch().unwrap();
    assert!(export(&root, scratch.path()).await.is_err());
}
