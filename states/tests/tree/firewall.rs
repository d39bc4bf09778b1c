//! The rules of the firewall, and the sets that they name.

use std::collections::BTreeSet;

use halite_states::compile::Compiled;
use serde_json::{Value, json};

use crate::support::{chunk, fixture, highstate};

/// The rules of a policy, with every set replaced by its addresses, so that a test shows which
/// hosts reach which ports.
fn rules(compiled: &Compiled, policy: &str) -> Vec<String> {
    let rules = chunk(compiled, "firewalld.policy", policy)
        .args
        .get("rich_rules");
    let mut rules: Vec<String> = rules
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|rule| rule.as_str().unwrap().to_owned())
        .collect();
    for (name, entries) in sets(compiled) {
        let entries = entries.to_string().replace('"', "");
        for rule in &mut rules {
            *rule = rule.replace(&format!("ipset=\"{name}\""), &entries);
        }
    }
    rules
}

fn sets(compiled: &Compiled) -> Vec<(String, Value)> {
    let sets = &chunk(compiled, "firewalld.ipsets", "halite-sets").args["sets"];
    let sets = sets.as_object().unwrap().iter();
    sets.map(|(name, entries)| (name.clone(), entries.clone()))
        .collect()
}

/// Adds a host to the pillar of another host.
fn with_host(pillar: &Value, name: &str, octet: u8, roles: &[&str]) -> Value {
    let mut pillar = pillar.clone();
    pillar["halite"]["nodes"][name] = json!({
        "roles": roles, "runs": {"containers": true}, "labels": {}, "taints": [], "taintFollowsWorkers": false,
        "controlPlane": format!("10.10.0.{octet}"), "workloadPlane": format!("10.20.0.{octet}"),
    });
    pillar
}

#[test]
fn a_new_host_adds_one_entry_and_changes_no_rule() {
    for name in ["bootstrap", "worker"] {
        let (pillar, grains) = fixture(name);
        let before = highstate(&pillar, &grains);
        let more = highstate(&with_host(&pillar, "worker-9", 99, &["worker"]), &grains);
        for policy in ["halite-host", "halite-pods-out"] {
            assert_eq!(
                chunk(&before, "firewalld.policy", policy).args,
                chunk(&more, "firewalld.policy", policy).args
            );
        }
        let entries = |compiled: &Compiled| -> BTreeSet<String> {
            let of = |(name, entries): (String, Value)| {
                let list = entries.as_array().unwrap().clone();
                list.into_iter().map(move |entry| format!("{name} {entry}"))
            };
            sets(compiled).into_iter().flat_map(of).collect()
        };
        let added: Vec<String> = entries(&more)
            .difference(&entries(&before))
            .cloned()
            .collect();
        assert_eq!(
            added,
            ["halite-nodes \"10.10.0.99\"", "halite-nodes \"10.20.0.99\""]
        );
    }
}

#[test]
fn of_the_workload_plane_only_nodes_reach_the_api() {
    let (mut pillar, grains) = fixture("bootstrap");
    pillar["halite"]["firewall"]["sources"] = json!({
        "management": ["192.168.7.0/24"], "loadBalancers": ["192.168.8.0/24"]});
    let compiled = highstate(&pillar, &grains);
    let all = rules(&compiled, "halite-host");
    let of = |port: &str| -> BTreeSet<String> {
        all.iter()
            .filter(|rule| rule.contains(&format!("port port=\"{port}\"")))
            .map(|rule| {
                let source = rule.split_once("source ").unwrap().1;
                source.split_once(" port port").unwrap().0.replace('"', "")
            })
            .collect()
    };
    let to = |sources: &[&str], ends: &[&str]| -> BTreeSet<String> {
        let each = |source: &&str| {
            let source = (*source).to_owned();
            ends.iter()
                .map(move |end| format!("{source} destination address={end}"))
        };
        sources.iter().flat_map(each).collect()
    };
    let plane = ["address=10.10.0.0/24", "address=10.10.1.0/24"];
    let nodes = "[10.10.0.11,10.20.0.11,10.10.1.12,10.20.0.12]";
    let api = [
        &plane[..],
        &[
            "address=10.233.0.0/16",
            "address=192.168.7.0/24",
            "address=192.168.8.0/24",
            nodes,
        ],
    ]
    .concat();
    assert_eq!(of("6443"), to(&api, &["10.10.0.11", "10.10.0.100"]));
    // `management` opens the master too, and the bundle server.
    let operators = [&plane[..], &["address=192.168.7.0/24"]].concat();
    assert_eq!(of("4550"), to(&operators, &["10.10.0.11"]));
    // The documentation is there.
    assert_eq!(of("4551"), to(&operators, &["10.10.0.11"]));
    assert_eq!(
        of("10250"),
        to(&["[10.10.0.11,10.20.0.11]"], &["10.10.0.11"])
    );
}

#[test]
fn etcd_is_open_to_its_members_and_its_clients() {
    let (pillar, grains) = fixture("bootstrap");
    let pillar = with_host(&pillar, "cp-2", 12, &["control-plane", "etcd"]);
    let pillar = with_host(&pillar, "cp-3", 13, &["control-plane"]);
    let all = rules(&highstate(&pillar, &grains), "halite-host");
    let sources = |port: &str| -> Vec<String> {
        let of_port = all
            .iter()
            .filter(|rule| rule.contains(&format!("port port=\"{port}\"")));
        of_port
            .map(|rule| rule.split_whitespace().nth(3).unwrap().to_owned())
            .collect()
    };
    assert_eq!(sources("2379-2380"), ["[10.10.0.11,10.10.0.12]"]);
    assert_eq!(sources("2379"), ["[10.10.0.11,10.10.0.12,10.10.0.13]"]);
    assert!(
        all.iter()
            .any(|rule| rule.contains("vrrp") && rule.contains("10.10.0.13"))
    );
}

#[test]
fn pods_do_not_count_as_their_node() {
    let (mut pillar, grains) = fixture("worker");
    let accepted = |pillar: &Value| -> Vec<String> {
        let rules = rules(&highstate(pillar, &grains), "halite-pods-out");
        let nodes = "[10.10.0.11,10.20.0.11,10.10.1.12,10.20.0.12]";
        for end in [nodes, "address=\"10.10.0.100\""] {
            let refused = format!(
                "rule priority=\"-10\" family=\"ipv4\" destination {end} reject type=\"icmp-admin-prohibited\""
            );
            assert!(rules.contains(&refused), "{rules:#?}");
        }
        let to_nodes =
            format!("rule priority=\"-20\" family=\"ipv4\" destination {nodes} port port=");
        let ports = rules.iter().filter_map(|rule| {
            let rest = rule.strip_prefix(&to_nodes)?.strip_suffix(" accept")?;
            Some(rest.replace('"', "").replace(" protocol=", "/"))
        });
        ports.collect()
    };
    let always = [
        "6443/tcp",
        "53/udp",
        "53/tcp",
        "30000-32767/tcp",
        "30000-32767/udp",
    ];
    assert_eq!(accepted(&pillar), always);
    pillar["halite"]["addons"]["metricsServer"] = json!(true);
    pillar["halite"]["siteRegistry"]["enabled"] = json!(true);
    pillar["halite"]["apiServer"]["extraArgs"] = json!({"service-node-port-range": "31000-31999"});
    assert_eq!(
        accepted(&pillar),
        [
            "6443/tcp",
            "53/udp",
            "53/tcp",
            "31000-31999/tcp",
            "31000-31999/udp",
            "10250/tcp",
            "4552/tcp"
        ]
    );
    pillar["halite"]["firewall"]["podsToHosts"] = json!("allow");
    let open = highstate(&pillar, &grains);
    assert!(rules(&open, "halite-pods-out").is_empty());
}
