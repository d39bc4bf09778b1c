//! Orchestrations and their steps.

use halite_states::compile;
use halite_states::compile::Compiled;
use serde_json::json;

use crate::support::{fixture, sure, with};

#[test]
fn orchestrations_compile() {
    let (pillar, grains) = fixture("master");
    let bootstrap = sure(with(&pillar, &grains, |i| {
        compile::sls(i, &["orchestrate.bootstrap".to_owned()])
    }));
    let steps = |compiled: &Compiled| {
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
        compile::sls(i, &["orchestrate.add_node".to_owned()])
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
    ] {
        let runs = roles
            .as_array()
            .unwrap()
            .iter()
            .any(|role| role != "registry" && role != "frontend");
        pillar["nodes"]["worker-1"]["roles"] = roles;
        pillar["nodes"]["worker-1"]["runs"] = json!({"containers": runs});
        let add = sure(with(&pillar, &grains, |i| {
            compile::sls(i, &["orchestrate.add_node".to_owned()])
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
                "host",
                "halite.bundle_server",
                "halite.master",
                "halite.minion",
                "base.containerd",
                "images",
                "base.kubelet",
                "base.etcd",
                "base.control_plane",
            ],
        ),
        (
            "worker",
            &[
                "host",
                "host.hosts",
                "host.firewall",
                "host.repository",
                "base.containerd",
                "base.containerd.servers",
                "images",
                "base.kubelet",
            ],
        ),
        (
            "master",
            &[
                "base.nodes",
                "base.network",
                "base.kube_proxy",
                "base.coredns",
                "addons",
                "addons.owned",
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
