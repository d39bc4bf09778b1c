//! The operator's own states before a drain, and after a host takes pods again.

use std::fs;

use serde_json::json;

use super::fixture::{applied, orchestrate};
use super::upgrade_fixture::{NEXT, options, site, upgrade};
use crate::backend::fixture::{ScriptedMinion, Site};

/// Puts a hook with one state into the operator's own states.
fn put(site: &Site, hook: &str) {
    let folder = site.path().join("etc/custom/hooks");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(hook), format!("at-{hook}:\n  test.nop: []\n")).unwrap();
}

/// Returns whether each of these states was applied after the one before it.
fn in_order(minion: &ScriptedMinion, ids: &[&str]) -> bool {
    let applied = applied(minion);
    let mut rest = applied.iter();
    ids.iter().all(|id| rest.any(|found| found == id))
}

#[test]
fn hooks_run_on_each_host_around_its_drain() {
    let site = site();
    put(&site, "pre_drain.sls");
    put(&site, "post_uncordon.sls");
    let life = site.live();
    let hosts = ["bootstrap-1", "worker-1"].map(ScriptedMinion::new);
    hosts.iter().for_each(|host| life.connect(host));
    let mut options = options();
    options["drain"] = json!({"timeout": 60});
    let (code, said) = orchestrate(&life, upgrade(&life, &options));
    assert_eq!(code, 0, "{said}");
    let new = format!("from-{NEXT}");
    for host in &hosts {
        let order = ["at-pre_drain.sls", &new, "at-post_uncordon.sls"];
        assert!(in_order(host, &order), "{:?}", applied(host));
    }
    life.kill();
}

#[test]
fn a_hook_that_fails_stops_the_run_at_its_host() {
    let cases = [
        ("pre_drain", 0, [false, false]),
        ("pre_drain", 1, [true, false]),
        ("post_uncordon", 0, [true, false]),
        ("post_uncordon", 1, [true, true]),
    ];
    for (hook, failing, expected) in cases {
        let site = site();
        put(&site, &format!("{hook}.sls"));
        let life = site.live();
        let hosts = ["bootstrap-1", "worker-1"].map(ScriptedMinion::new);
        hosts.iter().for_each(|host| life.connect(host));
        let state = format!("at-{hook}.sls");
        let journal = &hosts[failing].journal;
        journal.lock().unwrap().failing.insert(state.clone());
        let mut drained = options();
        drained["drain"] = json!({"timeout": 60});
        let (code, said) = orchestrate(&life, upgrade(&life, &drained));
        assert_eq!(code, 1, "{said}");
        let host = &hosts[failing].id;
        let named = format!("{host}: {state} (test.nop, custom.hooks.{hook})");
        assert!(said.contains(&named), "{said}");
        let new = format!("from-{NEXT}");
        let changed = hosts.each_ref().map(|host| applied(host).contains(&new));
        assert_eq!(changed, expected, "{hook} of {host}");
        // Without a drain, no hook runs.
        let (code, said) = orchestrate(&life, upgrade(&life, &options()));
        assert_eq!(code, 0, "{said}");
        life.kill();
    }
}
