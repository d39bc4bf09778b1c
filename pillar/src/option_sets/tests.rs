use std::collections::BTreeSet;

use super::*;
use crate::options::{choices, chosen, find, others, refused};

/// Fields that are not a choice between few values. Their content is the operator's: names,
/// networks, settings over Halite's own, packages. A new field that names a part of the bundle does
/// not belong here.
const FREE: &[&str] = &[
    "metadata.name",
    "dnsDomain",
    "networks.controlPlane.cidrs",
    "networks.workloadPlane.cidrs",
    "networks.pods",
    "networks.services",
    "apiServer.endpoint",
    "apiServer.certSANs",
    "apiServer.extraArgs",
    "apiServer.extraVolumes",
    "apiServer.patches",
    "apiServer.audit.policy",
    "apiServer.audit.maxAge",
    "apiServer.audit.maxBackups",
    "apiServer.audit.maxSize",
    "apiServer.encryption.resources",
    "apiServer.authentication.jwt",
    "apiServer.authentication.anonymous",
    "apiServer.admission.podSecurity.version",
    "apiServer.admission.podSecurity.exemptNamespaces",
    "apiServer.admission.plugins",
    "apiServer.admission.enable",
    "apiServer.admission.disable",
    "apiServer.featureGates",
    "controllerManager.extraArgs",
    "controllerManager.extraVolumes",
    "controllerManager.patches",
    "scheduler.extraArgs",
    "scheduler.extraVolumes",
    "scheduler.patches",
    "etcd.extraArgs",
    "etcd.patches",
    // The master's own work, as `certificates.renew` below.
    "etcd.defrag.at",
    "etcd.defrag.above",
    "etcd.external.endpoints",
    "etcd.external.ca",
    "etcd.external.clientSecret",
    "kubernetes.version",
    // The completeness check installs all charts of the bundle in each cluster.
    "charts",
    "siteRegistry.node",
    "siteRegistry.users",
    "siteRegistry.pullAs",
    "siteRegistry.backup.directory",
    "siteRegistry.backup.at",
    "siteRegistry.backup.keep",
    "siteRegistry.backup.verify",
    "backup.at",
    "backup.keep",
    "backup.copies",
    "backup.directory",
    "backup.verify",
    "backup.recipients",
    "notify.sinks",
    // No image and no package of a bundle depends on them.
    "certificates.renew",
    "upgrade.batch",
    "controlPlane.taint",
    "profile",
    "apiServer.admission.podSecurity.enforce",
    "apiServer.admission.podSecurity.audit",
    "apiServer.admission.podSecurity.warn",
    "cni.mtu",
    "kubelet.config",
    "kubelet.extraArgs",
    "dns.forwarders",
    "dns.zones",
    "dns.patches",
    "containerd.config",
    "containerd.registries",
    "containerd.limits.nofile",
    "kubeProxy.config",
    "host.sysctls",
    "host.kernelModules",
    "host.packages",
    "trust.certificates",
    "proxy.http",
    "proxy.https",
    "proxy.noProxy",
    "time.servers",
    "firewall.sources.management",
    "firewall.sources.loadBalancers",
    "firewall.nodePorts.cidrs",
    // `auto`: control planes are standbys, other hosts are not, so each set has both.
    "master.standbys",
    "master.jobs.keepDays",
    "master.jobs.keepLast",
    "master.metrics.listen",
    "master.metrics.from",
    "master.metrics.clientCA",
    "secrets",
    "custom",
    "resolved.kubernetes",
    "resolved.bundle",
    "resolved.master",
    "resolved.etcd",
];

#[test]
fn every_field_is_a_choice_or_known_to_be_none() {
    let unknown: Vec<&String> = CHOICES
        .1
        .iter()
        .filter(|path| !FREE.contains(&path.as_str()))
        .collect();
    assert_eq!(unknown, Vec::<&String>::new());
}

#[test]
fn every_value_that_can_be_written_is_declared() {
    let sets = sets("v1.36.3", &Allowed::new(), Coverage::Covering).unwrap();
    for (path, pointer, values) in [
        ("cni.plugin", "/cni/plugin", 2),
        ("kubeProxy.mode", "/kubeProxy/mode", 2),
        ("host.manageSwap", "/host/manageSwap", 2),
        ("host.manageFirewall", "/host/manageFirewall", 2),
        ("host.manageTime", "/host/manageTime", 2),
        (
            "containerd.restrictOomScoreAdj",
            "/containerd/restrictOomScoreAdj",
            2,
        ),
        ("apiServer.vip", "/apiServer", 3),
        ("addons.metricsServer", "/addons/metricsServer", 2),
        ("addons.localPath", "/addons/localPath", 2),
        ("siteRegistry.enabled", "/siteRegistry/enabled", 2),
        ("firewall.podsToHosts", "/firewall/podsToHosts", 2),
        ("etcd", "/etcd", 4),
    ] {
        assert!(
            CHOICES.0.iter().any(|choice| choice.path == path),
            "{path}: {:?}",
            CHOICES.0
        );
        let written = |set: &Set| {
            let cluster = serde_json::to_value(&set.declaration.cluster.value).unwrap();
            cluster.pointer(pointer).unwrap().to_string()
        };
        let found: BTreeSet<String> = sets.iter().map(written).collect();
        assert_eq!(found.len(), values, "{path}: {found:?}");
    }
    assert_eq!(CHOICES.0.len(), 12, "a choice that this test does not know");
}

#[test]
fn a_cluster_says_what_it_chooses_in_the_names_of_the_choices() {
    for set in sets("v1.36.3", &Allowed::new(), Coverage::Covering).unwrap() {
        for (path, names) in choices() {
            let chosen = chosen(&set.declaration.cluster, path);
            assert!(
                names.contains(&chosen.as_str()),
                "{}: {path} is {chosen}, one of {names:?}",
                set.name
            );
        }
    }
    assert!(others().all(|path| FREE.contains(&path)) && others().any(|path| path == "charts"));
}

#[test]
fn a_choice_appears_by_being_in_the_schema() {
    let schema = json!({"properties": {"addons": {"properties": {
        "one": {"properties": {"enabled": {"type": "boolean", "default": false}}},
        "two": {"enum": ["a", "b", "c"], "default": "a"},
        "three": {"type": ["boolean", "null"], "default": null},
        "four": {"type": "string"},
    }}}});
    let (mut choices, mut free) = (Vec::new(), Vec::new());
    find(&schema, "", &mut choices, &mut free);
    let values: Vec<(&str, usize)> = choices
        .iter()
        .map(|choice| (choice.path.as_str(), choice.ways.len()))
        .collect();
    assert_eq!(
        values,
        [
            ("addons.one.enabled", 2),
            ("addons.two", 3),
            ("addons.three", 3)
        ]
    );
    assert_eq!(free, ["addons.four"]);
    // None, each alone, each two of different choices, and all.
    assert_eq!(
        Coverage::Pairs.with_every_pair(&choices).len(),
        1 + 5 + 8 + 1
    );
}

/// The values of all options in a combination, as indexes.
fn row(choices: &[Choice], picked: &Picked) -> Vec<usize> {
    let index = |(at, choice): (usize, &Choice)| {
        let other = picked.iter().find(|(option, _)| *option == at);
        other.map_or(0, |(_, way)| {
            choice.ways.iter().position(|known| known == *way).unwrap()
        })
    };
    choices.iter().enumerate().map(index).collect()
}

#[test]
fn every_pair_of_values_is_in_a_combination_of_each_coverage() {
    let choices = &CHOICES.0;
    for (coverage, number) in [(Coverage::Pairs, 110..=130), (Coverage::Covering, 25..=35)] {
        let combinations = coverage.with_every_pair(choices);
        assert!(
            number.contains(&combinations.len()),
            "{coverage:?}: {}",
            combinations.len()
        );
        let rows: BTreeSet<Vec<usize>> = combinations
            .iter()
            .map(|picked| row(choices, picked))
            .collect();
        assert_eq!(rows.len(), combinations.len(), "{coverage:?} has one twice");
        for (at, one) in choices.iter().enumerate() {
            // Alone, so that a message names it and no other.
            for value in 0..one.ways.len() {
                let alone = |row: &&Vec<usize>| {
                    let others = row.iter().enumerate().filter(|(option, _)| *option != at);
                    row[at] == value && others.map(|(_, value)| value).all(|value| *value == 0)
                };
                assert!(
                    rows.iter().any(|row| alone(&row)),
                    "{coverage:?}: {} {value}",
                    one.path
                );
            }
            for (beside, other) in choices.iter().enumerate().skip(at + 1) {
                let found: BTreeSet<[usize; 2]> =
                    rows.iter().map(|row| [row[at], row[beside]]).collect();
                let pairs = one.ways.len() * other.ways.len();
                assert_eq!(
                    found.len(),
                    pairs,
                    "{coverage:?}: {} and {}",
                    one.path,
                    other.path
                );
            }
        }
        let values = coverage.with_every_value(choices);
        for (at, choice) in choices.iter().enumerate() {
            let found: BTreeSet<usize> = values
                .iter()
                .map(|picked| row(choices, picked)[at])
                .collect();
            assert_eq!(
                found.len(),
                choice.ways.len(),
                "{coverage:?}: {}",
                choice.path
            );
        }
    }
}

#[test]
fn every_set_of_roles_is_there_that_is_valid() {
    let sets = sets("v1.36.3", &Allowed::new(), Coverage::Covering).unwrap();
    let whats: Vec<&str> = sets[0]
        .targets
        .iter()
        .map(|target| target.what.as_str())
        .collect();
    let first = "a host that is bootstrap, registry, etcd, control-plane";
    assert_eq!(whats[..2], ["the objects in the API", first]);
    for wanted in [
        "a host that is worker",
        "a host that is infra",
        "a host that is registry",
        "a host that is worker, infra, frontend",
        "a host that is etcd, control-plane",
    ] {
        assert!(whats.contains(&wanted), "{whats:?}");
    }
    // Seven sets of roles of workers, eight of additional control planes, each with and without a
    // registry's, and a registry alone.
    assert_eq!(whats.len(), 2 + 15 + 15 + 1);
    let all = "a host that is bootstrap, etcd, control-plane, worker, infra, frontend, registry";
    assert!(sets.iter().any(|set| set.targets[1].what == all));
    for set in &sets {
        for target in set.targets.iter().skip(1) {
            assert!(
                set.declaration.nodes.contains_key(target.minion.as_str()),
                "{}: {target:?}",
                set.name
            );
        }
    }
}

#[test]
fn what_is_not_allowed_is_in_no_set() {
    let allowed = |path: &str, values: &[&str]| {
        Allowed::from([(
            path.to_owned(),
            values.iter().map(|value| (*value).to_owned()).collect(),
        )])
    };
    let all = sets("v1.36.3", &Allowed::new(), Coverage::Covering).unwrap();
    let plugins = |sets: &[Set]| -> BTreeSet<String> {
        sets.iter()
            .map(|set| format!("{:?}", set.declaration.cluster.cni.plugin))
            .collect()
    };
    assert_eq!(plugins(&all).len(), 2);
    for (value, wanted) in [("flannel", "Flannel"), ("none", "None")] {
        let some = sets(
            "v1.36.3",
            &allowed("cni.plugin", &[value]),
            Coverage::Covering,
        )
        .unwrap();
        assert_eq!(plugins(&some), [wanted.to_owned()].into());
        assert!(some.len() < all.len());
    }
    let external = allowed("apiServer.vip", &["external"]);
    for set in sets("v1.36.3", &external, Coverage::Covering).unwrap() {
        let cluster = &set.declaration.cluster;
        assert!(
            cluster.api_server.vip.is_some() && !cluster.api_server.keeps_vip(),
            "{}",
            set.name
        );
        assert_eq!(refused(cluster, &external), []);
        assert_eq!(
            refused(cluster, &allowed("apiServer.vip", &["none", "keepalived"])).len(),
            1
        );
    }
    for wrong in [
        allowed("cni.plugins", &["flannel"]),
        allowed("cni.plugin", &["calico"]),
        allowed("cni.plugin", &[]),
    ] {
        let problems = sets("v1.36.3", &wrong, Coverage::default()).unwrap_err();
        assert_eq!(problems.len(), 1, "{wrong:?}");
    }
}
