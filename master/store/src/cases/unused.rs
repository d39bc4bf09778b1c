//! Data that no record needs any more.

use super::super::*;
use super::{answer, fresh, job, job_id, token};
use crate::samples::minion;

const DAY: Millis = 24 * 60 * 60 * 1000;
const NOW: Millis = 1000 * DAY;

#[tokio::test]
async fn what_no_record_needs_goes() {
    let (store, _directory) = &fresh().await;
    for (sha256, used) in [
        ("open", 1),
        ("ended", 1),
        ("none", 1),
        ("lately", NOW - DAY),
    ] {
        store.put_blob(sha256, b"x", used).await.unwrap();
    }
    for (number, names) in [(1, "open"), (2, "ended")] {
        let row = JobRow {
            low_json: Some(format!("{{\"source\": \"blob:{names}\"}}")),
            ..JobRow::queued(&job_id(number), &minion("a"), None)
        };
        store.create_job(&job(number, None), &[row]).await.unwrap();
    }
    store
        .record_return(&job_id(2), &minion("a"), &answer(0))
        .await
        .unwrap();
    let admin = "operator:alice";
    for (serial, owner, tag, age, left) in [
        ("ended", "a", "t1", 2, -1),
        ("replaced", "a", "t2", 100, 1),
        ("replaced lately", "a", "t3", 80, 1),
        ("newer", "a", "t2", 1, 1),
        ("newer too", "a", "t3", 1, 1),
        ("old", "a", "t4", 100, 1),
        // The next kubeconfig does not replace it: each works until it expires.
        ("kubeconfig", admin, KUBECONFIG, 100, 1),
        ("later kubeconfig", admin, KUBECONFIG, 1, 1),
        ("ended kubeconfig", admin, KUBECONFIG, 100, -1),
    ] {
        let certificate = Certificate {
            serial: serial.to_owned(),
            ca: "kubernetes".to_owned(),
            subject: "CN=x".to_owned(),
            owner: owner.to_owned(),
            job: Some(job_id(1)),
            tag: tag.to_owned(),
            created: NOW - age * DAY,
            not_after: NOW + left,
            pem: "PEM".to_owned(),
        };
        store.put_certificate(&certificate).await.unwrap();
    }
    for (id, uses, created, expires) in [
        ("expired", 1, 1, NOW - 31 * DAY),
        ("used up", 0, NOW - 31 * DAY, NOW + DAY),
        ("used lately", 0, NOW - DAY, NOW + DAY),
        ("good", 1, 1, NOW + DAY),
    ] {
        let token = Token {
            created,
            expires,
            ..token(id, uses)
        };
        store.put_token(&token).await.unwrap();
    }
    let mut removed = 0;
    loop {
        match store.prune_unused(NOW, 1).await.unwrap() {
            0 => break,
            some => removed += some,
        }
    }
    // Two files, one low state, three certificates, two tokens.
    assert_eq!(removed, 8);
    for (sha256, there) in [
        ("open", true),
        ("ended", false),
        ("none", false),
        ("lately", true),
    ] {
        let found = store.blob(sha256).await.unwrap();
        assert_eq!(found.is_some(), there, "{sha256}");
    }
    let low = async |number| {
        let row = store.row(&job_id(number), &minion("a")).await.unwrap();
        row.unwrap().low_json
    };
    assert!(low(1).await.is_some() && low(2).await.is_none());
    let mut serials: Vec<String> = store
        .certificates(99)
        .await
        .unwrap()
        .into_iter()
        .map(|found| found.serial)
        .collect();
    serials.sort();
    let kept = [
        "kubeconfig",
        "later kubeconfig",
        "newer",
        "newer too",
        "old",
        "replaced lately",
    ];
    assert_eq!(serials, kept);
    let mut tokens: Vec<String> = store
        .tokens()
        .await
        .unwrap()
        .into_iter()
        .map(|token| token.id)
        .collect();
    tokens.sort();
    assert_eq!(tokens, ["good", "used lately"]);
    assert!(store.size().await.unwrap() > 0);
}
