//! The master's host is the one that the declaration names, whatever roles the hosts have.

use halite_states::compile;
use halite_states::compile::Compiled;
use serde_json::{Value, json};

use crate::support::{chunk, contents, fixture, highstate, sure, with};

/// The pillar after another control plane, `worker-1` of the fixtures, has taken the master's
/// place.
fn promoted(target: &str) -> (Value, Value) {
    let (mut pillar, grains) = fixture(target);
    let halite = &mut pillar["halite"];
    halite["master"]["node"] = json!("worker-1");
    halite["master"]["address"] = json!("10.10.1.12");
    halite["master"]["masters"] = json!(["10.10.1.12:4550", "10.10.0.11:4550"]);
    halite["node"]["runs"]["master"] = json!(target == "worker");
    if target == "worker" {
        halite["node"]["roles"] = json!(["control-plane", "etcd"]);
        halite["node"]["vrrpPriority"] = json!(100);
        halite["pki"] = fixture("bootstrap").0["halite"]["pki"].take();
    }
    (pillar, grains)
}

fn has(compiled: &Compiled, sls: &str) -> bool {
    compiled.low.chunks.iter().any(|chunk| chunk.sls == sls)
}

fn opens_master(compiled: &Compiled) -> bool {
    compiled.low.chunks.iter().any(|chunk| {
        let rules = serde_json::to_string(&chunk.args).unwrap();
        chunk.state == "firewalld" && rules.contains("4550")
    })
}

#[test]
fn the_masters_new_host_has_all_that_the_first_host_had() {
    let (pillar, grains) = promoted("worker");
    let compiled = highstate(&pillar, &grains);
    for sls in [
        "halite.services.master",
        "halite.services.backup",
        "halite.services.bundle_server",
    ] {
        assert!(has(&compiled, sls), "{sls}");
    }
    assert!(opens_master(&compiled));
    let configuration = contents(&compiled, "/etc/halite/master.yaml");
    assert!(
        configuration.contains("advertise: [10.10.1.12]\n"),
        "{configuration}"
    );
    assert_eq!(
        contents(&compiled, "/etc/halite/masters"),
        "# Written by Halite.\n127.0.0.1:4550\n10.10.0.11:4550\n"
    );
}

#[test]
fn the_first_host_is_ordinary_afterwards() {
    let (pillar, grains) = promoted("bootstrap");
    let compiled = highstate(&pillar, &grains);
    assert!(!has(&compiled, "halite.services.master"));
    assert!(!has(&compiled, "halite.services.backup"));
    assert!(!opens_master(&compiled));
    chunk(&compiled, "service.dead", "halite-master");
    // It serves bundles as long as it has that role, and calls the master like its other hosts.
    assert!(has(&compiled, "halite.services.bundle_server"));
    let configuration = contents(&compiled, "/etc/halite/minion.yaml");
    assert!(
        configuration.contains("master: 10.10.1.12:4550\n"),
        "{configuration}"
    );
    chunk(
        &compiled,
        "x509.certificate",
        "/etc/halite/operator/operator.crt",
    );
}

/// The pillar of an additional control plane, `worker-1` of the fixtures, with or without a
/// standby.
fn further(is_standby: bool) -> (Value, Value) {
    let (mut pillar, grains) = promoted("worker");
    let first = fixture("bootstrap").0["halite"]["master"].take();
    let halite = &mut pillar["halite"];
    halite["master"] = first;
    halite["master"]["standbys"] = json!(if is_standby { vec!["worker-1"] } else { vec![] });
    halite["master"]["masters"] = json!(["10.10.0.11:4550", "10.10.1.12:4550", "10.10.0.13:4550"]);
    halite["node"]["runs"]["master"] = json!(false);
    halite["node"]["runs"]["standby"] = json!(is_standby);
    halite["backup"]["isMade"] = json!(is_standby);
    halite["backup"]["at"] = json!("00,06,12,18:15");
    halite["backup"]["verifyAt"] = json!("05:15");
    (pillar, grains)
}

/// Declared metrics, as a host sees them.
pub fn metrics(from: &[&str], from_pods: bool) -> Value {
    json!({"port": 4553, "from": from, "allowed": from, "fromPods": from_pods, "clientCA": null})
}

#[test]
fn the_master_and_its_standbys_serve_metrics_to_the_declared_networks() {
    let declared = metrics(&["192.168.9.0/24"], false);
    for (pillar, grains) in [further(true), promoted("worker")] {
        let mut pillar = pillar;
        pillar["halite"]["master"]["metrics"] = declared.clone();
        let compiled = highstate(&pillar, &grains);
        let certificate = chunk(&compiled, "x509.certificate", "/etc/halite/pki/metrics.crt");
        assert_eq!(certificate.args["ca"], "site");
        assert_eq!(
            certificate.args["sans_ip"],
            json!(["10.10.1.12", "127.0.0.1"])
        );
        let configuration = contents(&compiled, "/etc/halite/master.yaml");
        let section = "\nprometheus:\n  listen: 10.10.1.12:4553\n  from: [\"192.168.9.0/24\"]\n  certificate: \
                       /etc/halite/pki/metrics.crt\n  key: /etc/halite/pki/metrics.key\n";
        assert!(configuration.ends_with(section), "{configuration}");
        assert_eq!(opened(&compiled, "4553"), ["address=192.168.9.0/24"]);
        pillar["halite"]["master"]["metrics"]["clientCA"] = json!("PEM\n");
        let compiled = highstate(&pillar, &grains);
        assert_eq!(
            contents(&compiled, "/etc/halite/pki/metrics-clients.pem"),
            "PEM\n"
        );
        let configuration = contents(&compiled, "/etc/halite/master.yaml");
        let last = "\n  client_ca: /etc/halite/pki/metrics-clients.pem\n";
        assert!(configuration.ends_with(last), "{configuration}");
    }
    // No other host has the certificate, and none without the declaration.
    let (mut other, grains) = further(false);
    other["halite"]["master"]["metrics"] = declared;
    let (master, own_grains) = promoted("worker");
    for compiled in [highstate(&other, &grains), highstate(&master, &own_grains)] {
        for name in ["metrics.crt", "metrics.key", "metrics-clients.pem"] {
            chunk(&compiled, "file.absent", &format!("/etc/halite/pki/{name}"));
        }
        assert!(opened(&compiled, "4553").is_empty());
    }
}

/// A pod has the address of its node on other hosts, and its own on the same host.
#[test]
fn prometheus_may_be_a_pod_of_the_cluster() {
    let (mut pillar, grains) = further(true);
    pillar["halite"]["master"]["metrics"] = metrics(&["10.233.0.0/16"], true);
    let compiled = highstate(&pillar, &grains);
    assert_eq!(
        opened(&compiled, "4553"),
        ["address=10.233.0.0/16", "ipset=halite-nodes"]
    );
    let out = chunk(&compiled, "firewalld.policy", "halite-pods-out");
    let text = serde_json::to_string(&out.args).unwrap();
    assert!(text.contains("4553"), "{text}");
}

/// The sources of the rules of a host that open a port.
fn opened(compiled: &Compiled, port: &str) -> Vec<String> {
    let rules = &chunk(compiled, "firewalld.policy", "halite-host").args["rich_rules"];
    let rules = rules.as_array().unwrap().iter();
    let rules = rules.filter_map(Value::as_str);
    let ours = rules.filter(|rule| rule.contains(&format!("port port=\"{port}\"")));
    ours.map(|rule| rule.split_whitespace().nth(3).unwrap().replace('"', ""))
        .collect()
}

#[test]
fn a_standby_makes_backups_of_its_own_in_its_turn() {
    let (mut pillar, grains) = further(true);
    let standby = highstate(&pillar, &grains);
    let first = crate::support::of("bootstrap");
    let unit = |name: &str| format!("/etc/systemd/system/halite-{name}");
    for service in ["backup.service", "backup-verify.service"] {
        let same = contents(&first, &unit(service));
        assert_eq!(contents(&standby, &unit(service)), same, "the same on both");
    }
    let made = contents(&standby, &unit("backup.service"));
    assert!(
        made.contains("ctl backup create --local --report "),
        "{made}"
    );
    let timer = |host: &Compiled, name: &str| {
        let lines = contents(host, &unit(name)).lines();
        let line = lines.filter_map(|line| line.strip_prefix("OnCalendar="));
        line.collect::<String>()
    };
    let each = [
        (&first, "*-*-* 00/6:00:00", "Sun *-*-* 05:00:00"),
        (&standby, "*-*-* 00,06,12,18:15:00", "Sun *-*-* 05:15:00"),
    ];
    for (host, backup, verification) in each {
        assert_eq!(timer(host, "backup.timer"), backup);
        assert_eq!(timer(host, "backup-verify.timer"), verification);
        chunk(host, "service.running", "halite-backup.timer");
        chunk(host, "service.running", "halite-backup-verify.timer");
        chunk(host, "file.managed", "/var/lib/halite/reports/backup.since");
    }
    pillar["halite"]["backup"]["isVerified"] = json!(false);
    let unverified = highstate(&pillar, &grains);
    chunk(
        &unverified,
        "file.absent",
        "/var/lib/halite/reports/backup-verify.json",
    );
    // With only one copy the master's host makes backups.
    pillar["halite"]["backup"]["isMade"] = json!(false);
    let without = highstate(&pillar, &grains);
    assert!(!has(&without, "halite.services.backup"));
    chunk(&without, "service.dead", "halite-backup.timer");
    chunk(
        &without,
        "file.absent",
        "/var/lib/halite/reports/backup.since",
    );
}

/// The etcd of the weekly run is separate from that of the cluster.
#[test]
fn the_etcd_of_the_weekly_run_has_limits_and_leaves_nothing() {
    let first = crate::support::of("bootstrap");
    let unit = contents(&first, "/etc/systemd/system/halite-backup-verify.service");
    for line in [
        "ExecStopPost=/bin/sh -c \"rm -rf /var/lib/halite/backup-trial-*\"",
        "TimeoutStartSec=1h",
        "MemoryMax=2G",
        "OOMScoreAdjust=800",
    ] {
        assert!(unit.lines().any(|there| there == line), "{line}: {unit}");
    }
}

#[test]
fn a_standby_runs_the_masters_program_and_has_the_bundles_and_all_but_the_state() {
    let (pillar, grains) = further(true);
    let standby = highstate(&pillar, &grains);
    for path in [
        "/usr/local/bin/halite-master",
        "/etc/systemd/system/halite-master.service",
    ] {
        let here = chunk(&standby, "file.managed", path);
        let first = crate::support::of("bootstrap");
        let there = chunk(&first, "file.managed", path);
        assert_eq!(here.args, there.args, "{path}: the same on both");
    }
    // It makes no CA: the master's CAs come with the copy.
    assert!(!has(&standby, "halite.services.master"));
    assert_eq!(
        contents(&standby, "/var/lib/halite/master/standby-of"),
        "# Written by Halite.\n10.10.0.11:4550\n10.10.0.13:4550\n",
        "all but itself"
    );
    let configuration = contents(&standby, "/etc/halite/master.yaml");
    assert!(
        configuration.contains("advertise: [10.10.1.12]\n"),
        "{configuration}"
    );
    // A promotion needs no highstate before the hosts find the master.
    assert!(opens_master(&standby));
    let daemon = chunk(&standby, "service.running", "halite-master");
    let mark = |chunk: &&halite_states::low::Chunk| chunk.name.ends_with("/standby-of");
    let at = standby.low.chunks.iter().position(|chunk| mark(&chunk));
    assert!(
        daemon.requisites.watch.contains(&at.unwrap()),
        "a host that had the master does not remain one"
    );
    // The bundles, which are not served there.
    let copies = standby.low.chunks.iter().filter(|chunk| {
        chunk.function() == "cmd.run" && chunk.name.contains("ctl bundle copy --to /var/lib/halite")
    });
    assert_eq!(copies.count(), 1);
    assert!(!has(&standby, "halite.services.bundle_server"));
    let absent = |name: &str| {
        let mut chunks = standby.low.chunks.iter();
        chunks.any(|chunk| chunk.function() == "file.absent" && chunk.name == name)
    };
    assert!(absent("/etc/nginx/conf.d/halite.conf") && !absent("/var/lib/halite/bundles"));
}

#[test]
fn a_control_plane_that_is_not_a_standby_has_nothing_of_one() {
    let (pillar, grains) = further(false);
    let other = highstate(&pillar, &grains);
    assert!(!opens_master(&other));
    let dead = chunk(&other, "service.dead", "halite-master");
    let order: Vec<usize> = ["promotion.json", "standby-of", "standby"]
        .iter()
        .map(|name| {
            let path = format!("/var/lib/halite/master/{name}");
            let mut chunks = other.low.chunks.iter();
            let place = chunks.position(|chunk| chunk.name == path);
            place.unwrap_or_else(|| panic!("{path} stays"))
        })
        .collect();
    let at = |index: usize| &other.low.chunks[order[index]];
    assert!(order[0] < order[1] && order[1] < order[2]);
    assert_eq!(
        other.low.chunks[at(0).requisites.require[0]].name,
        dead.name,
        "the daemon stops before its mark is removed"
    );
    assert_eq!(at(1).requisites.require, [order[0]]);
    assert_eq!(at(2).requisites.require, [order[1]]);
    // The store of an earlier master, and the files that an operator needs to start it, stay.
    for name in ["/var/lib/halite/master/store.db", "/var/lib/halite/master"] {
        let mut chunks = other.low.chunks.iter();
        assert!(!chunks.any(|chunk| chunk.name == name), "{name}");
    }
    for name in [
        "/usr/local/bin/halite-master",
        "/var/lib/halite/master/secrets",
    ] {
        let removed = chunk(&other, "file.absent", name);
        assert_eq!(
            removed.controls.unless,
            [json!("test -e /var/lib/halite/master/store.db")],
            "{name}"
        );
    }
    chunk(&other, "file.absent", "/var/lib/halite/bundles");
}

#[test]
fn a_promotion_brings_the_hosts_to_the_new_master_in_an_order_that_serves_all() {
    let (mut pillar, grains) = fixture("master");
    pillar["halite"]["master"]["node"] = json!("worker-1");
    let compiled = sure(with(&pillar, &grains, |input| {
        compile::step(input, &["halite.orchestrate.promoted".to_owned()])
    }));
    let chunks = &compiled.low.chunks;
    let ids: Vec<&str> = chunks.iter().map(|chunk| chunk.id.as_str()).collect();
    assert_eq!(ids, ["enrolled", "host", "clients", "masters", "minions"]);
    assert_eq!(chunks[0].args["id"], "worker-1");
    assert_eq!(chunks[1].args["tgt"], "worker-1");
    // The new host, too: it used the previous master until now.
    assert_eq!(chunks[2].args["tgt"], "* and not L@master");
    let requires: Vec<&[usize]> = chunks
        .iter()
        .map(|chunk| chunk.requisites.require.as_slice())
        .collect();
    assert_eq!(requires, [&[][..], &[0], &[1], &[1], &[2]]);
    // No step waits for a host of etcd: one may be lost, and there may be no quorum.
    assert!(
        !chunks
            .iter()
            .any(|chunk| chunk.function().starts_with("halite.etcd"))
    );
}

#[test]
fn a_host_that_had_the_master_serves_bundles_only_with_the_role() {
    let former = |target: &str| {
        let (pillar, grains) = promoted(target);
        sure(with(&pillar, &grains, |input| {
            compile::step(input, &["halite.services.bundle_server.former".to_owned()])
        }))
    };
    assert!(former("bootstrap").low.chunks.is_empty(), "it has the role");
    assert!(former("worker").low.chunks.is_empty(), "it has the master");
    let (pillar, grains) = further(true);
    let standby = sure(with(&pillar, &grains, |input| {
        compile::step(input, &["halite.services.bundle_server.former".to_owned()])
    }));
    chunk(&standby, "file.absent", "/etc/nginx/conf.d/halite.conf");
}
