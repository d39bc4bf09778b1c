//! Upgrades: the hosts one after the other, drains, minor versions and pauses.

use halite_states::compile;
use halite_states::compile::Compiled;
use serde_json::json;

use crate::support::{fixture, sure, with};

/// The steps of an upgrade to the bundle 0.2.0: id, function, target, and what the step requires.
fn upgrade(nodes: &[(&str, &str, &str)], cluster: &str) -> Vec<String> {
    upgrade_with(nodes, cluster, &json!({"batch": 2}))
}

fn compiled_upgrade(
    pillar: &serde_json::Value,
    grains: &serde_json::Value,
) -> Result<Compiled, Vec<halite_document::Problem>> {
    with(pillar, grains, |i| {
        compile::step(i, &["halite.orchestrate.upgrade".to_owned()])
    })
}

/// The bundles of a site for an upgrade from Kubernetes 1.35 to 1.36, as an option of
/// [`upgrade_with`]: it replaces the pillar's.
fn two_minors(pillar: &mut serde_json::Value) {
    pillar["halite"]["bundles"] = json!([
        {"version": "0.1.0", "kubernetes": "v1.35.4"},
        {"version": "0.2.0", "kubernetes": "v1.36.3"},
        {"version": "0.3.0", "kubernetes": "v1.36.4"},
    ]);
}

/// The same with options of `ctl upgrade`.
fn upgrade_with(
    nodes: &[(&str, &str, &str)],
    cluster: &str,
    options: &serde_json::Value,
) -> Vec<String> {
    let compiled = compiled_with(nodes, cluster, options);
    let chunks = &compiled.low.chunks;
    let step = |index: usize| {
        let chunk = &chunks[index];
        // A chain: the engine then runs one after the other, and stops at the first that fails.
        let wanted: Vec<usize> = index.checked_sub(1).into_iter().collect();
        assert_eq!(chunk.requisites.require, wanted, "{}", chunk.id);
        let nodes = chunk
            .args
            .get("nodes")
            .and_then(serde_json::Value::as_array);
        let nodes = nodes.map(|nodes| {
            let names = nodes.iter().filter_map(serde_json::Value::as_str);
            names.collect::<Vec<_>>().join(",")
        });
        let on = ["tgt", "node"]
            .iter()
            .find_map(|key| chunk.args.get(*key)?.as_str());
        let on = on.or(nodes.as_deref());
        let what = match chunk.args.get("sls") {
            Some(sls) => sls[0].as_str().unwrap().to_owned(),
            None if chunk.args.contains_key("highstate") => "highstate".to_owned(),
            None => chunk.fun.clone(),
        };
        let what = match chunk.args.get("arg") {
            Some(line) => format!("{what} {}", line[0].as_str().unwrap()),
            None => what,
        };
        let bundle = chunk
            .args
            .get("bundle")
            .map(|bundle| format!(" {}", bundle.as_str().unwrap()));
        format!(
            "{what} {}{}",
            on.unwrap_or_default(),
            bundle.unwrap_or_default()
        )
    };
    (0..chunks.len()).map(step).collect()
}

/// The compiled steps of such an upgrade.
fn compiled_with(
    nodes: &[(&str, &str, &str)],
    cluster: &str,
    options: &serde_json::Value,
) -> Compiled {
    let (mut pillar, grains) = fixture("master");
    let each = nodes.iter().map(|(name, roles, bundle)| {
        let roles: Vec<&str> = roles.split(' ').collect();
        let runs = roles != ["registry"] && roles != ["frontend"];
        let node = json!({"roles": roles, "bundle": bundle, "runs": {"containers": runs}, "controlPlane": "10.0.0.1"});
        ((*name).to_owned(), node)
    });
    pillar["halite"]["nodes"] = serde_json::Value::Object(each.collect());
    let mut first = nodes
        .iter()
        .filter(|(_, roles, _)| roles.contains("bootstrap"));
    pillar["halite"]["master"]["node"] = json!(first.next().unwrap().0);
    pillar["halite"]["bundle"]["version"] = json!(cluster);
    pillar["bundle"] = json!("0.2.0");
    for (key, value) in options.as_object().unwrap() {
        pillar[key] = value.clone();
    }
    if let Some(hooks) = options.get("hooks") {
        pillar["halite"]["hooks"] = hooks.clone();
    }
    if let Some(batch) = options.get("declared") {
        pillar["halite"]["upgrade"]["batch"] = batch.clone();
    }
    if options.get("minor").is_some() {
        two_minors(&mut pillar);
    }
    sure(compiled_upgrade(&pillar, &grains))
}

#[test]
fn an_upgrade_takes_the_members_one_by_one_and_then_the_others() {
    let cp = "registry etcd control-plane";
    let all = [
        ("a-cp", "etcd control-plane", "0.1.0"),
        ("cp-1", &format!("bootstrap {cp}"), "0.1.0"),
        ("w-1", "worker", "0.1.0"),
        ("w-2", "worker", "0.1.0"),
    ];
    let server = "halite.services.bundle_server cp-1";
    let servers = "halite.base.containerd.servers * and not L@master and ( I@halite:node:runs:containers:True or I@halite:node:roles:etcd )";
    assert_eq!(
        upgrade(&all, "0.1.0"),
        [
            "lock ",
            server,
            "halite.images.ahead cp-1,a-cp 0.2.0",
            "halite.images.ahead w-1,w-2 0.2.0",
            "upgrade_turn cp-1 0.2.0",
            "etcd_quorum_allows cp-1",
            "etcd_leader_moved_off cp-1",
            "vip_moved_off cp-1",
            "halite.base.etcd cp-1 0.2.0",
            "halite.base.control_plane.running cp-1 0.2.0",
            "highstate cp-1 0.2.0",
            "wait_for_node cp-1",
            "pod_network cp-1",
            "uncordon cp-1",
            "upgrade_turn a-cp 0.2.0",
            "etcd_quorum_allows a-cp",
            "etcd_leader_moved_off a-cp",
            "vip_moved_off a-cp",
            "halite.base.etcd a-cp 0.2.0",
            "halite.base.control_plane.running a-cp 0.2.0",
            "highstate a-cp 0.2.0",
            "wait_for_node a-cp",
            "pod_network a-cp",
            "uncordon a-cp",
            "highstate master 0.2.0",
            "upgrade_turn w-1,w-2 0.2.0",
            "highstate w-1,w-2 0.2.0",
            "wait_for_node w-1",
            "pod_network w-1",
            "uncordon w-1",
            "wait_for_node w-2",
            "pod_network w-2",
            "uncordon w-2",
            servers,
        ]
    );
    // Hosts finished before an interruption are not repeated, but may have been left cordoned.
    let half = [
        ("a-cp", "etcd control-plane", "0.2.0"),
        ("cp-1", &format!("bootstrap {cp}"), "0.2.0"),
        ("w-1", "worker", "0.2.0"),
        ("w-2", "worker", "0.1.0"),
    ];
    assert_eq!(
        upgrade(&half, "0.2.0"),
        [
            "lock ",
            server,
            "pod_network a-cp",
            "uncordon a-cp",
            "pod_network cp-1",
            "uncordon cp-1",
            "pod_network w-1",
            "uncordon w-1",
            "halite.images.ahead w-2 0.2.0",
            "upgrade_turn w-2 0.2.0",
            "highstate w-2 0.2.0",
            "wait_for_node w-2",
            "pod_network w-2",
            "uncordon w-2",
            servers
        ]
    );
    let done = half.map(|(name, roles, _)| (name, roles, "0.2.0"));
    let uncordoned = ["a-cp", "cp-1", "w-1", "w-2"]
        .map(|name| [format!("pod_network {name}"), format!("uncordon {name}")])
        .concat();
    let steps = upgrade(&done, "0.2.0");
    assert_eq!(steps[..2], ["lock ", server]);
    assert_eq!(steps[2..steps.len() - 1], uncordoned);
    assert_eq!(steps[steps.len() - 1], servers);
}

#[test]
fn an_upgrade_without_a_batch_takes_the_declared_one() {
    let all = [
        ("cp-1", "bootstrap registry etcd control-plane", "0.2.0"),
        ("w-1", "worker", "0.1.0"),
        ("w-2", "worker", "0.1.0"),
        ("w-3", "worker", "0.1.0"),
    ];
    let turns = |options: &serde_json::Value| {
        let mut steps = upgrade_with(&all, "0.2.0", options);
        steps.retain(|step| step.starts_with("upgrade_turn"));
        steps.len()
    };
    assert_eq!(turns(&json!({})), 3, "a quarter, at least one");
    assert_eq!(turns(&json!({"declared": 2})), 2);
    assert_eq!(turns(&json!({"declared": "100%"})), 1);
    assert_eq!(turns(&json!({"declared": 2, "batch": "1"})), 3);
}

#[test]
fn an_upgrade_backs_up_first_and_drains_each_host_before_it_changes() {
    let all = [
        ("cp-1", "bootstrap registry etcd control-plane", "0.1.0"),
        ("f-1", "frontend", "0.1.0"),
        ("w-1", "worker", "0.1.0"),
        ("w-2", "worker", "0.1.0"),
    ];
    let options = json!({"batch": "50%", "backup": true, "drain": {"force": true, "timeout": 60}});
    let server = "halite.services.bundle_server cp-1";
    let backup = "function { /usr/local/bin/ctl backup create || test $? -eq 3; } && /usr/local/bin/ctl backup verify cp-1";
    let servers = "halite.base.containerd.servers * and not L@master and ( I@halite:node:runs:containers:True or I@halite:node:roles:etcd )";
    assert_eq!(
        upgrade_with(&all, "0.1.0", &options),
        [
            "lock ",
            server,
            backup,
            "halite.images.ahead cp-1 0.2.0",
            "halite.images.ahead f-1,w-1,w-2 0.2.0",
            "upgrade_turn cp-1 0.2.0",
            "etcd_quorum_allows cp-1",
            "etcd_leader_moved_off cp-1",
            "vip_moved_off cp-1",
            "drain cp-1",
            "etcd_quorum_allows cp-1",
            "etcd_leader_moved_off cp-1",
            "vip_moved_off cp-1",
            "halite.base.etcd cp-1 0.2.0",
            "halite.base.control_plane.running cp-1 0.2.0",
            "highstate cp-1 0.2.0",
            "wait_for_node cp-1",
            "pod_network cp-1",
            "uncordon cp-1",
            "highstate master 0.2.0",
            "upgrade_turn f-1 0.2.0",
            "highstate f-1 0.2.0",
            "upgrade_turn w-1 0.2.0",
            "drain w-1",
            "highstate w-1 0.2.0",
            "wait_for_node w-1",
            "pod_network w-1",
            "uncordon w-1",
            "upgrade_turn w-2 0.2.0",
            "drain w-2",
            "highstate w-2 0.2.0",
            "wait_for_node w-2",
            "pod_network w-2",
            "uncordon w-2",
            servers,
        ]
    );
    // The only node has nowhere to send its pods.
    let alone = upgrade_with(&all[..1], "0.1.0", &options);
    assert!(
        alone.iter().any(|step| step.starts_with("function")),
        "{alone:?}"
    );
    assert!(
        !alone
            .iter()
            .any(|step| step.starts_with("drain") || step.starts_with("uncordon")),
        "{alone:?}"
    );
}

#[test]
fn the_next_minor_version_has_its_rights_first_and_is_never_under_running_pods() {
    let all = [
        ("cp-1", "bootstrap registry etcd control-plane", "0.1.0"),
        ("w-1", "worker", "0.1.0"),
    ];
    let options = json!({"minor": true, "drain": {"timeout": 60}});
    let steps = upgrade_with(&all, "0.1.0", &options);
    let ahead = "halite.base.kubeadm_objects.ahead master 0.2.0";
    let at = |step: &str| steps.iter().position(|own| own == step).unwrap();
    assert!(at("halite.images.ahead w-1 0.2.0") < at(ahead));
    assert!(at(ahead) < at("etcd_quorum_allows cp-1"));
    // The new kubelet replaces all static pods once more.
    let host = at("highstate cp-1 0.2.0");
    assert_eq!(
        steps[host - 3..host],
        [
            "etcd_quorum_allows cp-1",
            "etcd_leader_moved_off cp-1",
            "vip_moved_off cp-1"
        ]
    );
    assert!(at("halite.base.control_plane.running cp-1 0.2.0") < at("highstate cp-1 0.2.0"));
    assert!(at("highstate cp-1 0.2.0") < at("highstate master 0.2.0"));
    assert!(at("highstate master 0.2.0") < at("drain w-1"));
    // Only the worker is left: its kubelet still gets another minor version.
    let left = [(all[0].0, all[0].1, "0.2.0"), all[1]];
    let steps = upgrade_with(&left, "0.2.0", &options);
    assert!(!steps.contains(&ahead.to_owned()), "{steps:?}");
    // From a patch release to another one nothing changes.
    let patch = all.map(|(name, roles, _)| (name, roles, "0.3.0"));
    let steps = upgrade_with(&patch, "0.3.0", &json!({"minor": true}));
    assert!(!steps.contains(&ahead.to_owned()), "{steps:?}");

    let refused = |nodes: &[(&str, &str, &str)]| {
        let (mut pillar, grains) = fixture("master");
        let each = nodes.iter().map(|(name, roles, bundle)| {
            let roles: Vec<&str> = roles.split(' ').collect();
            let node = json!({"roles": roles, "bundle": bundle, "runs": {"containers": true}});
            ((*name).to_owned(), node)
        });
        pillar["halite"]["nodes"] = serde_json::Value::Object(each.collect());
        pillar["halite"]["master"]["node"] = json!("cp-1");
        pillar["bundle"] = json!("0.2.0");
        two_minors(&mut pillar);
        let compiled = compiled_upgrade(&pillar, &grains);
        compiled.err().map(|problems| problems[0].to_string())
    };
    for nodes in [&all, &left] {
        let why = refused(nodes).unwrap();
        assert!(why.contains("omit --no-drain"), "{why}");
    }
    // The only node is never drained.
    assert_eq!(refused(&all[..1]), None);
}

#[test]
fn an_upgrade_can_pause_between_the_control_planes_and_the_others() {
    let all = [
        ("cp-1", "bootstrap registry etcd control-plane", "0.1.0"),
        ("w-1", "worker", "0.1.0"),
    ];
    let options = json!({"batch": 1, "pause_after": "control-plane"});
    let steps = upgrade_with(&all, "0.1.0", &options);
    assert_eq!(
        steps[steps.len() - 2..],
        ["highstate master 0.2.0", "pause "]
    );
    // All control planes have the bundle, but the objects do not: it still pauses.
    let half = [
        ("cp-1", "bootstrap registry etcd control-plane", "0.2.0"),
        all[1],
    ];
    let steps = upgrade_with(&half, "0.1.0", &options);
    assert_eq!(
        steps[steps.len() - 2..],
        ["highstate master 0.2.0", "pause "]
    );
    // The objects have it, too: the same command continues with the others.
    let steps = upgrade_with(&half, "0.2.0", &options);
    assert!(
        steps.contains(&"highstate w-1 0.2.0".to_owned()),
        "{steps:?}"
    );
    assert!(!steps.contains(&"pause ".to_owned()), "{steps:?}");
    // Without other hosts there is nothing to pause for.
    let alone = upgrade_with(&all[..1], "0.1.0", &options);
    assert!(!alone.contains(&"pause ".to_owned()), "{alone:?}");
}

/// Each host returns with its kubelet first, and the master's host last.
#[test]
fn a_return_takes_the_hosts_in_the_reverse_order() {
    let cp = "registry etcd control-plane";
    let all = [
        ("a-cp", "etcd control-plane", "0.3.0"),
        ("cp-1", &format!("bootstrap {cp}"), "0.3.0"),
        ("w-1", "worker", "0.3.0"),
        ("w-2", "worker", "0.2.0"),
        ("w-3", "worker", "0.2.0"),
    ];
    let options =
        json!({"batch": 1, "back": true, "plan": {"begun": ["w-3"]}, "drain": {"timeout": 60}});
    let steps = upgrade_with(&all, "0.3.0", &options);
    let turns: Vec<&String> = steps
        .iter()
        .filter(|step| step.starts_with("upgrade_turn") || *step == "highstate master 0.2.0")
        .collect();
    assert_eq!(
        turns,
        [
            "upgrade_turn w-3 0.2.0",
            "upgrade_turn w-1 0.2.0",
            "highstate master 0.2.0",
            "upgrade_turn a-cp 0.2.0",
            "upgrade_turn cp-1 0.2.0",
        ]
    );
    let at = |wanted: &str| steps.iter().position(|step| step == wanted).unwrap();
    let order = [
        "etcd_quorum_allows cp-1",
        "etcd_leader_moved_off cp-1",
        "vip_moved_off cp-1",
        "drain cp-1",
        "halite.base.kubelet cp-1 0.2.0",
        "halite.base.etcd cp-1 0.2.0",
        "halite.base.control_plane.running cp-1 0.2.0",
        "highstate cp-1 0.2.0",
        "wait_for_node cp-1",
        "uncordon cp-1",
    ];
    assert!(
        order.windows(2).all(|two| at(two[0]) < at(two[1])),
        "{steps:?}"
    );
    // Hosts that have not returned yet may be the reason why pods do not reach each other.
    assert!(
        !steps.iter().any(|step| step.starts_with("pod_network")),
        "{steps:?}"
    );
    // An upgrade does not take the kubelet first.
    let forward = upgrade_with(&all, "0.3.0", &json!({"batch": 1}));
    assert!(
        !forward.iter().any(|step| step.contains("kubelet")),
        "{forward:?}"
    );
}

/// A kubelet that stays new would keep the API servers from their return, and the run would stop in
/// the middle of the first one.
#[test]
fn a_return_does_not_leave_out_hosts_that_have_the_next_bundle() {
    let all = [
        ("cp-1", "bootstrap registry etcd control-plane", "0.3.0"),
        ("cp-2", "etcd control-plane", "0.2.0"),
        ("w-1", "worker", "0.3.0"),
        ("w-2", "worker", "0.2.0"),
        ("w-3", "worker", "0.2.0"),
    ];
    let begun = json!({"begun": ["cp-2", "master", "w-2"]});
    let options = json!({"batch": 2, "back": true, "plan": begun, "drain": {"timeout": 60}, "hooks": ["post_uncordon"]});
    let compiled = compiled_with(&all, "0.2.0", &options);
    let values = |id: &str| {
        let mut chunks = compiled.low.chunks.iter();
        let chunk = chunks.find(|chunk| chunk.id == id);
        let value = |key: &str| chunk.and_then(|chunk| chunk.args.get(key)?.as_str());
        (value("tgt"), value("offline"))
    };
    // A host that has begun to change has the images already, and perhaps no containerd that
    // serves.
    assert_eq!(values("images-workers"), (Some("w-1"), Some("fail")));
    assert_eq!(values("images-control-plane"), (Some("cp-1"), Some("fail")));
    assert_eq!(values("workers-1"), (Some("w-2"), Some("skip")));
    assert_eq!(values("workers-2"), (Some("w-1"), Some("fail")));
    assert_eq!(values("objects").0, Some("master"), "they had begun");
    assert_eq!(values("unkept"), (Some("w-3"), Some("skip")));
    let steps = upgrade_with(&all, "0.2.0", &options);
    let hook = |host: &str| steps.contains(&format!("custom.hooks.post_uncordon {host}"));
    assert!(hook("w-1") && hook("w-2"), "{steps:?}");
    assert!(!hook("w-3"), "it never left its service: {steps:?}");
    // An upgrade leaves out workers that are not connected.
    let forward = json!({"batch": 2});
    let compiled = compiled_with(&all, "0.3.0", &forward);
    let mut workers = compiled.low.chunks.iter();
    let workers = workers.find(|chunk| chunk.id == "workers-1").unwrap();
    assert_eq!(workers.args["offline"], "skip");
}

#[test]
fn hooks_of_the_operator_are_around_each_drain() {
    let all = [
        ("cp-1", "bootstrap registry etcd control-plane", "0.1.0"),
        ("w-1", "worker", "0.1.0"),
    ];
    let drained = json!({"drain": {"timeout": 60}, "hooks": ["pre_drain", "post_uncordon"]});
    let steps = upgrade_with(&all, "0.1.0", &drained);
    let at = |wanted: &str| steps.iter().position(|step| step == wanted).unwrap();
    for name in ["cp-1", "w-1"] {
        let before = at(&format!("custom.hooks.pre_drain {name}"));
        assert_eq!(at(&format!("drain {name}")), before + 1);
        let after = at(&format!("custom.hooks.post_uncordon {name}"));
        assert_eq!(at(&format!("uncordon {name}")) + 1, after);
    }
    let kept = upgrade_with(
        &all,
        "0.1.0",
        &json!({"hooks": ["pre_drain", "post_uncordon"]}),
    );
    assert!(!kept.iter().any(|step| step.contains("hooks")), "{kept:?}");
}
