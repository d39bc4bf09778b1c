//! The view of a minion: the contract with the state tree, and the visibility of each secret.

use std::collections::BTreeSet;

use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::declaration::Declaration;
use halite_pillar::host_facts::HostFacts;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::node::Node;
use halite_pillar::resolve;
use halite_pillar::resolve::Evidence;
use halite_pillar::role::Role;
use halite_pillar::validate::Context;
use halite_pillar::view::{Pki, UNKNOWN, ViewError, allowed_secrets, own_secret, view};
use halite_secrets::reference::{PREFIX, fill, paths_in};
use halite_secrets::{SecretText, reference};
use proptest::prelude::*;
use serde_json::{Value, json};

const CLUSTER: &str = "apiVersion: halite/v1
kind: Cluster
metadata: {name: prod}
networks:
  controlPlane: {cidrs: [10.0.0.0/24, 10.1.0.0/24]}
  workloadPlane: {cidrs: [10.2.0.0/24]}
kubernetes: {version: \"1.36\"}
custom: {a: {x: cluster, y: cluster}, list: [1]}
secrets:
  smtp: {value: hunter2-hunter2, roles: [worker]}
  only: {value: canary-canary, nodes: [worker-1]}
";

fn text(file: &str, text: impl Into<String>) -> Text {
    Text {
        file: file.to_owned(),
        text: text.into(),
    }
}

fn declaration() -> Declaration {
    let bootstrap = Node::new(
        "bootstrap-1",
        Some("10.0.0.11".parse().unwrap()),
        &halite_pillar::role::BOOTSTRAP_ROLES,
    );
    let mut worker = Node::new("worker-1", None, &[Role::Worker]);
    worker.custom = json!({"a": {"y": "node"}, "list": [2]})
        .as_object()
        .unwrap()
        .clone();
    let texts = Texts {
        cluster: text("cluster.yaml", CLUSTER),
        nodes: [&bootstrap, &worker]
            .map(|node| {
                text(
                    &format!("nodes/{}.yaml", node.metadata.name),
                    node.to_text(),
                )
            })
            .to_vec(),
        custom: Some(text(
            "custom/pillar.yaml",
            "a: {x: file, z: file}\nown: yes\n",
        )),
        sealed: None,
    };
    load(&texts, &Context::default()).unwrap()
}

fn bundle() -> BundleFacts {
    BundleFacts {
        path: "/media/halite".into(),
        manifest: "ab".into(),
        ..BundleFacts::new("0.1.0".parse().unwrap(), "v1.36.3")
    }
}

#[test]
fn the_view_has_the_agreed_shape() {
    let pki = Pki {
        encryption: None,
        certificates: [("kubernetes".to_owned(), "CERT".to_owned())].into(),
        signers: [].into(),
        stages: [].into(),
        service_account: Some("PUB".to_owned()),
    };
    let view = view(&declaration(), &bundle(), &pki, "bootstrap-1").unwrap();
    for (pointer, wanted) in [
        (
            "/halite/cluster",
            json!({"name": "prod", "domain": "cluster.local"}),
        ),
        ("/halite/networks/pods", json!("10.233.0.0/16")),
        ("/halite/networks/apiServiceIP", json!("10.96.0.1")),
        ("/halite/networks/dnsServiceIP", json!("10.96.0.10")),
        (
            "/halite/networks/workloadPlane/cidrs",
            json!(["10.2.0.0/24"]),
        ),
        ("/halite/apiServer/endpoint", json!("api.prod.internal")),
        ("/halite/apiServer/address", json!("10.0.0.11")),
        ("/halite/apiServer/vip", Value::Null),
        ("/halite/apiServer/keepalived", json!(false)),
        ("/halite/kubernetes/version", json!("v1.36.3")),
        (
            "/halite/bundle/url",
            json!("https://10.0.0.11:4551/bundles/0.1.0"),
        ),
        (
            "/halite/bundle/servers",
            json!(["https://10.0.0.11:4551/bundles/0.1.0"]),
        ),
        (
            "/halite/bundles",
            json!([{"version": "0.1.0", "kubernetes": "v1.36.3", "path": "/media/halite", "manifest": "ab"}]),
        ),
        (
            "/halite/master",
            json!({"node": "bootstrap-1", "standbys": [], "address": "10.0.0.11", "port": 4550, "masters": ["10.0.0.11:4550"],
                   "jobs": {"keepDays": 30, "keepLast": 100}}),
        ),
        (
            "/halite/node/roles",
            json!(["bootstrap", "registry", "etcd", "control-plane"]),
        ),
        (
            "/halite/node/runs",
            json!({"containers": true, "master": true, "standby": false}),
        ),
        ("/halite/node/controlPlane", json!("10.0.0.11")),
        (
            "/halite/node/taints",
            json!([{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]),
        ),
        (
            "/halite/pki/kubernetes",
            json!({"cert": "CERT", "key": reference::for_path("pki.kubernetes.key")}),
        ),
        ("/halite/pki/etcd/cert", json!(UNKNOWN)),
        ("/halite/pki/site", json!({"cert": UNKNOWN})),
        (
            "/halite/pki/sa",
            json!({"pub": "PUB", "key": reference::for_path("pki.sa.key")}),
        ),
        (
            "/halite/kubeProxy",
            json!({"mode": "nftables", "config": {}}),
        ),
        (
            "/halite/addons",
            json!({"metricsServer": false, "localPath": false}),
        ),
        ("/halite/charts", json!([])),
        ("/halite/siteRegistry/enabled", json!(false)),
        ("/halite/siteRegistry/name", json!("registry.prod.internal")),
        ("/halite/siteRegistry/node", Value::Null),
        ("/halite/cni", json!({"plugin": "flannel", "mtu": null})),
        (
            "/halite/containerd",
            json!({"restrictOomScoreAdj": false, "config": {}, "registries": {}}),
        ),
        ("/halite/trust", json!({"certificates": {}})),
        (
            "/halite/proxy",
            json!({"http": null, "https": null, "noProxy": [
                "localhost", "127.0.0.0/8", "10.0.0.0/24", "10.1.0.0/24", "10.2.0.0/24", "10.233.0.0/16", "10.96.0.0/12",
                "api.prod.internal", ".svc", ".cluster.local",
            ]}),
        ),
        ("/halite/time", json!({"servers": []})),
        ("/halite/host/manageTime", json!(false)),
        ("/halite/host/manageSwap", json!(true)),
        (
            "/halite/host/kernelModules",
            json!(["overlay", "br_netfilter", "nf_conntrack"]),
        ),
        (
            "/halite/firewall/sources/management",
            json!(["10.0.0.0/24", "10.1.0.0/24"]),
        ),
        ("/halite/firewall/sources/loadBalancers", json!([])),
        ("/halite/firewall/podsToHosts", json!("deny")),
        ("/halite/certificates", json!({"renew": "automatic"})),
        ("/halite/firewall/nodePorts/cidrs", json!(["10.2.0.0/24"])),
        ("/halite/nodes/worker-1/roles", json!(["worker"])),
        ("/halite/secrets", json!({})),
        (
            "/custom",
            json!({"a": {"x": "cluster", "z": "file", "y": "cluster"}, "own": true, "list": [1]}),
        ),
    ] {
        assert_eq!(view.pointer(pointer), Some(&wanted), "{pointer}");
    }
}

#[test]
fn a_worker_sees_its_own_and_no_authority_keys() {
    let declaration = declaration();
    let view = view(&declaration, &bundle(), &Pki::default(), "worker-1").unwrap();
    assert_eq!(
        paths_in(&view),
        BTreeSet::from(["secrets.only".to_owned(), "secrets.smtp".to_owned()])
    );
    assert_eq!(view["halite"]["pki"]["sa"], json!({}));
    assert_eq!(
        view["custom"]["a"],
        json!({"x": "cluster", "z": "file", "y": "node"})
    );
    assert_eq!(view["custom"]["list"], json!([2]));
    assert_eq!(
        own_secret(&declaration, "worker-1", "secrets.only").as_deref(),
        Some("canary-canary")
    );
    assert_eq!(
        own_secret(&declaration, "bootstrap-1", "secrets.only"),
        None
    );
}

/// The registry's users are for its own host, and the pulling user for hosts that run containers;
/// no host sees the passwords themselves.
#[test]
fn the_registrys_secrets_are_for_its_host_and_for_those_that_pull() {
    let mut declaration = declaration();
    for (name, role) in [("infra-1", Role::Infra), ("store-1", Role::Registry)] {
        let mut node = declaration.nodes["worker-1"].clone();
        node.value = Node::new(name, Some("10.0.0.20".parse().unwrap()), &[role]);
        declaration.nodes.insert(name.parse().unwrap(), node);
    }
    let own = |password: &str| halite_pillar::own_secret::OwnSecret {
        value: Some(SecretText::new(password)),
        ..Default::default()
    };
    declaration.cluster.value.secrets = [
        ("p".to_owned(), own("canary-ci")),
        ("q".to_owned(), own("canary-dev")),
    ]
    .into();
    let registry = &mut declaration.cluster.value.site_registry;
    registry.enabled = true;
    registry.users = [("ci", "p"), ("dev", "q")]
        .map(|(user, name)| (user.into(), name.into()))
        .into();
    registry.pull_as = Some("ci".to_owned());
    let of_registry = |declaration: &Declaration, name: &str| -> Vec<String> {
        allowed_secrets(declaration, name)
            .into_iter()
            .filter(|path| !path.starts_with("pki."))
            .collect()
    };
    let (users, pull) = ("siteRegistry.htpasswd", "siteRegistry.pull");
    assert_eq!(of_registry(&declaration, "bootstrap-1"), [users, pull]);
    assert_eq!(of_registry(&declaration, "worker-1"), [pull]);
    declaration.cluster.value.site_registry.node = Some("store-1".to_owned());
    for (name, wanted) in [
        ("bootstrap-1", vec![pull]),
        ("worker-1", vec![pull]),
        ("infra-1", vec![pull]),
        ("store-1", vec![users]),
    ] {
        assert_eq!(of_registry(&declaration, name), wanted, "{name}");
        let view = view(&declaration, &bundle(), &Pki::default(), name).unwrap();
        assert!(!view.to_string().contains("canary"), "{view}");
        for (key, path) in [("htpasswd", users), ("pull", pull)] {
            let wanted = if wanted.contains(&path) {
                json!(reference::for_path(path))
            } else {
                Value::Null
            };
            assert_eq!(view["halite"]["siteRegistry"][key], wanted, "{name}: {key}");
        }
        assert_eq!(view["halite"]["siteRegistry"]["node"], "store-1");
        assert_eq!(view["halite"]["siteRegistry"]["address"], "10.0.0.20");
    }
    let file = own_secret(&declaration, "store-1", users).unwrap();
    assert!(
        file.starts_with("ci:$2y$") && file.contains("\ndev:$2y$") && !file.contains("canary"),
        "{file}"
    );
    assert_eq!(own_secret(&declaration, "store-1", pull), None);
    declaration.cluster.value.site_registry.enabled = false;
    for name in ["bootstrap-1", "worker-1", "store-1"] {
        assert_eq!(of_registry(&declaration, name), [""; 0], "{name}");
    }
}

#[test]
fn every_host_that_serves_the_bundle_is_named_the_first_one_first() {
    let mut declaration = declaration();
    let mut further = declaration.nodes["bootstrap-1"].clone();
    for (name, address, roles) in [
        ("b", Some("10.0.0.13"), &[Role::Registry][..]),
        ("a", Some("10.0.0.14"), &[Role::Worker, Role::Registry]),
        ("not-reported-yet", None, &[Role::Registry]),
    ] {
        further.value = Node::new(name, address.map(|address| address.parse().unwrap()), roles);
        declaration
            .nodes
            .insert(name.parse().unwrap(), further.clone());
    }
    let wanted = ["10.0.0.11", "10.0.0.14", "10.0.0.13"]
        .map(|host| format!("https://{host}:4551/bundles/0.1.0"));
    for name in ["bootstrap-1", "a", "worker-1", "master"] {
        let view = view(&declaration, &bundle(), &Pki::default(), name).unwrap();
        assert_eq!(view["halite"]["bundle"]["servers"], json!(wanted), "{name}");
        assert_eq!(view["halite"]["bundle"]["url"], json!(wanted[0]), "{name}");
    }
}

#[test]
fn the_master_as_a_target_sees_no_secret() {
    let view = view(&declaration(), &bundle(), &Pki::default(), "master").unwrap();
    assert_eq!(paths_in(&view), BTreeSet::new());
    assert_eq!(view["halite"]["node"]["name"], "master");
    assert_eq!(view["halite"]["nodes"].as_object().unwrap().len(), 2);
}

#[test]
fn there_is_no_view_of_a_stranger() {
    let declaration = declaration();
    let stranger = view(&declaration, &bundle(), &Pki::default(), "worker-9");
    assert_eq!(stranger, Err(ViewError::NoSuchNode("worker-9".into())));
    let mut without = declaration;
    without.nodes.remove("bootstrap-1");
    assert_eq!(
        view(&without, &bundle(), &Pki::default(), "worker-1"),
        Err(ViewError::NoBootstrap)
    );
}

#[test]
fn a_declaration_shows_no_secret_in_debug_or_json() {
    let declaration = declaration();
    let shown = format!(
        "{declaration:?}{}",
        serde_json::to_string(&declaration.cluster.value).unwrap()
    );
    assert!(
        !shown.contains("hunter2") && !shown.contains("canary-canary"),
        "{shown}"
    );
}

#[test]
fn addresses_are_chosen_in_the_order_of_the_networks_and_recorded_once() {
    let mut declaration = declaration();
    let host = |addresses: Value| {
        HostFacts::from_grains("worker-1", &json!({"ip4_interfaces": addresses}))
    };
    let nowhere = resolve::node(
        &mut declaration,
        "worker-1",
        &host(json!({"eth0": ["10.0.0.12"]})),
        Evidence::OnTheHost,
    );
    assert!(
        nowhere
            .err()
            .unwrap()
            .message
            .contains("workload-plane network; it has: 10.0.0.12")
    );
    let both = host(json!({"a": ["10.1.0.12"], "b": ["10.2.0.12"], "c": ["10.0.0.12"]}));
    let resolved = resolve::node(&mut declaration, "worker-1", &both, Evidence::OnTheHost).unwrap();
    assert_eq!(resolved.addresses.control_plane.to_string(), "10.0.0.12");
    assert_eq!(resolved.addresses.workload_plane.to_string(), "10.2.0.12");
    let recorded = resolved.node_text.unwrap();
    assert!(
        recorded.contains("\nresolved:\n  controlPlane: 10.0.0.12\n  workloadPlane: 10.2.0.12\n"),
        "{recorded}"
    );
    let again = resolve::node(
        &mut declaration,
        "worker-1",
        &host(json!({"a": ["10.1.0.12"]})),
        Evidence::Connection(None),
    )
    .unwrap();
    assert_eq!(
        (again.node_text, again.addresses),
        (None, resolved.addresses)
    );
}

#[test]
fn the_vip_is_never_a_hosts_own_address() {
    let cluster = CLUSTER.replace("custom:", "apiServer: {vip: 10.0.0.100}\ncustom:");
    let cluster = cluster.replace("  workloadPlane: {cidrs: [10.2.0.0/24]}\n", "");
    let node = Node::new("bootstrap-1", None, &halite_pillar::role::BOOTSTRAP_ROLES);
    let worker = Node::new("worker-1", None, &[Role::Worker]);
    let texts = Texts {
        cluster: text("cluster.yaml", cluster),
        nodes: vec![
            text("nodes/bootstrap-1.yaml", node.to_text()),
            text("nodes/worker-1.yaml", worker.to_text()),
        ],
        ..Texts::default()
    };
    let mut declaration = load(&texts, &Context::default()).unwrap();
    let grains = json!({"ip4_interfaces": {"eth0": ["10.0.0.100", "10.0.0.11"]}});
    let host = HostFacts::from_grains("bootstrap-1", &grains);
    let resolved =
        resolve::node(&mut declaration, "bootstrap-1", &host, Evidence::OnTheHost).unwrap();
    assert_eq!(resolved.addresses.control_plane.to_string(), "10.0.0.11");
    let view = view(&declaration, &bundle(), &Pki::default(), "bootstrap-1").unwrap();
    assert_eq!(view["halite"]["apiServer"]["address"], "10.0.0.100");
    assert_eq!(view["halite"]["apiServer"]["keepalived"], true);
}

fn roles() -> impl Strategy<Value = Vec<Role>> {
    prop::collection::btree_set(prop::sample::select(Role::ALL.to_vec()), 1..6)
        .prop_map(|set| set.into_iter().collect())
}

proptest! {
    /// For all roles and all hosts of the secrets: a view contains exactly the references that the
    /// roles allow, and never the text of a secret.
    #[test]
    fn a_secret_reaches_only_the_hosts_that_need_it(
        each in prop::collection::vec(roles(), 1..5),
        secret_roles in prop::collection::vec(roles(), 0..4),
        secret_node in 0usize..5,
    ) {
        let mut declaration = declaration();
        declaration.nodes.retain(|name, _| name == "bootstrap-1");
        let template = declaration.nodes["bootstrap-1"].clone();
        for (index, roles) in each.iter().enumerate() {
            let mut node = template.clone();
            node.value = Node::new(&format!("n{index}"), None, roles);
            declaration.nodes.insert(format!("n{index}").parse().unwrap(), node);
        }
        declaration.cluster.value.secrets.clear();
        for (index, roles) in secret_roles.iter().enumerate() {
            let secret = halite_pillar::own_secret::OwnSecret {
                value: Some(SecretText::new(format!("canary-{index}"))),
                roles: roles.clone(),
                nodes: vec![format!("n{secret_node}")],
            };
            declaration.cluster.value.secrets.insert(format!("s{index}"), secret);
        }
        for (index, roles) in each.iter().enumerate() {
            let name = format!("n{index}");
            let mut shown = view(&declaration, &bundle(), &Pki::default(), &name).unwrap();
            let mut wanted = BTreeSet::new();
            if roles.contains(&Role::ControlPlane) {
                wanted.extend(["pki.kubernetes.key", "pki.front-proxy.key", "pki.sa.key"].map(str::to_owned));
            }
            if roles.contains(&Role::Etcd) && roles.contains(&Role::ControlPlane) {
                wanted.insert("pki.etcd.key".to_owned());
            }
            for (number, secret) in secret_roles.iter().enumerate() {
                if secret_node == index || secret.iter().any(|role| roles.contains(role)) {
                    wanted.insert(format!("secrets.s{number}"));
                }
            }
            prop_assert_eq!(paths_in(&shown), wanted.clone());
            prop_assert_eq!(allowed_secrets(&declaration, &name), wanted.clone());
            prop_assert!(!shown.to_string().contains("canary-"));
            let used = fill(&mut shown, &|path| Some(format!("real {path}"))).unwrap();
            prop_assert_eq!(used, wanted);
            prop_assert!(!shown.to_string().contains(PREFIX));
        }
    }

    /// Recording never changes other text, and can be read back.
    #[test]
    fn a_record_is_read_back(comment in "[ -~]{0,30}", a in 1u8..254, b in 1u8..254, joined in any::<bool>(), upgraded in any::<bool>()) {
        let text = format!("# {comment}\napiVersion: halite/v1\nkind: Node\nmetadata: {{name: w}} # {comment}\nroles: [worker]\n");
        let resolved = halite_pillar::node::ResolvedNode {
            control_plane: [10, 0, 0, a].into(),
            workload_plane: [10, 0, 0, b].into(),
            joined: joined != upgraded,
            vrrp_priority: None,
            etcd: joined.then(|| halite_pillar::node::ResolvedMember {
                member: "w".into(),
                initial_cluster: format!("x=https://10.0.0.{b}:2380,w=https://10.0.0.{a}:2380"),
                cluster_id: None,
                member_id: None,
            }),
            bundle: upgraded.then(|| format!("1.{a}").parse().unwrap()),
            kubernetes: upgraded.then(|| format!("v1.36.{b}")),
        };
        let recorded = resolve::record("f", &text, &halite_pillar::node::node_block(&resolved)).unwrap();
        prop_assert!(recorded.starts_with(&text));
        let node = halite_secrets::yaml::parse("f", &recorded).unwrap();
        let back = node.get("resolved").unwrap().to_json();
        prop_assert_eq!(back, serde_json::to_value(&resolved).unwrap());
        prop_assert_eq!(resolve::record("f", &recorded, &halite_pillar::node::node_block(&resolved)).unwrap(), recorded);
    }
}
