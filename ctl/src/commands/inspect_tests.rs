use serde_json::json;

use super::*;

const PLAIN: Paint = Paint { colour: false };

#[test]
fn a_file_is_shown_with_its_origin() {
    let shown = json!([{"name": "/etc/x", "state": "file.managed", "source": {"file": "base/x.sls", "line": 3, "column": 1},
        "files": ["base/x.sls", "base/x.j2"], "pillar": ["networks.pods"], "mode": null, "content": "a\nb\n"}]);
    assert_eq!(
        files(&shown).unwrap(),
        "/etc/x\n  state   file.managed in base/x.sls:3\n  from    base/x.sls, base/x.j2\n  pillar  networks.pods\n  | a\n  | b\n\n"
    );
}

#[test]
fn a_job_shows_state_runs_as_such() {
    let job = json!({"jid": "1", "test": true, "returns": [
        {"minion": "w", "state": "returned", "return": {"states": []}, "error": ""},
        {"minion": "v", "state": "lost", "return": null, "error": "not connected"}]});
    let text = one(&job, &PLAIN);
    assert_eq!(
        text,
        "jid   1\ntest  yes\n\nw: 0 states, 0 to change (0.0 s)\n\nv: lost -\n  ✗ not connected\n"
    );
}

#[test]
fn the_overview_names_unconnected_minions_and_problems() {
    let status = json!({"cluster": "prod", "version": "0.1.0", "master": ["10.0.0.1:4550"],
        "bundle": {"version": "1", "kubernetes": "v1.36.3"}, "api": {"answers": false, "error": "refused"},
        "api_servers": [{"host": "a", "ready": true}, {"host": "b", "ready": false}],
        "masters": {"node": "a", "epoch": 2, "alone_since": "2026-11-25T18:00Z", "standbys": [{"name": "a", "state": "following", "lag": 0},
            {"name": "b", "state": "following", "lag": 9000}, {"name": "c", "state": "gone", "lag": 0}]},
        "vip": {"address": "10.0.0.9", "holders": ["a"]},
        "etcd": {"quorum": "2 members, none may fail", "members": [{"name": "a", "role": "leader"}]},
        "dns": {"replicas": ["a"], "without": ["b"]},
        "nodes": [{"name": "a", "roles": ["worker"], "address": "10.0.0.2", "key": "accepted", "connected": false,
            "kubernetes": {"ready": false, "version": "v1.36.3"}, "highstate": null}],
        "health": {"healthy": false, "checks": [{"name": "declaration", "state": "failure",
            "findings": [{"message": "cluster.yaml:1: no", "remedy": null}]}]}});
    let text = overview(&status, &PLAIN);
    for wanted in [
        "master      10.0.0.1:4550 (0.1.0) on a, epoch 2, alone since 2026-11-25T18:00Z\n",
        "API         does not answer: refused\nstandbys    a ✓  b ✓ (lag 9000 bytes)  c gone\nservers     a ✓  b ✗\n",
        "VIP         10.0.0.9 on a\netcd        2 members, none may fail\nDNS         on a; no replica on b\n",
        "away",
        "NotReady v1.36.3",
        "leader",
        "✗ declaration: cluster.yaml:1: no\n",
    ] {
        assert!(text.contains(wanted), "{wanted:?} is not in\n{text}");
    }
    assert!(
        text.starts_with("✗ declaration: cluster.yaml:1: no\n"),
        "{text}"
    );
    assert!(!text.contains("registry"), "{text}");
    for (host, wanted) in [
        (
            json!({"node": "a", "newest": null, "next": "T1"}),
            "backups     a none yet (next T1)\n",
        ),
        (
            json!({"node": "a", "newest": "T0", "next": "T1"}),
            "backups     a T0\n",
        ),
        (
            json!({"node": "a", "newest": "T0", "newestAge": 7100, "next": "T1", "verified": null}),
            "backups     a 118m ago\n",
        ),
        (
            json!({"node": "a", "newest": "T0", "newestAge": 119, "verified": "T1", "verifiedAge": 345_600}),
            "backups     a 119s ago (verified 4d ago)\n",
        ),
    ] {
        assert_eq!(saved(&json!({"hosts": [host]})), wanted);
    }
    for (known, wanted) in [
        (json!({"node": "w"}), "on w, no backup yet"),
        (
            json!({"node": "w", "backup_time": "T1", "verified": null}),
            "on w, last good backup T1",
        ),
        (
            json!({"node": "w", "backup_time": "T1", "verified": "T2"}),
            "on w, last good backup T1, verified T2",
        ),
    ] {
        let mut status = status.clone();
        status["registry"] = known;
        let text = overview(&status, &PLAIN);
        assert!(
            text.contains(&format!("no replica on b\nregistry    {wanted}\n\n")),
            "{text}"
        );
    }
}
