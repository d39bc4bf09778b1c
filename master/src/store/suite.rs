//! What every implementation of [`Store`] must do. Each function gets an empty store.

use super::*;

pub(super) fn key(id: &str, state: KeyState) -> Key {
    Key {
        id: id.to_owned(),
        state,
        fingerprint: format!("fp-{id}"),
        csr_pem: "CSR".to_owned(),
        serial: (state == KeyState::Accepted).then(|| "0a".to_owned()),
        certificate_pem: None,
        roles: vec!["worker".to_owned(), "etcd".to_owned()],
        grains_json: "{}".to_owned(),
        created: 1,
        changed: 2,
    }
}

fn token(id: &str, uses_left: u32) -> Token {
    Token {
        id: id.to_owned(),
        secret_sha256: "hash".to_owned(),
        expires: 1000,
        uses_left,
        roles: vec![],
        bound_id: None,
        created: 1,
        operator: "root".to_owned(),
    }
}

pub(super) fn job(jid: &str, request_id: Option<&str>) -> Job {
    Job {
        jid: jid.to_owned(),
        function: "state.apply".to_owned(),
        args_json: "{}".to_owned(),
        test: true,
        operator: "root".to_owned(),
        target: "*".to_owned(),
        minions: vec!["a".to_owned(), "b".to_owned()],
        created: 10,
        deadline: Some(99),
        request_id: request_id.map(str::to_owned),
        status: JobStatus::Running,
        retcode: None,
        finished: None,
        bundle: None,
    }
}

fn run(id: &str, request_id: Option<&str>) -> Run {
    Run {
        id: id.to_owned(),
        sls: "halite.orchestrate.bootstrap".to_owned(),
        pillar_json: "{}".to_owned(),
        test: false,
        operator: "root".to_owned(),
        request_id: request_id.map(str::to_owned),
        low_json: "{}".to_owned(),
        status: RunStatus::Running,
        current: 0,
        created: 5,
        changed: 5,
    }
}

fn step(run: &str, index: u32) -> Step {
    Step {
        run: run.to_owned(),
        index,
        name: format!("step {index}"),
        status: StepStatus::Waiting,
        detail_json: "null".to_owned(),
        started: None,
        ended: None,
    }
}

fn answer(retcode: i32) -> Answer {
    Answer {
        retcode,
        return_json: "{\"a\":1}".to_owned(),
        error: String::new(),
        when: 50,
    }
}

pub(super) async fn keys_are_kept_replaced_and_deleted(store: &dyn Store) {
    assert_eq!(store.key("a").await.unwrap(), None);
    store.put_key(&key("b", KeyState::Pending)).await.unwrap();
    store.put_key(&key("a", KeyState::Accepted)).await.unwrap();
    assert_eq!(
        store.keys().await.unwrap(),
        [key("a", KeyState::Accepted), key("b", KeyState::Pending)]
    );
    store.put_key(&key("b", KeyState::Rejected)).await.unwrap();
    assert_eq!(
        store.key("b").await.unwrap(),
        Some(key("b", KeyState::Rejected))
    );
    assert!(store.delete_key("b").await.unwrap());
    assert!(!store.delete_key("b").await.unwrap());
    assert_eq!(store.keys().await.unwrap().len(), 1);
}

pub(super) async fn a_token_is_taken_together_with_the_key_or_not_at_all(store: &dyn Store) {
    store.put_token(&token("t", 2)).await.unwrap();
    assert!(
        store
            .put_key_with_token(&key("a", KeyState::Accepted), "t", 999)
            .await
            .unwrap()
    );
    assert_eq!(store.token("t").await.unwrap().unwrap().uses_left, 1);
    // At its end it is no longer good.
    assert!(
        !store
            .put_key_with_token(&key("b", KeyState::Accepted), "t", 1000)
            .await
            .unwrap()
    );
    assert!(
        !store
            .put_key_with_token(&key("b", KeyState::Accepted), "none", 0)
            .await
            .unwrap()
    );
    assert!(
        store
            .put_key_with_token(&key("b", KeyState::Accepted), "t", 0)
            .await
            .unwrap()
    );
    assert!(
        !store
            .put_key_with_token(&key("c", KeyState::Accepted), "t", 0)
            .await
            .unwrap()
    );
    assert_eq!(store.key("c").await.unwrap(), None);
    assert_eq!(store.token("t").await.unwrap().unwrap().uses_left, 0);
    assert_eq!(store.tokens().await.unwrap().len(), 1);
    assert!(store.delete_token("t").await.unwrap());
    assert!(!store.delete_token("t").await.unwrap());
}

pub(super) async fn certificates_and_revocations_are_recorded(store: &dyn Store) {
    let certificate = |serial: &str, created| Certificate {
        serial: serial.to_owned(),
        ca: "kubernetes".to_owned(),
        subject: "CN=x".to_owned(),
        owner: "a".to_owned(),
        job: "j".to_owned(),
        tag: "t".to_owned(),
        created,
        not_after: 100,
        pem: "PEM".to_owned(),
    };
    for (serial, created) in [("01", 1), ("02", 2), ("03", 3)] {
        store
            .put_certificate(&certificate(serial, created))
            .await
            .unwrap();
    }
    assert_eq!(
        store.certificates(2).await.unwrap(),
        [certificate("03", 3), certificate("02", 2)]
    );
    let revocation = |reason: &str| Revocation {
        serial: "01".to_owned(),
        owner: "a".to_owned(),
        when: 7,
        reason: reason.to_owned(),
    };
    store.revoke(&revocation("first")).await.unwrap();
    store.revoke(&revocation("again")).await.unwrap();
    assert_eq!(store.revocations().await.unwrap(), [revocation("first")]);
}

pub(super) async fn a_repeated_request_finds_its_job(store: &dyn Store) {
    let rows = [
        JobRow::queued("1", "a", Some("{}".to_owned())),
        JobRow::queued("1", "b", None),
    ];
    assert_eq!(
        store.create_job(&job("1", Some("r")), &rows).await.unwrap(),
        Created::New
    );
    let again = store
        .create_job(&job("2", Some("r")), &[JobRow::queued("2", "a", None)])
        .await
        .unwrap();
    assert_eq!(again, Created::Existing(job("1", Some("r"))));
    assert_eq!(store.job("2").await.unwrap(), None);
    assert_eq!(store.rows("1").await.unwrap(), rows);
    // Without an id every request is new.
    for jid in ["3", "4"] {
        assert_eq!(
            store.create_job(&job(jid, None), &[]).await.unwrap(),
            Created::New
        );
    }
    let listed: Vec<String> = store
        .jobs(2)
        .await
        .unwrap()
        .into_iter()
        .map(|job| job.jid)
        .collect();
    assert_eq!(listed, ["4", "3"]);
}

pub(super) async fn a_job_that_cannot_be_stored_whole_is_not_stored(store: &dyn Store) {
    let twice = [
        JobRow::queued("1", "a", None),
        JobRow::queued("1", "a", None),
    ];
    store
        .create_job(&job("1", Some("r")), &twice)
        .await
        .unwrap_err();
    assert_eq!(store.job("1").await.unwrap(), None);
    assert_eq!(
        store
            .create_job(&job("1", Some("r")), &twice[..1])
            .await
            .unwrap(),
        Created::New
    );
}

pub(super) async fn a_row_only_moves_forward(store: &dyn Store) {
    let rows = [
        JobRow::queued("1", "a", None),
        JobRow::queued("1", "b", None),
        JobRow::queued("1", "c", None),
    ];
    store.create_job(&job("1", None), &rows).await.unwrap();
    assert!(store.mark_sent("1", "a", 20).await.unwrap());
    assert!(!store.mark_sent("1", "a", 21).await.unwrap());
    assert!(store.mark_started("1", "a", 30).await.unwrap());
    assert!(!store.mark_started("1", "a", 31).await.unwrap());
    assert!(!store.mark_sent("1", "a", 32).await.unwrap());
    assert!(store.record_return("1", "a", &answer(0)).await.unwrap());
    assert!(
        !store.record_return("1", "a", &answer(1)).await.unwrap(),
        "a repeated return changes nothing"
    );
    assert!(!store.mark_lost("1", "a", "late", 60).await.unwrap());
    let row = store.row("1", "a").await.unwrap().unwrap();
    assert_eq!(
        (row.state, row.retcode, row.sent, row.started),
        (RowState::Returned, Some(0), Some(20), Some(30))
    );
    assert_eq!(
        (row.return_json.as_deref(), row.ended),
        (Some("{\"a\":1}"), Some(50))
    );
    // Started without a record that it was sent; expired; answered all the same.
    assert!(store.mark_started("1", "b", 30).await.unwrap());
    assert!(store.mark_lost("1", "b", "no answer", 60).await.unwrap());
    assert_eq!(
        store.row("1", "b").await.unwrap().unwrap().error,
        "no answer"
    );
    assert!(store.record_return("1", "b", &answer(2)).await.unwrap());
    assert_eq!(store.row("1", "b").await.unwrap().unwrap().retcode, Some(2));
    assert!(
        !store
            .record_return("1", "unknown", &answer(0))
            .await
            .unwrap()
    );
    assert!(!store.record_return("9", "a", &answer(0)).await.unwrap());
}

pub(super) async fn open_jobs_and_rows_are_found_after_a_restart(store: &dyn Store) {
    for jid in ["1", "2"] {
        store
            .create_job(
                &job(jid, None),
                &[
                    JobRow::queued(jid, "a", None),
                    JobRow::queued(jid, "b", None),
                ],
            )
            .await
            .unwrap();
    }
    store.record_return("1", "a", &answer(0)).await.unwrap();
    let open: Vec<String> = store
        .open_rows("a")
        .await
        .unwrap()
        .into_iter()
        .map(|row| row.jid)
        .collect();
    assert_eq!(open, ["2"]);
    assert_eq!(store.open_rows("b").await.unwrap().len(), 2);
    assert_eq!(store.open_jobs().await.unwrap().len(), 2);
    store.finish_job("1", 1, 70).await.unwrap();
    let finished = store.job("1").await.unwrap().unwrap();
    assert_eq!(
        (finished.status, finished.retcode, finished.finished),
        (JobStatus::Finished, Some(1), Some(70))
    );
    assert_eq!(store.open_jobs().await.unwrap(), [job("2", None)]);
}

pub(super) async fn the_last_return_finishes_its_job(store: &dyn Store) {
    for jid in ["1", "2"] {
        let rows = [
            JobRow::queued(jid, "a", None),
            JobRow::queued(jid, "b", None),
        ];
        store.create_job(&job(jid, None), &rows).await.unwrap();
        assert!(
            store
                .record_last_return(jid, "a", &answer(0))
                .await
                .unwrap()
        );
        assert_eq!(
            store.job(jid).await.unwrap(),
            Some(job(jid, None)),
            "b has not answered"
        );
    }
    assert!(
        store
            .record_last_return("1", "b", &answer(0))
            .await
            .unwrap()
    );
    assert!(
        !store
            .record_last_return("1", "b", &answer(3))
            .await
            .unwrap(),
        "a repeated return"
    );
    assert!(
        store
            .record_last_return("2", "b", &answer(3))
            .await
            .unwrap()
    );
    for (jid, retcode) in [("1", 0), ("2", 1)] {
        let finished = Job {
            status: JobStatus::Finished,
            retcode: Some(retcode),
            finished: Some(50),
            ..job(jid, None)
        };
        assert_eq!(store.job(jid).await.unwrap(), Some(finished));
        assert_eq!(store.rows(jid).await.unwrap().len(), 2);
    }
    assert!(
        !store
            .record_last_return("9", "a", &answer(0))
            .await
            .unwrap()
    );
}

pub(super) async fn runs_and_steps_are_kept(store: &dyn Store) {
    let steps = [step("r1", 0), step("r1", 1)];
    assert_eq!(
        store
            .create_run(&run("r1", Some("q")), &steps)
            .await
            .unwrap(),
        Created::New
    );
    let again = store.create_run(&run("r2", Some("q")), &[]).await.unwrap();
    assert_eq!(again, Created::Existing(run("r1", Some("q"))));
    assert_eq!(store.steps("r1").await.unwrap(), steps);
    let done = Step {
        status: StepStatus::Succeeded,
        detail_json: "{\"job\":\"1\"}".to_owned(),
        started: Some(1),
        ended: Some(2),
        ..step("r1", 0)
    };
    store.put_step(&done).await.unwrap();
    assert_eq!(store.steps("r1").await.unwrap(), [done, step("r1", 1)]);
    store
        .update_run("r1", RunStatus::Running, 1, 8)
        .await
        .unwrap();
    let open = store.open_runs().await.unwrap();
    assert_eq!(
        open,
        [Run {
            current: 1,
            changed: 8,
            ..run("r1", Some("q"))
        }]
    );
    store
        .update_run("r1", RunStatus::Failed, 1, 9)
        .await
        .unwrap();
    assert!(store.open_runs().await.unwrap().is_empty());
    assert_eq!(
        store.run("r1").await.unwrap().unwrap().status,
        RunStatus::Failed
    );
    store.create_run(&run("r3", None), &[]).await.unwrap();
    let listed: Vec<String> = store
        .runs(9)
        .await
        .unwrap()
        .into_iter()
        .map(|run| run.id)
        .collect();
    assert_eq!(listed, ["r3", "r1"]);
}

pub(super) async fn old_jobs_go_and_what_is_open_stays(store: &dyn Store) {
    store.put_key(&key("a", KeyState::Accepted)).await.unwrap();
    let made = async |jid: &str, operator: &str, minion: &str| {
        let job = Job {
            operator: operator.to_owned(),
            ..job(jid, None)
        };
        store
            .create_job(&job, &[JobRow::queued(jid, minion, None)])
            .await
            .unwrap();
    };
    let answered = async |jid: &str, ended: Millis| {
        store.record_return(jid, "a", &answer(0)).await.unwrap();
        store.finish_job(jid, 0, ended).await.unwrap();
    };
    store
        .create_run(&run("open", None), &[step("open", 0)])
        .await
        .unwrap();
    store
        .create_run(&run("done", None), &[step("done", 0)])
        .await
        .unwrap();
    store
        .update_run("done", RunStatus::Succeeded, 1, 20)
        .await
        .unwrap();
    for (jid, operator) in [
        ("01", "root"),
        ("02", "root"),
        ("03", "run:open"),
        ("04", "run:done"),
    ] {
        made(jid, operator, "a").await;
        answered(jid, 20).await;
    }
    // Not finished; expired, though its minion may still answer; expired for good; not old.
    made("05", "root", "a").await;
    for (jid, minion) in [("06", "a"), ("07", "gone")] {
        made(jid, "root", minion).await;
        store.mark_lost(jid, minion, "away", 20).await.unwrap();
        store.finish_job(jid, 1, 20).await.unwrap();
    }
    made("08", "root", "a").await;
    answered("08", 100).await;
    made("09", "root", "a").await;
    answered("09", 20).await;

    let left = async || {
        let jobs = store.jobs(99).await.unwrap();
        jobs.into_iter()
            .rev()
            .map(|job| job.jid)
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(
        store.prune_jobs(100, 9, 9).await.unwrap(),
        0,
        "the last nine are all"
    );
    assert_eq!(
        store.prune_jobs(20, 0, 9).await.unwrap(),
        0,
        "nothing ended before"
    );
    assert_eq!(
        store.prune_jobs(100, 1, 1).await.unwrap(),
        2,
        "one job and one run at a time"
    );
    assert_eq!(left().await, "02 03 04 05 06 07 08 09");
    assert_eq!(store.run("done").await.unwrap(), None);
    assert!(
        store.steps("done").await.unwrap().is_empty() && store.rows("01").await.unwrap().is_empty()
    );
    assert_eq!(store.prune_jobs(100, 1, 99).await.unwrap(), 3);
    assert_eq!(
        left().await,
        "03 05 06 08 09",
        "the last one stays, however old"
    );
    assert_eq!(store.run("open").await.unwrap(), Some(run("open", None)));

    // What held them back is over.
    store
        .update_run("open", RunStatus::Failed, 1, 20)
        .await
        .unwrap();
    store.record_return("06", "a", &answer(0)).await.unwrap();
    store.create_run(&run("z", None), &[]).await.unwrap();
    assert_eq!(store.prune_jobs(100, 1, 99).await.unwrap(), 3);
    assert_eq!(left().await, "05 08 09");
}

pub(super) async fn of_which_bundles_a_minion_has_something_outlives_its_jobs(store: &dyn Store) {
    let made = async |jid: &str, function: &str, bundle: &str, test: bool| {
        let (function, bundle) = (function.to_owned(), Some(bundle.to_owned()));
        let job = Job {
            function,
            bundle,
            test,
            ..job(jid, None)
        };
        store
            .create_job(&job, &[JobRow::queued(jid, "a", None)])
            .await
            .unwrap();
    };
    let returned = async |jid: &str, retcode: i32| {
        store
            .record_return(jid, "a", &answer(retcode))
            .await
            .unwrap();
        store.finish_job(jid, retcode, 20).await.unwrap();
    };
    let known = async || {
        let known = store.minion_bundles().await.unwrap();
        assert!(known.iter().all(|known| known.minion == "a"), "{known:?}");
        let of = |known: MinionBundle| {
            format!(
                "{}:{}:{}",
                known.bundle,
                known.jid,
                known.highstate.unwrap_or_default()
            )
        };
        known.into_iter().map(of).collect::<Vec<_>>().join(" ")
    };
    store
        .create_job(&job("00", None), &[JobRow::queued("00", "a", None)])
        .await
        .unwrap();
    made("01", "state.highstate", "A", true).await;
    returned("01", 0).await;
    assert_eq!(
        known().await,
        "",
        "what needs no bundle and test runs leave nothing"
    );
    made("02", "state.highstate", "A", false).await;
    assert_eq!(known().await, "A:02:", "before anything is sent");
    returned("02", 0).await;
    assert_eq!(known().await, "A:02:02");
    // Half of one bundle, half of another.
    made("03", "state.highstate", "B", false).await;
    returned("03", 1).await;
    made("04", "state.apply", "C", false).await;
    assert!(
        store
            .record_last_return("04", "a", &answer(0))
            .await
            .unwrap()
    );
    assert_eq!(known().await, "A:02:02 B:03: C:04:");
    // What is under way while a highstate succeeds stays.
    made("05", "state.highstate", "B", false).await;
    made("06", "state.apply", "A", false).await;
    assert!(
        store
            .record_last_return("05", "a", &answer(0))
            .await
            .unwrap()
    );
    assert_eq!(known().await, "A:06:02 B:05:05");
    store.record_return("06", "a", &answer(0)).await.unwrap();
    store.finish_job("06", 0, 20).await.unwrap();
    store.create_job(&job("99", None), &[]).await.unwrap();
    assert!(store.prune_jobs(100, 1, 99).await.unwrap() >= 5);
    assert_eq!(store.job("05").await.unwrap(), None);
    store.put_key(&key("a", KeyState::Accepted)).await.unwrap();
    store.delete_key("a").await.unwrap();
    assert_eq!(known().await, "A:06:02 B:05:05");
}

pub(super) async fn events_have_growing_numbers_and_are_found_by_prefix(store: &dyn Store) {
    let event = |tag: &str, time| Event {
        seq: 0,
        tag: tag.to_owned(),
        time,
        data_json: "{}".to_owned(),
        last: tag.ends_with("done"),
        retcode: 0,
    };
    let mut numbers = Vec::new();
    for (tag, time) in [
        ("halite/job/1/new", 1),
        ("halite/job/%/new", 2),
        ("halite/job/1/done", 3),
    ] {
        numbers.push(store.append_event(&event(tag, time)).await.unwrap());
    }
    assert!(numbers.is_sorted() && numbers.windows(2).all(|pair| pair[0] != pair[1]));
    let found = store.events("halite/job/1/", 0, 9).await.unwrap();
    assert_eq!(
        found.iter().map(|e| e.seq).collect::<Vec<_>>(),
        [numbers[0], numbers[2]]
    );
    assert!(found[1].last && !found[0].last);
    assert_eq!(
        store.events("halite/job/%", 0, 9).await.unwrap().len(),
        1,
        "a prefix is text, not a pattern"
    );
    assert_eq!(
        store.events("", numbers[0], 1).await.unwrap()[0].seq,
        numbers[1]
    );
    let line = |time| Audit {
        time,
        who: "operator:root".to_owned(),
        method: "Operator/Run".to_owned(),
        what: "test.ping on *".to_owned(),
        outcome: "ok".to_owned(),
    };
    store.append_audit(&line(1)).await.unwrap();
    store.append_audit(&line(9)).await.unwrap();
    assert_eq!(store.audit(1).await.unwrap(), [line(9)]);
    assert_eq!(store.prune(3).await.unwrap(), 3);
    assert_eq!(store.audit(9).await.unwrap(), [line(9)]);
    let next = store.append_event(&event("x", 10)).await.unwrap();
    assert_eq!(store.prune(100).await.unwrap(), 3);
    assert!(
        store.append_event(&event("x", 101)).await.unwrap() > next,
        "a number is never given twice"
    );
}

pub(super) async fn facts_and_blobs_are_kept(store: &dyn Store) {
    let facts = |minion: &str, last_seen| Facts {
        minion: minion.to_owned(),
        grains_json: "{\"os\":\"Debian\"}".to_owned(),
        version: "1".to_owned(),
        last_seen,
    };
    store.touch("a", 1).await.unwrap();
    assert_eq!(store.facts("a").await.unwrap(), None);
    store.put_facts(&facts("b", 1)).await.unwrap();
    store.put_facts(&facts("a", 1)).await.unwrap();
    store.touch("a", 5).await.unwrap();
    assert_eq!(store.facts("a").await.unwrap(), Some(facts("a", 5)));
    assert_eq!(
        store.all_facts().await.unwrap(),
        [facts("a", 5), facts("b", 1)]
    );
    store.put_key(&key("a", KeyState::Accepted)).await.unwrap();
    store.delete_key("a").await.unwrap();
    assert_eq!(store.facts("a").await.unwrap(), None);
    store.put_blob("abc", &[0, 1, 255]).await.unwrap();
    store.put_blob("abc", &[0, 1, 255]).await.unwrap();
    assert_eq!(store.blob("abc").await.unwrap(), Some(vec![0, 1, 255]));
    assert_eq!(store.blob("abd").await.unwrap(), None);
}

/// One test a law, for a store made by an async expression that gives the store and whatever must
/// outlive it.
macro_rules! suite {
    ($make:expr; $($law:ident),+ $(,)?) => {$(
        #[tokio::test]
        async fn $law() {
            let (store, _kept) = $make.await;
            crate::store::suite::$law(&store).await;
        }
    )+};
    ($make:expr) => {
        crate::store::suite::suite! { $make;
            keys_are_kept_replaced_and_deleted,
            a_token_is_taken_together_with_the_key_or_not_at_all,
            certificates_and_revocations_are_recorded,
            a_repeated_request_finds_its_job,
            a_job_that_cannot_be_stored_whole_is_not_stored,
            a_row_only_moves_forward,
            open_jobs_and_rows_are_found_after_a_restart,
            the_last_return_finishes_its_job,
            runs_and_steps_are_kept,
            old_jobs_go_and_what_is_open_stays,
            of_which_bundles_a_minion_has_something_outlives_its_jobs,
            events_have_growing_numbers_and_are_found_by_prefix,
            facts_and_blobs_are_kept,
        }
    };
}
pub(super) use suite;
