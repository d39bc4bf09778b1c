//! Properties of all targets and of the whole tree.

use std::fs;

use halite_states::compile::{self, Compiled};
use halite_states::tree::DirTree;
use serde_json::{Value, json};

use crate::support::{fixture, golden, here, highstate, listing, of, sure, with};

#[test]
fn every_target_has_its_states_in_order() {
    for name in ["bootstrap", "worker", "master"] {
        golden(&format!("{name}.txt"), &listing(&of(name)));
    }
}

#[test]
fn secrets_are_in_key_files_and_nowhere_else() {
    let holding = |compiled: &Compiled| {
        let mut names = Vec::new();
        for chunk in &compiled.low.chunks {
            let holds = serde_json::to_string(chunk)
                .unwrap()
                .contains("halite-secret::");
            assert_eq!(chunk.sensitive, holds, "{}", chunk.id);
            if holds {
                assert_eq!(chunk.args["mode"], json!(0o600), "{}", chunk.id);
                names.push(chunk.name.clone());
            }
        }
        names
    };
    let mut keys = holding(&of("bootstrap"));
    keys.sort();
    let pki = "/etc/kubernetes/pki";
    assert_eq!(
        keys,
        [
            format!("{pki}/ca.key"),
            format!("{pki}/etcd/ca.key"),
            format!("{pki}/front-proxy-ca.key"),
            format!("{pki}/sa.key")
        ]
    );
    assert!(holding(&of("worker")).is_empty());
    assert!(holding(&of("master")).is_empty());
}

/// Settings that only the test machines need are set by pillar keys that any operator can use.
#[test]
fn the_tree_knows_nothing_of_the_lab() {
    for file in halite_states::tree::Tree::list(&DirTree::new().root(here().join("tree"))) {
        let text = fs::read_to_string(here().join("tree").join(&file)).unwrap();
        for word in [
            "failCgroupV1",
            "10.10.",
            "10.20.",
            "bootstrap-1",
            "worker-1",
            "nspawn",
        ] {
            assert!(!text.contains(word), "{file}: {word}");
        }
    }
}

/// Sites name hosts by numbers, too, and a host may be called `on`.
#[test]
fn names_that_yaml_reads_as_other_values_are_names() {
    for name in ["0042", "on"] {
        let renamed = |value: &Value| -> Value {
            serde_json::from_str(&value.to_string().replace("worker-1", name)).unwrap()
        };
        for target in ["bootstrap", "worker", "master"] {
            let (pillar, grains) = fixture(target);
            highstate(&renamed(&pillar), &renamed(&grains));
        }
        let (pillar, grains) = fixture("master");
        let mut pillar = renamed(&pillar);
        pillar["node"] = json!(name);
        for run in [
            "reboot_node",
            "drain_node",
            "cordon_node",
            "uncordon_node",
            "remove_node",
        ] {
            let sls = [format!("halite.orchestrate.{run}")];
            sure(with(&pillar, &grains, |input| compile::step(input, &sls)));
        }
    }
}
