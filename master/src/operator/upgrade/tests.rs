//! Names of bundles, the order of an upgrade, and its findings.

use std::collections::BTreeMap;
use std::time::Duration;

use halite_api::UpgradeTurn;
use halite_states::low::Chunk;

use super::*;

#[test]
fn a_bundle_is_named_by_its_version_or_its_kubernetes() {
    let held = |version: &str, kubernetes: &str| SiteBundle {
        version: version.parse().unwrap(),
        kubernetes: kubernetes.to_owned(),
        path: String::new(),
        manifest: String::new(),
    };
    let site = [
        held("1.0", "v1.36.3"),
        held("1.1", "v1.36.4"),
        held("1.2", "v1.36.4"),
    ];
    let found = |wanted: &str| {
        let found = find(&site, wanted);
        found.map_or_else(|refusal| refusal.message, String::from)
    };
    assert_eq!(found("1.1"), "1.1");
    assert_eq!(found("v1.36.3"), "1.0");
    assert_eq!(found("1.36.3"), "1.0");
    let several = found("1.36.4");
    assert!(
        several.contains("1.1 (v1.36.4), 1.2 (v1.36.4); name one"),
        "{several}"
    );
    let none = found("1.37.0");
    assert!(
        none.contains("has no bundle 1.37.0") && none.contains("ctl bundle add"),
        "{none}"
    );
}

/// The steps of an upgrade of a control plane, the objects and two workers.
fn steps() -> Vec<Chunk> {
    let step = |id: &str, fun: &str, args: Value| {
        json!({"state": "halite", "fun": fun, "id": id, "name": id, "sls": "upgrade",
            "source": {"file": "upgrade.sls", "line": 1, "column": 1}, "args": args})
    };
    let low = json!([
        step(
            "images",
            "state",
            json!({"tgt": "cp-1,w-1,w-2", "sls": ["images"]})
        ),
        step(
            "objects-ahead",
            "state",
            json!({"tgt": "master", "sls": ["ahead"], "bundle": "1.1"})
        ),
        step(
            "cp-1-turn",
            "upgrade_turn",
            json!({"nodes": ["cp-1"], "bundle": "1.1"})
        ),
        step(
            "cp-1-host",
            "state",
            json!({"tgt": "cp-1", "highstate": true, "bundle": "1.1"})
        ),
        step(
            "objects",
            "state",
            json!({"tgt": "master", "highstate": true, "bundle": "1.1"})
        ),
        step(
            "workers-1-turn",
            "upgrade_turn",
            json!({"nodes": ["w-1", "w-2"], "bundle": "1.1"})
        ),
        step("w-1-drained", "drain", json!({"node": "w-1"})),
        step(
            "workers-1",
            "state",
            json!({"tgt": "w-1,w-2", "highstate": true, "bundle": "1.1"})
        ),
        step(
            "image-servers",
            "state",
            json!({"tgt": "*", "sls": ["servers"]})
        ),
    ]);
    serde_json::from_value(low).unwrap()
}

#[test]
fn turns_have_hosts_drains_and_the_usual_times_of_their_steps() {
    let turn = |hosts: &[&str], drained: &[&str], estimate| UpgradeTurn {
        hosts: hosts.iter().map(|name| name.parse().unwrap()).collect(),
        drained: drained.iter().map(|name| name.parse().unwrap()).collect(),
        estimate,
    };
    let timed = turns::of(&steps(), &BTreeMap::new());
    assert_eq!(
        timed.turns,
        [
            turn(&["cp-1"], &[], None),
            turn(&["master"], &[], None),
            turn(&["w-1", "w-2"], &["w-1"], None),
        ]
    );
    assert_eq!(
        (timed.estimate, timed.steps, timed.unknown_steps),
        (None, 9, 9)
    );
    let usual = [
        ("images", 30_000),
        ("cp-1-host", 60_400),
        ("workers-1", 9_000),
        ("w-1-drained", 2_500),
    ];
    let usual = usual.map(|(name, millis)| (name.to_owned(), Duration::from_millis(millis)));
    let timed = turns::of(&steps(), &BTreeMap::from(usual));
    let estimates: Vec<Option<u64>> = timed.turns.iter().map(|turn| turn.estimate).collect();
    assert_eq!(estimates, [Some(61), None, Some(12)]);
    assert_eq!((timed.estimate, timed.unknown_steps), (Some(102), 5));
}
