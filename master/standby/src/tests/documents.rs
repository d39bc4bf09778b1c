//! The files beside the store: a change is on the standby before the next commit is answered.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;

use halite_core::ca::files;
use halite_proto::v1::standby_record::Body;
use tokio::sync::Semaphore;

use super::*;

/// Prevents any inspection of all files during a test.
const SELDOM: Times = Times {
    files: Duration::from_secs(3600),
    ..PATIENT
};

/// The path of a file in the first copy of a standby.
fn copied(standby: &MasterHost, place: &str) -> PathBuf {
    let root = directory(&standby.config).join("copy-1/files");
    root.join(place)
}

#[tokio::test]
async fn a_document_is_on_the_standby_when_the_commit_behind_it_is_answered() {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    let nodes = master.config.config_dir.join("nodes");
    let store = master.store().await;
    let mut link = link(&master, &store, standby.receiver(), SELDOM, None);
    assert!(link.following().await);
    // The first document of a node also creates the directory.
    files::directory(&nodes, 0o755).unwrap();
    let copy = copied(&standby, "config/nodes/cp-2.yaml");
    for (number, text) in (1..).zip(["declared", "joined", "promoted"]) {
        files::write(&nodes.join("cp-2.yaml"), text, 0o600).unwrap();
        write(&store, number, 10).await;
        assert_eq!(std::fs::read_to_string(&copy).unwrap(), text);
    }
    files::remove(&nodes.join("cp-2.yaml")).unwrap();
    write(&store, 9, 10).await;
    assert!(!copy.exists());
    link.cut().await;
}

#[tokio::test]
async fn a_document_with_a_second_name_is_on_the_standby_as_well() {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    let document = master.config.config_dir.join("cluster.yaml");
    let other = master.directory.path().join("elsewhere.yaml");
    std::fs::write(&other, "first").unwrap();
    std::os::unix::fs::symlink(&other, &document).unwrap();
    let store = master.store().await;
    let mut link = link(&master, &store, standby.receiver(), SELDOM, None);
    assert!(link.following().await);
    write(&store, 1, 10).await;
    // The kernel reports no change of the link.
    files::write(&other, "second", 0o600).unwrap();
    write(&store, 2, 10).await;
    let copy = copied(&standby, "config/cluster.yaml");
    assert_eq!(std::fs::read_to_string(copy).unwrap(), "second");
    link.cut().await;
}

#[tokio::test]
async fn commits_without_a_pause_do_not_keep_the_other_files_back() {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    let key = master.config.state_dir.join("sa.pub");
    std::fs::write(&key, "first").unwrap();
    let store = master.store().await;
    let (records, mut incoming) = mpsc::channel::<StandbyRecord>(4);
    let (stored, stored_receiver) = watch::channel(0);
    let line = Line {
        records,
        stored: stored_receiver,
    };
    let often = Times {
        files: Duration::from_millis(50),
        ..PATIENT
    };
    let feed = Feed::new(
        store.log(),
        master.config.clone(),
        line,
        often,
        Arc::default(),
    )
    .with_budget(endless());
    let (begun, following) = oneshot::channel();
    let (epoch, hello) = (super::epoch(&store), standby.receiver().hello());
    let feeding = tokio::spawn(async move {
        let begun = || {
            let _ = begun.send(());
        };
        feed.run(&epoch, &hello, begun).await.unwrap_err()
    });
    // A round takes so long that another commit already waits when it ends.
    let rounds = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&rounds);
    let taken = tokio::spawn(async move {
        while let Some(record) = incoming.recv().await {
            match record.body {
                Some(Body::File(file)) if file.data == b"second" => return,
                _ if record.sync => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    count.fetch_add(1, Ordering::SeqCst);
                    stored.send_replace(record.number);
                }
                _ => {}
            }
        }
        panic!("the stream has ended");
    });
    following.await.unwrap();
    // A permit for each writer that has written, and continues.
    let writing = Arc::new(Semaphore::new(0));
    let writers: Vec<JoinHandle<()>> = (0..3)
        .map(|number| {
            let (store, writing) = (Arc::clone(&store), Arc::clone(&writing));
            tokio::spawn(async move {
                write(&store, number, 10).await;
                writing.add_permits(1);
                loop {
                    write(&store, number, 10).await;
                }
            })
        })
        .collect();
    let all = tokio::time::timeout(Duration::from_secs(60), writing.acquire_many(3)).await;
    drop(all.unwrap().unwrap());
    files::write(&key, "second", 0o600).unwrap();
    let before = rounds.load(Ordering::SeqCst);
    let taken = tokio::time::timeout(Duration::from_secs(60), taken).await;
    // Otherwise the next pause would be a checkpoint, which stops the commits, after hundreds of
    // rounds.
    let rounds = rounds.load(Ordering::SeqCst) - before;
    for writer in writers {
        writer.abort();
    }
    feeding.abort();
    taken.unwrap().unwrap();
    assert!(rounds < 20, "{rounds} rounds without the file");
}
