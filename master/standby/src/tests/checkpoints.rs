//! Checkpoints of the master's store while standbys follow: a partial one, and one whose caller is
//! gone.

use sqlx::{Connection as _, SqliteConnection};

use super::*;

/// Opens another connection to the store's file.
async fn connection(host: &MasterHost) -> SqliteConnection {
    let path = host.config.state_dir.join("store.db");
    SqliteConnection::connect(&format!("sqlite://{}", path.display()))
        .await
        .unwrap()
}

async fn execute(connection: &mut SqliteConnection, sql: &'static str) {
    sqlx::query(sql).execute(connection).await.unwrap();
}

#[tokio::test]
async fn a_reader_over_a_checkpoint_opens_no_gap_in_a_copy() {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    let store = master.store().await;
    write(&store, 1, 10).await;
    let mut reader = connection(&master).await;
    execute(&mut reader, "BEGIN").await;
    execute(&mut reader, "SELECT count(*) FROM audit").await;
    let mut first = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(first.following().await);
    for number in 2..=16 {
        write(&store, number, 3000).await;
    }
    let receiver = first.cut().await;
    // The reader needs the commit that it sees: the log is only partly written into the file.
    store.checkpoint().await.unwrap();
    for number in 17..=20 {
        write(&store, number, 3000).await;
    }
    execute(&mut reader, "COMMIT").await;
    // The master has no record of this checkpoint, like of one whose caller is gone.
    execute(&mut reader, "PRAGMA wal_checkpoint(PASSIVE)").await;
    for number in 21..=27 {
        write(&store, number, 3000).await;
    }
    let mut second = link(&master, &store, receiver, PATIENT, None);
    assert!(second.following().await);
    write(&store, 28, 10).await;
    second.cut().await;
    let (_scratch, copy) = taken_over(&standby).await;
    let expected: Vec<i64> = (1..=28).collect();
    assert_eq!(numbers(&copy).await, expected);
}

#[tokio::test]
async fn a_partial_checkpoint_costs_a_standby_that_follows_no_base() {
    let (master, standby) = (MasterHost::new(), MasterHost::new());
    let store = master.store().await;
    let mut reader = connection(&master).await;
    let mut link = link(&master, &store, standby.receiver(), PATIENT, None);
    assert!(link.following().await);
    for number in 1..=40 {
        if number % 10 == 1 {
            execute(&mut reader, "BEGIN").await;
            execute(&mut reader, "SELECT count(*) FROM audit").await;
        }
        write(&store, number, 3000).await;
        if number % 5 == 0 {
            store.checkpoint().await.unwrap();
        }
        if number % 10 == 7 {
            execute(&mut reader, "COMMIT").await;
        }
    }
    let receiver = link.cut().await;
    assert!(
        receiver
            .copy()
            .unwrap()
            .store()
            .to_string_lossy()
            .contains("copy-1"),
        "it has followed over all checkpoints"
    );
    let (_scratch, copy) = taken_over(&standby).await;
    let expected: Vec<i64> = (1..=40).collect();
    assert_eq!(numbers(&copy).await, expected);
}

#[tokio::test]
async fn a_checkpoint_is_noted_although_its_caller_is_gone() {
    let master = MasterHost::new();
    let store = master.store().await;
    let log = store.log();
    let mut follower = log.join();
    let caller = tokio::spawn({
        let store = Arc::clone(&store);
        async move { store.checkpoint().await }
    });
    // The checkpoint has the writer, and waits for the follower.
    let round = follower.asked().await;
    let end = log.end().unwrap().unwrap();
    caller.abort();
    assert!(caller.await.unwrap_err().is_cancelled());
    follower.done(round);
    drop(follower);
    // The writer is free once the checkpoint has ended.
    write(&store, 1, 10).await;
    let next = log.end().unwrap().unwrap();
    assert_ne!(next.position.salt, end.position.salt, "the next log");
    assert_eq!(log.known(&end.position, &next).unwrap(), Some(0));
}
