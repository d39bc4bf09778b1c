//! Operators, the tokens of a minion, and the audit.

use halite_proto::role::Role;

use super::super::*;
use super::{fresh, token};
use crate::samples::minion;

#[tokio::test]
async fn operators_are_kept_and_replaced() {
    let (store, _directory) = &fresh().await;
    let operator = |name: &str, revoked| Operator {
        name: name.to_owned(),
        role: Role::Deployer,
        fingerprint: Some("aa:bb".to_owned()),
        created: 3,
        creator: "root".to_owned(),
        expires: Some(9),
        revoked,
    };
    store.put_operator(&operator("zoe", None)).await.unwrap();
    store.put_operator(&operator("alice", None)).await.unwrap();
    store.put_operator(&operator("zoe", Some(5))).await.unwrap();
    let mut found = store.operators().await.unwrap();
    let root = found.remove(1);
    assert_eq!(found, [operator("alice", None), operator("zoe", Some(5))]);
    // A new store contains the operator of `halite-master init`, with any key.
    assert_eq!(
        (root.name.as_str(), root.role, root.fingerprint),
        ("root", Role::Admin, None)
    );
}

#[tokio::test]
async fn the_tokens_of_a_minion_are_taken_together() {
    let (store, _directory) = &fresh().await;
    let bound = |id: &str, uses_left, minion: &str| Token {
        bound_id: Some(minion.parse().unwrap()),
        ..token(id, uses_left)
    };
    let kept = [
        token("free", 1),
        bound("other", 1, "b"),
        bound("used", 0, "a"),
    ];
    let taken = [
        token("own", 7),
        bound("first", 1, "a"),
        bound("second", 2, "a"),
    ];
    for token in kept.iter().chain(&taken) {
        store.put_token(token).await.unwrap();
    }
    let mut found = store.take_tokens(&minion("a"), Some("own")).await.unwrap();
    found.sort();
    assert_eq!(found, ["first", "own", "second"]);
    assert!(
        store
            .take_tokens(&minion("a"), None)
            .await
            .unwrap()
            .is_empty()
    );
    let left = store.tokens().await.unwrap();
    let left: Vec<&str> = left.iter().map(|token| token.id.as_str()).collect();
    assert_eq!(left, ["free", "other", "used"]);
}

#[tokio::test]
async fn audit_lines_are_found_by_time_caller_and_method() {
    let (store, _directory) = &fresh().await;
    for (time, who, method) in [
        (1, "operator:root", "Operator/Run"),
        (2, "operator:alice", "Operator/Run"),
        (3, "operator:alice", "Operator/ChangeKey"),
        (4, "minion:a", "Minion/Sign"),
    ] {
        let line = Audit {
            time,
            who: who.to_owned(),
            method: method.to_owned(),
            what: String::new(),
            outcome: "ok".to_owned(),
        };
        store.append_audit(&line).await.unwrap();
    }
    let all = AuditFilter::newest(9);
    let alice = AuditFilter {
        who: Some("operator:alice".to_owned()),
        ..all.clone()
    };
    let run = AuditFilter {
        method: Some("Operator/Run".to_owned()),
        ..all.clone()
    };
    let middle = AuditFilter {
        since: Some(2),
        until: Some(4),
        ..all.clone()
    };
    let one = AuditFilter {
        limit: 1,
        ..middle.clone()
    };
    let absent = AuditFilter {
        method: Some("Operator/Run".to_owned()),
        since: Some(3),
        ..alice.clone()
    };
    for (filter, wanted) in [
        (all, [4, 3, 2, 1].as_slice()),
        (alice, &[3, 2]),
        (run, &[2, 1]),
        (middle, &[3, 2]),
        (one, &[3]),
        (absent, &[]),
    ] {
        let found = store.audit(&filter).await.unwrap();
        let times: Vec<Millis> = found.iter().map(|line| line.time).collect();
        assert_eq!(times, wanted, "{filter:?}");
    }
}
