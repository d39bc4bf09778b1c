//! Orchestrations and their steps.

use halite_states::compile;
use halite_states::compile::Compiled;
use halite_states::low::Chunk;
use serde_json::json;

use crate::support::{assert_chain, fixture, golden, steps, sure, with};

/// Steps of hosts by their roles, for review: a change of the tree shows in one file.
#[test]
fn orchestrations_compile_and_no_step_waits_for_the_states_of_the_operator() {
    let (mut pillar, grains) = fixture("master");
    let compiled = |pillar: &serde_json::Value, name: &str| {
        let compiled = sure(with(pillar, &grains, |i| {
            compile::step(i, &[format!("halite.orchestrate.{name}")])
        }));
        let chunks = &compiled.low.chunks;
        let custom = chunks.iter().position(|chunk| chunk.id == "custom");
        let custom = custom.unwrap();
        assert!(
            chunks
                .iter()
                .all(|chunk| !chunk.requisites.require.contains(&custom)),
            "a step waits for the operator's own states"
        );
        compiled
    };
    let mut text = steps("bootstrap", &compiled(&pillar, "bootstrap"));
    pillar["node"] = json!("worker-1");
    for roles in [
        &["worker"][..],
        &["worker", "registry"],
        &["registry"],
        &["frontend"],
        &["control-plane", "etcd"],
    ] {
        let runs = !matches!(roles, ["registry"] | ["frontend"]);
        pillar["halite"]["nodes"]["worker-1"]["roles"] = json!(roles);
        pillar["halite"]["nodes"]["worker-1"]["runs"] = json!({"containers": runs});
        let case = format!("add_node, {}", roles.join(" "));
        text += &steps(&case, &compiled(&pillar, "add_node"));
    }
    golden("steps-add.txt", &text);
}

#[test]
fn a_bootstrap_repairs_the_host_to_which_the_master_has_moved() {
    let (mut pillar, grains) = fixture("master");
    pillar["halite"]["master"]["node"] = json!("worker-1");
    let compiled = sure(with(&pillar, &grains, |i| {
        compile::step(i, &["halite.orchestrate.bootstrap".to_owned()])
    }));
    let steps = compiled.low.chunks.iter();
    let hosts: Vec<&serde_json::Value> = steps
        .filter_map(|chunk| chunk.args.get("tgt").or_else(|| chunk.args.get("node")))
        .filter(|host| **host != json!("master"))
        .collect();
    assert!(hosts.len() > 5, "{hosts:?}");
    assert!(
        hosts.iter().all(|host| **host == json!("worker-1")),
        "{hosts:?}"
    );
}

/// The steps of a reboot, each after the previous one.
fn reboot(roles: &[&str], drain: Option<serde_json::Value>) -> Compiled {
    let (mut pillar, grains) = fixture("master");
    pillar["node"] = json!("worker-1");
    let runs = roles != ["frontend"];
    pillar["halite"]["nodes"]["worker-1"]["roles"] = json!(roles);
    pillar["halite"]["nodes"]["worker-1"]["runs"] = json!({"containers": runs});
    if let Some(drain) = drain {
        pillar["drain"] = drain;
    }
    let compiled = sure(with(&pillar, &grains, |i| {
        compile::step(i, &["halite.orchestrate.reboot_node".to_owned()])
    }));
    assert_chain(&compiled);
    compiled
}

#[test]
fn a_reboot_has_the_steps_that_the_host_needs() {
    let drain = || Some(json!({"timeout": 60}));
    let mut text = String::new();
    for (roles, drain) in [
        (&["worker"][..], drain()),
        (&["frontend"], drain()),
        (&["control-plane", "etcd"], drain()),
        (&["etcd"], None),
    ] {
        let compiled = reboot(roles, drain.clone());
        let has = |fun: &str| compiled.low.chunks.iter().any(|chunk| chunk.fun == fun);
        let is_node = roles != ["frontend"];
        assert_eq!(has("drain"), is_node && drain.is_some(), "{roles:?}");
        assert_eq!(has("uncordon"), is_node, "{roles:?}");
        assert_eq!(
            has("etcd_quorum_allows"),
            roles.contains(&"etcd"),
            "{roles:?}"
        );
        text += &steps(&format!("reboot_node, {}", roles.join(" ")), &compiled);
    }
    golden("steps-reboot.txt", &text);
}

/// Every SLS that a step names can be applied alone.
#[test]
fn every_step_compiles_alone() {
    let steps: [(&str, &[&str]); 3] = [
        (
            "bootstrap",
            &[
                "halite.host",
                "halite.services.bundle_server",
                "halite.services.bundle_server.script",
                "halite.services.master",
                "halite.services.minion",
                "halite.base.containerd",
                "halite.base.containerd.kept",
                "halite.base.kubelet.kept",
                "halite.images",
                "halite.images.ahead",
                "halite.base.kubelet",
                "halite.base.kubelet.registers",
                "halite.base.kubelet.elsewhere",
                "halite.leave.etcd",
                "halite.leave.member",
                "halite.leave.plane",
                "halite.base.etcd",
                "halite.base.etcd.data",
                "halite.base.etcd.earlier",
                "halite.base.etcd.member",
                "halite.base.control_plane",
                "halite.base.control_plane.running",
                "halite.base.control_plane.aside",
                "halite.host.keepalived.aside",
            ],
        ),
        (
            "worker",
            &[
                "halite.host",
                "halite.host.hosts",
                "halite.host.firewall",
                "halite.host.repository",
                "halite.base.containerd",
                "halite.base.containerd.kept",
                "halite.base.kubelet.kept",
                "halite.base.containerd.servers",
                "halite.images",
                "halite.images.ahead",
                "halite.base.kubelet",
                "halite.host.local_proxy",
            ],
        ),
        (
            "master",
            &[
                "halite.base.nodes",
                "halite.base.kubeadm_objects",
                "halite.base.network",
                "halite.base.kube_proxy",
                "halite.base.coredns",
                "halite.addons",
                "halite.addons.owned",
            ],
        ),
    ];
    for (name, slss) in steps {
        let (pillar, grains) = fixture(name);
        for sls in slss {
            let compiled = sure(with(&pillar, &grains, |i| {
                compile::step(i, &[(*sls).to_owned()])
            }));
            assert!(!compiled.low.chunks.is_empty(), "{name} {sls}");
        }
    }
}

#[test]
fn the_options_of_a_drain_are_those_that_were_given() {
    let (mut pillar, grains) = fixture("master");
    pillar["node"] = json!("worker-1");
    let drain = |pillar: &serde_json::Value| {
        sure(with(pillar, &grains, |i| {
            compile::step(i, &["halite.orchestrate.drain_node".to_owned()])
        }))
    };
    let plain = drain(&pillar);
    assert_eq!(plain.low.chunks[0].args["node"], "worker-1");
    assert!(!plain.low.chunks[0].args.contains_key("timeout"));
    // The host stays, and so do the containers.
    assert!(!plain.low.chunks[0].args.contains_key("cleaned"));
    pillar["drain"] = json!({"force": true, "timeout": 60, "grace_period": 5});
    let given = drain(&pillar);
    let args = &given.low.chunks[0].args;
    assert_eq!(args["force"], true);
    assert_eq!(
        (&args["timeout"], &args["grace_period"]),
        (&json!(60), &json!(5))
    );
}

/// The operator's own states run before a drain and after a host takes pods again, wherever an
/// operator asks for either.
#[test]
fn hooks_are_around_the_drains_of_single_hosts() {
    let (mut pillar, grains) = fixture("master");
    pillar["node"] = json!("worker-1");
    pillar["drain"] = json!({"timeout": 60});
    pillar["halite"]["hooks"] = json!(["pre_drain", "post_uncordon"]);
    let ids = |pillar: &serde_json::Value, name: &str| {
        let sls = format!("halite.orchestrate.{name}");
        let compiled = sure(with(pillar, &grains, |i| {
            compile::step(i, std::slice::from_ref(&sls))
        }));
        assert_chain(&compiled);
        let chunks = compiled.low.chunks.iter();
        chunks.map(|chunk| chunk.id.clone()).collect::<Vec<_>>()
    };
    // A hook that hangs fails after five minutes.
    let sls = ["halite.orchestrate.drain_node".to_owned()];
    let compiled = sure(with(&pillar, &grains, |i| compile::step(i, &sls)));
    let mut chunks = compiled.low.chunks.iter();
    let hook = chunks.find(|chunk| chunk.id == "pre-drain").unwrap();
    assert_eq!(hook.args["timeout"], 300);
    let mut plain = pillar.clone();
    plain["halite"].as_object_mut().unwrap().remove("hooks");
    for name in ["drain_node", "uncordon_node", "reboot_node"] {
        let mut with_hooks = ids(&pillar, name);
        for pair in [["pre-drain", "drained"], ["uncordoned", "post-uncordon"]] {
            let are_there = pair.map(|id| with_hooks.iter().any(|step| step == id));
            let are_adjacent = with_hooks.windows(2).any(|steps| steps == pair);
            assert!(
                are_adjacent || are_there == [false; 2],
                "{name}: {with_hooks:?}"
            );
        }
        let all = with_hooks.len();
        with_hooks.retain(|id| !["pre-drain", "post-uncordon"].contains(&id.as_str()));
        assert!(with_hooks.len() < all, "{name} has no hook");
        assert_eq!(with_hooks, ids(&plain, name), "{name}");
    }
    // A host that keeps its pods has none.
    for pillar in [&mut pillar, &mut plain] {
        pillar.as_object_mut().unwrap().remove("drain");
    }
    assert_eq!(ids(&pillar, "reboot_node"), ids(&plain, "reboot_node"));
}

/// All API servers decrypt with a key before one encrypts with it.
#[test]
fn a_key_is_rotated_in_stages_on_each_control_plane() {
    let (mut pillar, grains) = fixture("master");
    pillar["halite"]["nodes"] = json!({
        "cp-1": {"roles": ["bootstrap", "control-plane", "etcd"]},
        "worker-1": {"roles": ["worker"]},
    });
    let compiled = |pillar: &serde_json::Value| {
        let compiled = sure(with(pillar, &grains, |i| {
            compile::step(i, &["halite.orchestrate.rotate_encryption".to_owned()])
        }));
        assert_chain(&compiled);
        compiled.low.chunks
    };
    // Each API server has the keys of a stage before the next stage starts.
    let check = |chunks: &[Chunk], planes: &[&str]| {
        let find = |id: &str| chunks.iter().position(|chunk| chunk.id == id);
        let at = |id: &str| find(id).unwrap_or_else(|| panic!("no {id}"));
        for (stage, next) in [
            ("next", "keys-write"),
            ("write", "rewritten"),
            ("only", "keys-end"),
        ] {
            let keys = at(&format!("keys-{stage}"));
            assert_eq!(chunks[keys].args["nodes"], json!(planes), "{stage}");
            for plane in planes {
                let own = at(&format!("{plane}-{stage}"));
                assert!(keys < own && own < at(next), "{plane} {stage}");
                // With others, its address has moved to one of them when it restarts.
                let moved = find(&format!("{plane}-{stage}-vip"));
                let expected = (planes.len() > 1).then(|| own - 1);
                assert_eq!(moved, expected, "{plane} {stage}");
            }
        }
        assert!(at("rewritten") < at("keys-only"));
    };
    check(&compiled(&pillar), &["cp-1"]);
    for name in ["cp-2", "cp-3"] {
        pillar["halite"]["nodes"][name] = json!({"roles": ["control-plane", "etcd"]});
    }
    check(&compiled(&pillar), &["cp-1", "cp-2", "cp-3"]);
}
