//! Tests that each record is stored, found and removed as the store's methods promise. Each test
//! has an empty store.

mod access;
mod cancelled;
mod jobs;
mod locks;
mod notifications;
mod parts;
mod paused;
mod unused;

use halite_proto::ids::JobId;

use super::samples::{answer, fresh, job, job_id, key, run, step, token};
use super::*;
use crate::samples::minion;

#[tokio::test]
async fn keys_are_kept_replaced_and_deleted() {
    let (store, _directory) = &fresh().await;
    assert_eq!(store.key(&minion("a")).await.unwrap(), None);
    store.put_key(&key("b", KeyState::Pending)).await.unwrap();
    store.put_key(&key("a", KeyState::Accepted)).await.unwrap();
    assert_eq!(
        store.keys().await.unwrap(),
        [key("a", KeyState::Accepted), key("b", KeyState::Pending)]
    );
    store.put_key(&key("b", KeyState::Rejected)).await.unwrap();
    assert_eq!(
        store.key(&minion("b")).await.unwrap(),
        Some(key("b", KeyState::Rejected))
    );
    assert!(store.delete_key(&minion("b")).await.unwrap());
    assert!(!store.delete_key(&minion("b")).await.unwrap());
    assert_eq!(store.keys().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_token_is_taken_together_with_the_key_or_not_at_all() {
    let (store, _directory) = &fresh().await;
    store.put_token(&token("t", 2)).await.unwrap();
    assert!(
        store
            .put_key_with_token(&key("a", KeyState::Accepted), "t", 999)
            .await
            .unwrap()
    );
    assert_eq!(store.token("t").await.unwrap().unwrap().uses_left, 1);
    // At the end of its validity it no longer works.
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
    assert_eq!(store.key(&minion("c")).await.unwrap(), None);
    assert_eq!(store.token("t").await.unwrap().unwrap().uses_left, 0);
    assert_eq!(store.tokens().await.unwrap().len(), 1);
    assert!(store.delete_token("t").await.unwrap());
    assert!(!store.delete_token("t").await.unwrap());
}

#[tokio::test]
async fn certificates_and_revocations_are_recorded() {
    let (store, _directory) = &fresh().await;
    let certificate = |serial: &str, created| Certificate {
        serial: serial.to_owned(),
        ca: "kubernetes".to_owned(),
        subject: "CN=x".to_owned(),
        owner: "a".to_owned(),
        job: Some(job_id(1)),
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
    for (ca, newest) in [("kubernetes", Some(certificate("03", 3))), ("halite", None)] {
        let found = store.newest_certificate(ca, "a").await.unwrap();
        assert_eq!(found, newest, "{ca}");
    }
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

#[tokio::test]
async fn runs_and_steps_are_kept() {
    let (store, _directory) = &fresh().await;
    let steps = [step(11, 0), step(11, 1)];
    assert_eq!(
        store.create_run(&run(11, Some("q")), &steps).await.unwrap(),
        Created::New
    );
    let again = store.create_run(&run(12, Some("q")), &[]).await.unwrap();
    assert_eq!(again, Created::Existing(run(11, Some("q"))));
    assert_eq!(store.steps(&job_id(11)).await.unwrap(), steps);
    let done = Step {
        status: StepStatus::Succeeded,
        detail_json: "{\"job\":\"1\"}".to_owned(),
        started: Some(1),
        ended: Some(2),
        ..step(11, 0)
    };
    store.put_step(&done).await.unwrap();
    assert_eq!(store.steps(&job_id(11)).await.unwrap(), [done, step(11, 1)]);
    store
        .update_run(&job_id(11), RunStatus::Running, 1, 8)
        .await
        .unwrap();
    let open = store.open_runs().await.unwrap();
    assert_eq!(
        open,
        [Run {
            current: 1,
            changed: 8,
            ..run(11, Some("q"))
        }]
    );
    store
        .update_run(&job_id(11), RunStatus::Failed, 1, 9)
        .await
        .unwrap();
    assert!(store.open_runs().await.unwrap().is_empty());
    assert_eq!(
        store.run(&job_id(11)).await.unwrap().unwrap().status,
        RunStatus::Failed
    );
    store.create_run(&run(13, None), &[]).await.unwrap();
    let listed: Vec<JobId> = store
        .runs(9)
        .await
        .unwrap()
        .into_iter()
        .map(|run| run.id)
        .collect();
    assert_eq!(listed, [job_id(13), job_id(11)]);
}

#[tokio::test]
async fn runs_are_found_by_orchestration_and_time_and_the_oldest_record_is_known() {
    let (store, _directory) = &fresh().await;
    assert_eq!(store.oldest().await.unwrap(), None);
    let at = |number: u64, sls: &str, created: Millis| Run {
        sls: sls.to_owned(),
        created,
        ..run(number, None)
    };
    for made in [
        at(21, "a", 40),
        at(22, "b", 41),
        at(23, "a", 42),
        at(24, "a", 43),
    ] {
        store.create_run(&made, &[]).await.unwrap();
    }
    let found = store.runs_of("a", 42).await.unwrap();
    assert_eq!(found, [at(24, "a", 43), at(23, "a", 42)]);
    assert_eq!(store.runs_of("a", 44).await.unwrap(), []);
    assert_eq!(store.oldest().await.unwrap(), Some(40));
    store.create_job(&job(1, None), &[]).await.unwrap();
    assert_eq!(store.oldest().await.unwrap(), Some(10));
}

#[tokio::test]
async fn events_have_growing_numbers_and_are_found_by_prefix() {
    let (store, _directory) = &fresh().await;
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
    assert_eq!(
        store.audit(&AuditFilter::newest(1)).await.unwrap(),
        [line(9)]
    );
    assert_eq!(store.prune(3).await.unwrap(), 3);
    assert_eq!(
        store.audit(&AuditFilter::newest(9)).await.unwrap(),
        [line(9)]
    );
    let next = store.append_event(&event("x", 10)).await.unwrap();
    assert_eq!(store.prune(100).await.unwrap(), 3);
    assert!(
        store.append_event(&event("x", 101)).await.unwrap() > next,
        "a number is never reused"
    );
}

#[tokio::test]
async fn facts_and_blobs_are_kept() {
    let (store, _directory) = &fresh().await;
    let facts = |name: &str, last_seen| Facts {
        minion: minion(name),
        grains_json: "{\"os\":\"Debian\"}".to_owned(),
        version: "1".to_owned(),
        last_seen,
    };
    store.touch(&minion("a"), 1).await.unwrap();
    assert_eq!(store.facts(&minion("a")).await.unwrap(), None);
    store.put_facts(&facts("b", 1)).await.unwrap();
    store.put_facts(&facts("a", 1)).await.unwrap();
    store.touch(&minion("a"), 5).await.unwrap();
    assert_eq!(
        store.facts(&minion("a")).await.unwrap(),
        Some(facts("a", 5))
    );
    assert_eq!(
        store.all_facts().await.unwrap(),
        [facts("a", 5), facts("b", 1)]
    );
    store.put_key(&key("a", KeyState::Accepted)).await.unwrap();
    store.delete_key(&minion("a")).await.unwrap();
    assert_eq!(store.facts(&minion("a")).await.unwrap(), None);
    store.put_blob("abc", &[0, 1, 255], 1).await.unwrap();
    store.put_blob("abc", &[0, 1, 255], 1).await.unwrap();
    assert_eq!(store.blob("abc").await.unwrap(), Some(vec![0, 1, 255]));
    assert_eq!(store.blob("abd").await.unwrap(), None);
}
