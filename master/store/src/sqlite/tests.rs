//! Tests of failures that only a file can have.

use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;

use halite_errors::chain;
use halite_proto::ids::MinionId;
use halite_proto::role::Role;
use tempfile::TempDir;

use super::*;
use crate::records::{KeyState, MinionBundle, RowState, StoredAnswer};
use crate::samples::job_id;
use crate::samples::minion;
use crate::{JobRow, samples};

pub(super) use crate::samples::fresh;

/// Creates an empty store in the state of the version that had this number of migrations.
pub(super) async fn of_version(migrations: usize) -> (SqlitePool, TempDir) {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("store.db");
    create_private(&path).unwrap();
    let writer = connect(&path).await.unwrap();
    let migrator = migrator(&MIGRATIONS[..migrations]);
    migrator.run(&writer).await.unwrap();
    (writer, directory)
}

#[tokio::test]
async fn what_was_answered_is_there_after_a_restart() {
    let (store, directory) = fresh().await;
    store
        .create_job(
            &samples::job(1, None),
            &[JobRow::queued(&job_id(1), &minion("a"), None)],
        )
        .await
        .unwrap();
    store.mark_sent(&job_id(1), &minion("a"), 3).await.unwrap();
    // Not closed, like after a kill.
    drop(store);
    let store = Store::open(&directory.path().join("store.db"))
        .await
        .unwrap();
    assert_eq!(
        store
            .row(&job_id(1), &minion("a"))
            .await
            .unwrap()
            .unwrap()
            .state,
        RowState::Sent
    );
}

#[tokio::test]
async fn a_store_of_an_earlier_version_says_of_which_bundles_minions_have_something() {
    let (earlier, directory) = of_version(1).await;
    let path = directory.path().join("store.db");
    for (number, args, test, retcode) in [
        (1, r#"{"bundle": "A"}"#, 0, 0),
        (2, r#"{"bundle": "B"}"#, 0, 0),
        (3, r#"{"bundle": "C"}"#, 0, 1),
        (4, r#"{"bundle": "D"}"#, 1, 0),
        (5, "{}", 0, 0),
    ] {
        sqlx::query(
            "INSERT INTO jobs VALUES (?, 'state.highstate', ?, ?, 'root', '*', '[\"a\"]', 1, NULL, NULL, 'finished', 0, 9)",
        )
        .bind(job_id(number).as_str())
        .bind(args)
        .bind(test)
        .execute(&earlier)
        .await
        .unwrap();
        sqlx::query(
            "INSERT INTO job_rows VALUES (?, 'a', NULL, 'returned', 'null', ?, '', NULL, NULL, 9)",
        )
        .bind(job_id(number).as_str())
        .bind(retcode)
        .execute(&earlier)
        .await
        .unwrap();
    }
    earlier.close().await;
    let store = Store::open(&path).await.unwrap();
    let known = |bundle: &str, number: u64, good: bool| MinionBundle {
        minion: minion("a"),
        bundle: bundle.parse().unwrap(),
        job_id: job_id(number),
        highstate: good.then(|| job_id(number)),
    };
    assert_eq!(
        store.minion_bundles().await.unwrap(),
        [known("B", 2, true), known("C", 3, false)]
    );
    assert_eq!(
        store
            .job(&job_id(3))
            .await
            .unwrap()
            .unwrap()
            .bundle
            .as_deref(),
        Some("C")
    );
    assert_eq!(store.job(&job_id(5)).await.unwrap().unwrap().bundle, None);
}

#[tokio::test]
async fn operators_of_an_earlier_version_stay_administrators_and_keys_know_their_tokens() {
    let (earlier, directory) = of_version(3).await;
    let path = directory.path().join("store.db");
    for sql in [
        "INSERT INTO audit (time, who, method, what, outcome) VALUES \
         (7, 'operator:alice', 'Operator/Run', '', 'ok'), (6, 'operator:alice', 'Operator/Run', '', 'begins'), \
         (5, 'operator:root', 'Operator/Run', '', 'ok'), (4, 'minion:a', 'Minion/Sign', '', 'ok')",
        "INSERT INTO keys VALUES ('a', 'accepted', 'fp', 'CSR', NULL, NULL, '[]', '{}', 1, 2), \
         ('b', 'accepted', 'fp', 'CSR', NULL, NULL, '[]', '{}', 1, 2)",
        "INSERT INTO events (tag, time, data_json, last, retcode) VALUES \
         ('halite/key/a', 1, '{\"token\":\"old\"}', 0, 0), ('halite/key/a', 2, '{\"token\":\"new\"}', 0, 0), \
         ('halite/key/a', 3, '{\"act\":\"pending\"}', 0, 0), ('halite/key/b', 4, 'nonsense', 0, 0)",
    ] {
        sqlx::query(sql).execute(&earlier).await.unwrap();
    }
    earlier.close().await;
    let store = Store::open(&path).await.unwrap();
    let operators = store.operators().await.unwrap();
    let found: Vec<_> = operators
        .iter()
        .map(|operator| (operator.name.as_str(), operator.role, operator.created))
        .collect();
    assert_eq!(found, [("alice", Role::Admin, 6), ("root", Role::Admin, 0)]);
    assert!(operators.iter().all(|operator| operator.is_valid(i64::MAX)));
    let keys = store.keys().await.unwrap();
    assert_eq!(
        (keys[0].token.as_deref(), keys[1].token.as_deref()),
        (Some("new"), None)
    );
}

#[tokio::test]
async fn a_store_of_an_earlier_version_has_the_order_of_its_highstates() {
    let (earlier, directory) = of_version(2).await;
    let path = directory.path().join("store.db");
    let ordered = r#"{"order":[["a"],["b","c"]],"x":1}"#;
    for (number, function, args) in [
        (1, "state.highstate", ordered),
        (2, "state.highstate", "{}"),
        // Another function's argument of this name, and a value that no master wrote.
        (3, "cmd.run", r#"{"order":"first"}"#),
        (4, "state.highstate", "nonsense"),
    ] {
        sqlx::query(
            "INSERT INTO jobs VALUES (?, ?, ?, 0, 'root', '*', '[\"a\"]', 1, NULL, NULL, 'running', NULL, NULL, NULL)",
        )
        .bind(job_id(number).as_str())
        .bind(function)
        .bind(args)
        .execute(&earlier)
        .await
        .unwrap();
    }
    earlier.close().await;
    let store = Store::open(&path).await.unwrap();
    let found: Vec<(Vec<Vec<MinionId>>, String)> = store
        .open_jobs()
        .await
        .unwrap()
        .into_iter()
        .map(|job| (job.order, job.args_json))
        .collect();
    let groups = vec![vec![minion("a")], vec![minion("b"), minion("c")]];
    let expected = [
        (groups, r#"{"x":1}"#.to_owned()),
        (vec![], "{}".to_owned()),
        (vec![], r#"{"order":"first"}"#.to_owned()),
        (vec![], "nonsense".to_owned()),
    ];
    assert_eq!(found, expected);
}

#[tokio::test]
async fn an_id_that_no_master_wrote_is_named() {
    let (store, _directory) = fresh().await;
    store.create_job(&samples::job(1, None), &[]).await.unwrap();
    sqlx::query("UPDATE jobs SET jid = 'x/../y'")
        .execute(store.writer.pool())
        .await
        .unwrap();
    let error = halite_errors::chain(&store.jobs(1).await.unwrap_err());
    assert!(
        error.contains("x/../y") && error.contains("20 decimal digits"),
        "{error}"
    );
}

#[tokio::test]
async fn commits_are_on_disk_before_they_are_answered() {
    let (store, _directory) = fresh().await;
    assert_durable(store.writer.pool()).await.unwrap();
    sqlx::query("PRAGMA synchronous = NORMAL")
        .execute(store.writer.pool())
        .await
        .unwrap();
    let error = assert_durable(store.writer.pool()).await.unwrap_err();
    assert!(
        error
            .to_string()
            .contains("synchronous = 1, but 2 (FULL) is required"),
        "{error}"
    );
}

#[tokio::test]
async fn the_files_are_for_root_alone() {
    let (store, directory) = fresh().await;
    store.write_backup().await.unwrap();
    let revocation = samples::revocation("01");
    store.revoke(&revocation).await.unwrap();
    store
        .put_key(&samples::key("a", KeyState::Pending))
        .await
        .unwrap();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(
            entry.metadata().unwrap().permissions().mode() & 0o777,
            0o600,
            "{:?}",
            entry.path()
        );
        names.push(entry.file_name().into_string().unwrap());
    }
    names.sort();
    assert_eq!(
        names,
        [
            "store.db",
            "store.db-shm",
            "store.db-wal",
            "store.db.backup",
            "store.db.epoch",
            "store.db.revoked"
        ]
    );
}

#[tokio::test]
async fn damage_is_found_beside_the_work_and_the_copy_brings_the_store_back() {
    let (store, directory) = fresh().await;
    let path = directory.path().join("store.db");
    for id in 0..200 {
        store
            .put_key(&samples::key(&format!("m{id}"), KeyState::Accepted))
            .await
            .unwrap();
    }
    store.write_backup().await.unwrap();
    store.close().await;

    let mut bytes = std::fs::read(&path).unwrap();
    let sound = bytes.clone();
    // Remove the log first, as the advice says.
    let put = |content: &[u8]| {
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(files::beside(&path, suffix));
        }
        std::fs::write(&path, content).unwrap();
    };
    // Damage the pages with keys: a start reads others.
    let of_keys = |page: &&mut [u8]| page.windows(5).any(|text| text == b"fp-m1");
    for page in bytes.chunks_mut(4096).filter(of_keys) {
        page[..512].fill(0x5a);
    }
    put(&bytes);
    // However large a store is, its start does not read all of it; damage behind the first pages is
    // found while it already serves, and then the next start refuses it.
    let store = Store::open(&path).await.unwrap();
    let store = Arc::new(store);
    let found = keep_good(Arc::clone(&store)).await.to_string();
    store.close().await;
    let error = Store::open(&path).await.err().unwrap().to_string();
    for error in [&found, &error] {
        assert!(
            error.contains("is damaged") && error.contains("cp -p"),
            "{error}"
        );
    }
    assert!(
        error.contains(&format!("{}.backup", path.display())),
        "{error}"
    );

    put(b"this was a database once");
    let error = Store::open(&path).await.err().unwrap().to_string();
    assert!(error.contains("is damaged"), "{error}");

    put(&sound[..sound.len() / 2]);
    let error = Store::open(&path).await.err().unwrap().to_string();
    assert!(error.contains("is damaged"), "{error}");

    put(&std::fs::read(directory.path().join("store.db.backup")).unwrap());
    let store = Store::open(&path).await.unwrap();
    assert_eq!(store.keys().await.unwrap().len(), 200);
}

#[tokio::test]
async fn a_lost_store_is_not_replaced_by_an_empty_one_in_silence() {
    let (store, directory) = fresh().await;
    store.write_backup().await.unwrap();
    store.close().await;
    let path = directory.path().join("store.db");
    std::fs::remove_file(&path).unwrap();
    let error = Store::open(&path).await.err().unwrap().to_string();
    assert!(
        error.contains("is missing") && error.contains("cp -p"),
        "{error}"
    );
    std::fs::remove_file(directory.path().join("store.db.backup")).unwrap();
    Store::open(&path).await.unwrap();
}

#[tokio::test]
async fn a_failed_copy_keeps_the_one_before() {
    let (store, directory) = fresh().await;
    store.write_backup().await.unwrap();
    let good = directory.path().join("store.db.backup");
    let before = std::fs::read(&good).unwrap();
    std::fs::create_dir(directory.path().join("store.db.backup.new")).unwrap();
    store.write_backup().await.unwrap_err();
    assert_eq!(std::fs::read(&good).unwrap(), before);
    store.close().await;
    Store::open(&directory.path().join("store.db"))
        .await
        .unwrap();
    assert_eq!(
        std::fs::read(&good).unwrap(),
        before,
        "the master starts, with the copy that it has"
    );
}

#[tokio::test]
async fn a_copy_that_fails_does_not_hold_the_room_that_the_store_needs() {
    let (store, directory) = fresh().await;
    for id in 0..200 {
        store
            .put_key(&samples::key(&format!("m{id}"), KeyState::Accepted))
            .await
            .unwrap();
    }
    let good = directory.path().join("store.db.backup");
    std::fs::create_dir(&good).unwrap();
    store.write_backup().await.unwrap_err();
    assert!(!directory.path().join("store.db.backup.new").exists());
}

#[tokio::test]
async fn a_word_of_a_newer_version_is_named() {
    let (store, _directory) = fresh().await;
    store
        .put_key(&samples::key("a", KeyState::Pending))
        .await
        .unwrap();
    sqlx::query("UPDATE keys SET state = 'quarantined'")
        .execute(store.writer.pool())
        .await
        .unwrap();
    let error = chain(&store.key(&minion("a")).await.unwrap_err());
    assert!(error.contains("quarantined"), "{error}");
}

#[tokio::test]
async fn a_store_of_a_newer_program_is_refused_with_the_remedy() {
    let (store, directory) = fresh().await;
    let path = directory.path().join("store.db");
    store.record_unknown_migration().await;
    store.close().await;
    let opened = Store::open(&path).await.map(drop);
    for refused in [opened, check_migrations(&path).await] {
        let refused = refused.unwrap_err();
        assert!(
            matches!(refused, StoreError::Newer { last: 1000, .. }),
            "{refused:?}"
        );
        let text = refused.to_string();
        assert!(
            text.contains("store.db") && text.contains("install -m 0755"),
            "{text}"
        );
    }
}

#[tokio::test]
async fn reading_the_migrations_changes_neither_the_store_nor_its_log() {
    let (store, directory) = fresh().await;
    store
        .put_key(&samples::key("a", KeyState::Pending))
        .await
        .unwrap();
    // Copied while it is open, so that its changes are in the log.
    let copy = TempDir::new().unwrap();
    let files = ["store.db", "store.db-wal"];
    for file in files {
        std::fs::copy(directory.path().join(file), copy.path().join(file)).unwrap();
    }
    let content = || files.map(|file| std::fs::read(copy.path().join(file)).unwrap());
    let before = content();
    assert!(!before[1].is_empty());
    let path = copy.path().join("store.db");
    check_migrations(&path).await.unwrap();
    assert!(content() == before);
    assert!(!copy.path().join("store.db-shm").exists());
    // The whole store is in its file, as after a base.
    fold_log(&path).await.unwrap();
    let store = std::fs::read(&path).unwrap();
    check_migrations(&path).await.unwrap();
    assert!(std::fs::read(&path).unwrap() == store);
    assert_eq!(std::fs::read_dir(copy.path()).unwrap().count(), 1);
}

#[tokio::test]
async fn readers_cannot_write() {
    let (store, _directory) = fresh().await;
    assert!(
        sqlx::query("DELETE FROM keys")
            .execute(&store.reader)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn without_space_nothing_is_half_stored_and_with_space_writes_succeed() {
    let (store, _directory) = fresh().await;
    store
        .create_job(
            &samples::job(1, None),
            &[JobRow::queued(&job_id(1), &minion("a"), None)],
        )
        .await
        .unwrap();
    let limit = store.limit_pages(None).await;
    let large = "x".repeat(200_000);
    let rows = [
        JobRow::queued(&job_id(2), &minion("a"), None),
        JobRow::queued(&job_id(2), &minion("b"), Some(large.clone())),
    ];
    let error = store
        .create_job(&samples::job(2, None), &rows)
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Full(_)), "{error:?}");
    assert!(error.to_string().contains("Free space"), "{error}");
    assert_eq!(store.job(&job_id(2)).await.unwrap(), None);
    let answer = StoredAnswer {
        retcode: 0,
        return_json: large,
        error: String::new(),
        when: 1,
    };
    store
        .record_return(&job_id(1), &minion("a"), &answer)
        .await
        .unwrap_err();
    assert_eq!(
        store
            .row(&job_id(1), &minion("a"))
            .await
            .unwrap()
            .unwrap()
            .state,
        RowState::Queued
    );

    store.limit_pages(Some(limit)).await;
    assert!(
        store
            .record_return(&job_id(1), &minion("a"), &answer)
            .await
            .unwrap()
    );
    store
        .create_job(&samples::job(2, None), &rows)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_copy_is_made_while_the_writer_is_busy() {
    let (store, directory) = fresh().await;
    let writer = store.hold_writer().await;
    store.write_backup().await.unwrap();
    drop(writer);
    assert!(directory.path().join("store.db.backup").exists());
}
