//! Orchestrations and their steps.

use halite_states::compile;
use halite_states::compile::Compiled;
use serde_json::json;

use crate::support::{fixture, sure, with};

#[test]
fn orchestrations_compile() {
    let (pillar, grains) = fixture("master");
    let bootstrap = sure(with(&pillar, &grains, |i| {
        compile::sls(i, &["halite.orchestrate.bootstrap".to_owned()])
    }));
    let steps = |compiled: &Compiled| {
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
            .low
            .chunks
            .iter()
            .map(|c| c.id.clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        steps(&bootstrap),
        [
            "host",
            "images",
            "containerd",
            "etcd",
            "control-plane",
            "network",
            "ready",
            "custom"
        ]
    );
    let mut pillar = pillar;
    pillar["node"] = json!("worker-1");
    let add = sure(with(&pillar, &grains, |i| {
        compile::sls(i, &["halite.orchestrate.add_node".to_owned()])
    }));
    assert_eq!(
        steps(&add),
        [
            "enrolled",
            "peers",
            "host",
            "containerd",
            "kubelet",
            "node",
            "ready",
            "dns",
            "custom"
        ]
    );
    assert_eq!(add.low.chunks[2].args["tgt"], "worker-1");
    for (roles, wanted) in [
        (
            json!(["worker", "registry"]),
            &[
                "enrolled",
                "peers",
                "host",
                "registry",
                "containerd",
                "kubelet",
                "node",
                "ready",
                "dns",
                "custom",
                "clients",
            ][..],
        ),
        (
            json!(["registry"]),
            &["enrolled", "peers", "host", "registry", "custom", "clients"],
        ),
        (
            json!(["frontend"]),
            &["enrolled", "peers", "host", "custom"],
        ),
        (
            json!(["control-plane", "etcd"]),
            &[
                "enrolled",
                "peers",
                "host",
                "containerd",
                "kubelet",
                "turn",
                "learner",
                "etcd",
                "promoted",
                "control-plane",
                "api-clients",
                "node",
                "ready",
                "dns",
                "custom",
            ],
        ),
    ] {
        let runs = roles
            .as_array()
            .unwrap()
            .iter()
            .any(|role| role != "registry" && role != "frontend");
        pillar["halite"]["nodes"]["worker-1"]["roles"] = roles;
        pillar["halite"]["nodes"]["worker-1"]["runs"] = json!({"containers": runs});
        let add = sure(with(&pillar, &grains, |i| {
            compile::sls(i, &["halite.orchestrate.add_node".to_owned()])
        }));
        assert_eq!(steps(&add), wanted);
    }
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
                "halite.services.master",
                "halite.services.minion",
                "halite.base.containerd",
                "halite.images",
                "halite.base.kubelet",
                "halite.base.etcd",
                "halite.base.etcd.data",
                "halite.base.etcd.member",
                "halite.base.control_plane",
                "halite.base.control_plane.running",
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
                "halite.base.containerd.servers",
                "halite.images",
                "halite.base.kubelet",
            ],
        ),
        (
            "master",
            &[
                "halite.base.nodes",
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
                compile::sls(i, &[(*sls).to_owned()])
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
            compile::sls(i, &["halite.orchestrate.drain_node".to_owned()])
        }))
    };
    let plain = drain(&pillar);
    assert_eq!(plain.low.chunks[0].args["node"], "worker-1");
    assert!(!plain.low.chunks[0].args.contains_key("timeout"));
    pillar["drain"] = json!({"force": true, "timeout": 60, "grace_period": 5});
    let given = drain(&pillar);
    let args = &given.low.chunks[0].args;
    assert_eq!(args["force"], true);
    assert_eq!(
        (&args["timeout"], &args["grace_period"]),
        (&json!(60), &json!(5))
    );
}
