//! The shipped rotation of the keys of objects in etcd.

use halite_pillar::encryption_keys::{EncryptionKeys, KEYS_FILE};
use serde_json::json;

use super::fixture::{newest_run, orchestrate, request};
use crate::backend::fixture::{Life, ScriptedMinion, Site};

const ROTATE: &str = "halite.orchestrate.rotate_encryption";

const TREE: &[(&str, &str)] = &[
    ("top.sls", "base:\n  '*': []\n"),
    (
        "halite/orchestrate/rotate_encryption.sls",
        include_str!("../../../states/tree/halite/orchestrate/rotate_encryption.sls"),
    ),
    (
        // The state has the form of the shipped one: the file that API servers read.
        "halite/base/control_plane/running.sls",
        "/encryption.yaml:\n  file.managed:\n    - contents: {{ pillar.halite.apiServer.files['encryption.yaml'] | json | json }}\n",
    ),
];

/// Writes the cluster document with this section.
fn declare(site: &Site, section: &str) {
    let path = site.path().join("etc/cluster.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, format!("{text}{section}\n")).unwrap();
}

fn keys(site: &Site) -> Option<EncryptionKeys> {
    let path = site.path().join("state").join(KEYS_FILE);
    let text = std::fs::read_to_string(path).ok()?;
    Some(serde_json::from_str(&text).unwrap())
}

fn load(life: &Life) -> String {
    let declarations = life.backend.jobs().declarations();
    match life.runtime.block_on(declarations.load()) {
        Ok(snapshot) => format!("{:?}", snapshot.encryption_keys()),
        Err(refusal) => refusal.message,
    }
}

const ENCRYPTED: &str = "apiServer: {encryption: {}}";

fn secret(site: &Site) {
    site.api.put(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "namespace": "default"}}));
}

fn writer(site: &Site) -> (Vec<String>, Option<String>) {
    let names = keys(site).unwrap().names();
    (names.names, names.writer)
}

#[test]
fn a_new_cluster_encrypts_at_once_and_a_running_one_after_a_rotation() {
    let new = Site::new(TREE);
    declare(&new, ENCRYPTED);
    load(&new.live());
    assert_eq!(
        writer(&new),
        (vec!["key1".to_owned()], Some("key1".to_owned()))
    );

    let running = Site::new(TREE);
    secret(&running);
    let life = running.live();
    load(&life);
    assert_eq!(keys(&running), None);
    let (retcode, data) = orchestrate(&life, request(ROTATE, &json!({})));
    assert_eq!(retcode, 1, "{data}");
    assert!(data.contains("declares no encryption"), "{data}");
    declare(&running, ENCRYPTED);
    load(&life);
    assert_eq!(writer(&running), (vec!["key1".to_owned()], None));

    let minion = ScriptedMinion::new("bootstrap-1");
    life.connect(&minion);
    let (retcode, data) = orchestrate(&life, request(ROTATE, &json!({})));
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(
        writer(&running),
        (vec!["key1".to_owned()], Some("key1".to_owned()))
    );
    assert_eq!(
        *running.api.writes.lock().unwrap(),
        ["replace Secret default/a"]
    );
}

/// The host gets the keys, and nothing that the master keeps or shows has them.
#[test]
fn a_rotation_reaches_the_host_and_no_record_has_a_key() {
    let site = Site::new(TREE);
    declare(&site, ENCRYPTED);
    secret(&site);
    let life = site.live();
    load(&life);
    let older = keys(&site).unwrap();
    let older = older.secret("encryption.first").unwrap();
    let minion = ScriptedMinion::new("bootstrap-1");
    life.connect(&minion);
    let (retcode, data) = orchestrate(&life, request(ROTATE, &json!({})));
    assert_eq!(retcode, 0, "{data}");
    assert_eq!(
        writer(&site),
        (vec!["key2".to_owned()], Some("key2".to_owned()))
    );
    let own = keys(&site).unwrap();
    let own = own.secret("encryption.first").unwrap();
    // The low states of the three stages.
    let journal = minion.journal.lock().unwrap();
    let applied = journal.received.iter();
    let applied: Vec<(bool, bool)> = applied
        .filter(|job| job.function == "state.apply")
        .map(|job| (job.low_json.contains(older), job.low_json.contains(own)))
        .collect();
    drop(journal);
    assert_eq!(applied, [(true, true), (true, true), (false, true)]);
    let run = newest_run(&life);
    let record = format!("{run:?}{data}");
    let stored = life.everything_stored(&site);
    for key in [older, own] {
        assert!(!record.contains(key), "{record}");
        assert!(!stored.contains(key));
    }
}

#[test]
fn keys_are_not_rotated_with_several_control_planes() {
    let site = Site::new(TREE);
    declare(&site, ENCRYPTED);
    let path = site.path().join("etc/nodes/cp-2.yaml");
    let node =
        "apiVersion: halite/v1\nkind: Node\nmetadata: {name: cp-2}\nroles: [control-plane, etcd]\n";
    std::fs::write(path, node).unwrap();
    let life = site.live();
    load(&life);
    let before = writer(&site);
    let (retcode, data) = orchestrate(&life, request(ROTATE, &json!({})));
    assert_eq!(retcode, 1, "{data}");
    assert!(
        data.contains("the cluster declares bootstrap-1, cp-2"),
        "{data}"
    );
    assert_eq!(writer(&site), before);
}
