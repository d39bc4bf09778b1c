//! A store that goes back to an earlier state.

use halite_proto::role::Role;
use sqlx::Connection as _;
use tempfile::TempDir;

use super::tests::fresh;
use super::{Store, raise_epoch};
use crate::records::{KeyState, Operator, RowState, StoredAnswer, StoredKey};
use crate::samples::job_id;
use crate::samples::minion;
use crate::{JobRow, StoreError, samples};

/// Replaces the store with the good copy, as its advice says.
async fn go_back(store: Store, directory: &TempDir) -> Store {
    store.close().await;
    let path = directory.path().join("store.db");
    std::fs::copy(directory.path().join("store.db.backup"), &path).unwrap();
    Store::open(&path).await.unwrap()
}

#[tokio::test]
async fn a_store_that_goes_back_raises_the_epoch_and_does_nothing_again() {
    let (store, directory) = fresh().await;
    let row = |minion: &str| JobRow::queued(&job_id(1), &crate::samples::minion(minion), None);
    store
        .create_job(&samples::job(1, None), &[row("a"), row("b"), row("c")])
        .await
        .unwrap();
    store.mark_sent(&job_id(1), &minion("b"), 3).await.unwrap();
    let answer = StoredAnswer {
        retcode: 0,
        return_json: "1".into(),
        error: String::new(),
        when: 4,
    };
    store
        .record_return(&job_id(1), &minion("c"), &answer)
        .await
        .unwrap();
    store
        .create_run(&samples::run(2, None), &[samples::step(2, 0)])
        .await
        .unwrap();
    store.put_token(&samples::token("t", 1)).await.unwrap();
    assert_eq!(store.epoch(), 1);
    store.write_backup().await.unwrap();
    store.close().await;
    // A start, also after a kill, does not count as going back.
    let path = directory.path().join("store.db");
    let store = Store::open(&path).await.unwrap();
    assert_eq!(
        (store.epoch(), store.open_jobs().await.unwrap().len()),
        (1, 1)
    );

    let store = go_back(store, &directory).await;
    assert_eq!(store.epoch(), 2);
    assert!(store.open_jobs().await.unwrap().is_empty());
    assert!(store.open_runs().await.unwrap().is_empty());
    assert!(store.tokens().await.unwrap().is_empty());
    let rows = store.parts(&job_id(1)).await.unwrap();
    let states: Vec<RowState> = rows.iter().map(|row| row.state).collect();
    assert_eq!(states, [RowState::Lost, RowState::Lost, RowState::Returned]);
    assert!(rows[0].error.contains("went back to an earlier state"));
    // A true return still counts.
    assert!(
        store
            .record_return(&job_id(1), &minion("b"), &answer)
            .await
            .unwrap()
    );
    // The same copy again, and a store without the mark and with lower numbers.
    let store = go_back(store, &directory).await;
    assert_eq!(store.epoch(), 3);
    store.close().await;
    let earlier = std::fs::read(&path).unwrap();
    Store::open(&path).await.unwrap().close().await;
    std::fs::write(&path, earlier).unwrap();
    assert_eq!(Store::open(&path).await.unwrap().epoch(), 4);
}

#[tokio::test]
async fn a_record_of_the_epoch_that_cannot_be_read_refuses_the_start() {
    let (store, directory) = fresh().await;
    store.close().await;
    let path = directory.path().join("store.db");
    let record = directory.path().join("store.db.epoch");
    let whole = std::fs::read(&record).unwrap();
    for damaged in ["", "1", "one 1", "1 one", "1 2 3"] {
        std::fs::write(&record, damaged).unwrap();
        let refused = Store::open(&path).await.map(drop).unwrap_err();
        assert!(matches!(refused, StoreError::Record(_)), "{refused:?}");
        assert!(refused.to_string().contains("remove the file"), "{refused}");
    }
    std::fs::write(&record, whole).unwrap();
    Store::open(&path).await.unwrap().close().await;
    std::fs::remove_file(&record).unwrap();
    assert_eq!(Store::open(&path).await.unwrap().epoch(), 1);
}

#[tokio::test]
async fn a_store_that_goes_back_lets_no_revoked_key_in() {
    let (store, directory) = fresh().await;
    let of = |id: &str, state| StoredKey {
        fingerprint: format!("of-{id}"),
        ..samples::key(id, state)
    };
    for id in ["rejected", "deleted", "replaced", "readmitted", "good"] {
        store.put_key(&of(id, KeyState::Accepted)).await.unwrap();
    }
    let mut operator = Operator {
        name: "eve".to_owned(),
        role: Role::Admin,
        fingerprint: Some("of-eve".to_owned()),
        created: 1,
        creator: "root".to_owned(),
        expires: None,
        revoked: None,
    };
    store.put_operator(&operator).await.unwrap();
    store.write_backup().await.unwrap();
    store
        .put_key(&of("rejected", KeyState::Rejected))
        .await
        .unwrap();
    assert!(store.delete_key(&minion("deleted")).await.unwrap());
    let other = StoredKey {
        fingerprint: "another".to_owned(),
        ..of("replaced", KeyState::Accepted)
    };
    store.put_key(&other).await.unwrap();
    for state in [KeyState::Rejected, KeyState::Accepted] {
        store.put_key(&of("readmitted", state)).await.unwrap();
    }
    store.revoke(&samples::revocation("01")).await.unwrap();
    operator.revoked = Some(5);
    store.put_operator(&operator).await.unwrap();

    let store = go_back(store, &directory).await;
    let keys = store.keys().await.unwrap();
    let accepted = keys.iter().filter(|key| key.state == KeyState::Accepted);
    let accepted: Vec<&str> = accepted.map(|key| key.id.as_str()).collect();
    assert_eq!(accepted, ["good", "readmitted"]);
    let revocations = store.revocations().await.unwrap();
    assert_eq!(revocations[0].serial, "01");
    assert!(store.operators().await.unwrap()[0].revoked.is_some());
    // The revocation counts as made now: an existing key is not newer, and the next one is.
    let good = minion("good");
    assert!(!store.is_key_newer(&good, "eve").await.unwrap());
    store.delete_key(&good).await.unwrap();
    store
        .put_key(&of("good", KeyState::Accepted))
        .await
        .unwrap();
    assert!(store.is_key_newer(&good, "eve").await.unwrap());
}

#[tokio::test]
async fn a_record_after_an_unfinished_one_counts() {
    let (store, directory) = fresh().await;
    let accepted = samples::key("worker-1", KeyState::Accepted);
    store.put_key(&accepted).await.unwrap();
    store.write_backup().await.unwrap();
    // A power cut has interrupted the write.
    std::fs::write(directory.path().join("store.db.revoked"), "certificate 0").unwrap();
    let rejected = samples::key("worker-1", KeyState::Rejected);
    store.put_key(&rejected).await.unwrap();
    let store = go_back(store, &directory).await;
    let key = store.key(&minion("worker-1")).await.unwrap().unwrap();
    assert_eq!(key.state, KeyState::Rejected);
}

#[tokio::test]
async fn a_store_that_goes_back_makes_no_former_control_plane_an_administrator() {
    let (store, directory) = fresh().await;
    let root = |expires| Operator {
        name: "root@cp-2".to_owned(),
        role: Role::Admin,
        fingerprint: Some("of-root".to_owned()),
        created: 1,
        creator: "cp-2".to_owned(),
        expires,
        revoked: None,
    };
    store.put_operator(&root(None)).await.unwrap();
    store.write_backup().await.unwrap();
    store.put_operator(&root(Some(5))).await.unwrap();
    let store = go_back(store, &directory).await;
    let found = store.operators().await.unwrap().pop().unwrap();
    assert!(!found.is_valid(6), "{found:?}");
    // The host may get a control plane again.
    assert_eq!(found.revoked, None);
    store.put_operator(&root(None)).await.unwrap();
    store.close().await;
    let store = Store::open(&directory.path().join("store.db"))
        .await
        .unwrap();
    assert_eq!(store.operators().await.unwrap().pop(), Some(root(None)));
}

/// Turns a closed store into one of an earlier version without a holder.
async fn make_earlier(path: &std::path::Path) {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path);
    let mut store = sqlx::SqliteConnection::connect_with(&options)
        .await
        .unwrap();
    for change in [
        "ALTER TABLE lineage DROP COLUMN holder",
        "ALTER TABLE lineage DROP COLUMN holder_epoch",
        "DELETE FROM _sqlx_migrations WHERE version = 11",
    ] {
        sqlx::query(change).execute(&mut store).await.unwrap();
    }
    store.close().await.unwrap();
}

#[tokio::test]
async fn the_holder_changes_with_the_epoch_and_only_with_it() {
    let (store, directory) = fresh().await;
    let path = directory.path().join("store.db");
    let first = store.holder().to_owned();
    store.write_backup().await.unwrap();
    store.close().await;
    let store = Store::open(&path).await.unwrap();
    assert_eq!(store.holder(), first, "a restart");
    let store = go_back(store, &directory).await;
    assert_ne!(store.holder(), first, "the store went back");
    let second = store.holder().to_owned();
    store.close().await;
    // A promotion that is interrupted by a start and repeated.
    let mut held = Vec::new();
    for _ in 0..2 {
        raise_epoch(&path, 7).await.unwrap();
        let store = Store::open(&path).await.unwrap();
        assert_eq!(store.epoch(), 7);
        held.push(store.holder().to_owned());
        store.close().await;
    }
    assert_ne!(held[0], second);
    assert_eq!(held[0], held[1]);
}

#[tokio::test]
async fn a_copy_of_an_earlier_version_is_promoted() {
    let (store, directory) = fresh().await;
    let path = directory.path().join("store.db");
    store.close().await;
    make_earlier(&path).await;
    raise_epoch(&path, 7).await.unwrap();
    let store = Store::open(&path).await.unwrap();
    assert_eq!(store.epoch(), 7);
    assert!(!store.holder().is_empty());
}
