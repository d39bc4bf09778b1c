//! The plan of an upgrade: its order, its time, and its findings.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use halite_api::{UpgradeCheck, UpgradePlan, UpgradeSeverity};
use halite_core::ca::NAMES;
use halite_core::clock::{Clock as _, ManualClock};
use halite_core::init::master_identity;
use halite_etcd::fake::FakeCluster;
use halite_fleet::keys::{NewOperator, create_operator};
use halite_proto::ids::MinionId;
use halite_proto::pki::PrivateKey;
use serde_json::{Value, json};

use super::fixture::{Life, ScriptedMinion, Site};
use crate::orchestrate_tests::upgrade_fixture::{
    NEXT, change_document, options, plan, site, upgrade,
};

fn connected(site: &Site) -> Life {
    let life = site.live();
    for name in ["bootstrap-1", "worker-1"] {
        life.connect(&ScriptedMinion::new(name));
    }
    life
}

fn with_drain(force: bool) -> Value {
    let mut options = options();
    options["drain"] = json!({"delete_emptydir_data": true, "force": force, "timeout": 60});
    options
}

/// The findings of a check, as severity and message.
fn of(plan: &UpgradePlan, check: &UpgradeCheck) -> Vec<(UpgradeSeverity, String)> {
    let own = plan
        .findings
        .iter()
        .filter(|finding| finding.check == *check);
    own.map(|finding| (finding.severity.clone(), finding.message.clone()))
        .collect()
}

fn put_pod(site: &Site, name: &str, node: &str, owner: Option<&str>) {
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": name}},
        "spec": {"nodeName": node}, "status": {"phase": "Running"}});
    if let Some(kind) = owner {
        pod["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "controller": true}]);
    }
    site.api.put(pod);
}

#[test]
fn a_plan_has_the_order_and_the_drained_hosts() {
    let site = site();
    let life = connected(&site);
    let plan = plan(&life, &with_drain(false));
    let turns: Vec<(Vec<MinionId>, Vec<MinionId>)> = plan
        .turns
        .into_iter()
        .map(|turn| (turn.hosts, turn.drained))
        .collect();
    let names = |name: &str| vec![name.parse().unwrap()];
    assert_eq!(
        turns,
        [
            (names("bootstrap-1"), names("bootstrap-1")),
            (names("master"), Vec::new()),
            (names("worker-1"), names("worker-1")),
        ]
    );
    assert_eq!(plan.estimate, None, "no upgrade is recorded");
    assert_eq!(plan.unknown_steps, plan.steps);
    life.kill();
}

#[test]
fn pods_that_stop_or_hold_up_a_drain_are_findings() {
    let site = site();
    put_pod(&site, "web", "worker-1", Some("StatefulSet"));
    put_pod(&site, "bare", "worker-1", None);
    site.api.put(json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"}, "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1}}));
    let life = connected(&site);
    let shown = plan(&life, &with_drain(false));
    let [(severity, message)] = of(&shown, &UpgradeCheck::Budgets).try_into().unwrap();
    assert_eq!(severity, UpgradeSeverity::Warning, "the budget may change");
    assert_eq!(
        message,
        "default/web (StatefulSet web) on worker-1 cannot be evicted now: the PodDisruptionBudget default/web holds it \
         (1 healthy, 1 required)"
    );
    let [(severity, message)] = of(&shown, &UpgradeCheck::Pods).try_into().unwrap();
    assert_eq!(severity, UpgradeSeverity::Error);
    assert!(
        message.contains("default/bare (no controller) on worker-1 stops its drain"),
        "{message}"
    );
    assert_eq!(
        shown.findings[0].severity,
        UpgradeSeverity::Error,
        "errors come first"
    );
    // With --force it is evicted, and without a drain none is.
    assert!(of(&plan(&life, &with_drain(true)), &UpgradeCheck::Pods).is_empty());
    let none = plan(&life, &options());
    assert!(
        of(&none, &UpgradeCheck::Pods).is_empty() && of(&none, &UpgradeCheck::Budgets).is_empty()
    );
    assert!(
        site.api.writes.lock().unwrap().is_empty(),
        "nothing is changed"
    );
    life.kill();
}

#[test]
fn deprecated_apis_in_use_are_findings_and_those_that_are_still_served_only_inform() {
    let site = site();
    let sample = |resource: &str, removed: &str| {
        format!(
            "apiserver_requested_deprecated_apis{{group=\"apps\",removed_release=\"{removed}\",resource=\"{resource}\",\
             subresource=\"\",version=\"v1beta1\"}} 1"
        )
    };
    site.api.metrics.lock().unwrap().extend([
        sample("endless", ""),
        sample("gone", "1.36"),
        sample("later", "1.40"),
    ]);
    let life = connected(&site);
    let shown = plan(&life, &options());
    let found = of(&shown, &UpgradeCheck::DeprecatedApis);
    let severities = found.iter().map(|(severity, _)| severity.as_str());
    assert_eq!(severities.collect::<Vec<_>>(), ["warning", "info", "info"]);
    let texts: Vec<&str> = found.iter().map(|(_, message)| message.as_str()).collect();
    let of_server = "(by the API server on bootstrap-1)";
    assert_eq!(
        texts,
        [
            format!(
                "clients have requested gone in apps/v1beta1, which Kubernetes 1.36 and later do not serve {of_server}"
            ),
            format!(
                "clients have requested endless in apps/v1beta1, which is deprecated: Kubernetes 1.36 serves it, and no release \
                 is announced that does not {of_server}"
            ),
            format!(
                "clients have requested later in apps/v1beta1, which is deprecated: Kubernetes 1.36 serves it, 1.40 and later do \
                 not {of_server}"
            ),
        ]
    );
    let last = shown.findings.last().unwrap();
    assert_eq!(last.severity, UpgradeSeverity::Info, "they come last");
    life.kill();
}

#[test]
fn a_silent_api_and_hosts_that_are_away_are_warnings() {
    let site = site();
    site.api
        .silent_for
        .store(u32::MAX, std::sync::atomic::Ordering::SeqCst);
    let life = site.live();
    let first = ScriptedMinion::new("bootstrap-1");
    life.connect(&first);
    life.accept("worker-1");
    let shown = plan(&life, &with_drain(false));
    assert_eq!(
        of(&shown, &UpgradeCheck::Api).len(),
        1,
        "{:?}",
        shown.findings
    );
    let [(severity, message)] = of(&shown, &UpgradeCheck::Hosts).try_into().unwrap();
    assert_eq!(severity, UpgradeSeverity::Warning);
    assert_eq!(message, "worker-1 is not connected: it is left out");
    assert!(
        shown
            .findings
            .iter()
            .all(|finding| finding.severity == UpgradeSeverity::Warning)
    );
    life.kill();
}

#[test]
fn etcd_and_backups_are_judged_as_by_the_health_checks() {
    let mut site = site();
    let cluster = FakeCluster::new(&["bootstrap-1", "cp-2", "cp-3"]);
    cluster.stop("cp-2");
    let cluster = Arc::new(cluster);
    site.etcd = Some((cluster.clone(), Duration::from_secs(1)));
    let life = connected(&site);
    let shown = plan(&life, &options());
    let etcd = of(&shown, &UpgradeCheck::Etcd);
    assert!(
        !etcd.is_empty()
            && etcd
                .iter()
                .all(|(severity, _)| *severity == UpgradeSeverity::Warning),
        "{etcd:?}"
    );
    cluster.stop("cp-3");
    let etcd = of(&plan(&life, &options()), &UpgradeCheck::Etcd);
    assert!(
        etcd.iter()
            .any(|(severity, _)| *severity == UpgradeSeverity::Error),
        "{etcd:?}"
    );
    // No backup exists yet, which matters only to a run that makes none.
    assert!(
        !of(&shown, &UpgradeCheck::Backup).is_empty(),
        "{:?}",
        shown.findings
    );
    let mut with_backup = options();
    with_backup["backup"] = json!(true);
    assert!(of(&plan(&life, &with_backup), &UpgradeCheck::Backup).is_empty());
    life.kill();
}

/// Adds an image to the manifest of the next bundle.
fn put_image(site: &Site, size: u64) {
    let directory = site.path().join("bundles").join(NEXT);
    let path = directory.join("manifest.json");
    let mut manifest: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    manifest["files"]["images/new"] = json!({"sha256": "0".repeat(64), "size": size});
    let manifest = manifest.to_string();
    let sum = halite_proto::pki::sha256_hex(manifest.as_bytes());
    fs::write(path, manifest).unwrap();
    let sum = format!("{sum}  manifest.json\n");
    fs::write(directory.join("manifest.json.sha256"), sum).unwrap();
}

#[test]
fn certificates_and_space_are_judged_by_the_answers_of_the_hosts() {
    let site = site();
    put_image(&site, 100 << 20);
    let life = site.live();
    let soon = halite_core::clock::Clock::now(&halite_core::clock::SystemClock) / 1000 + 3600;
    let worker = ScriptedMinion::new("worker-1").on(move |job| {
        (job.function == halite_host_reports::health::FUNCTION).then(|| {
            json!({"images_free": 0, "certificates": [
                {"ends": soon, "begins": 0, "path": "/etc/kubernetes/pki/apiserver.crt"},
                {"ends": soon * 2, "begins": 0, "path": "/etc/kubernetes/pki/other.crt"}]})
        })
    });
    life.connect(&ScriptedMinion::new("bootstrap-1"));
    life.connect(&worker);
    let shown = plan(&life, &options());
    let [(severity, message)] = of(&shown, &UpgradeCheck::Certificates).try_into().unwrap();
    assert_eq!(severity, UpgradeSeverity::Warning);
    assert!(
        message
            .starts_with("on worker-1 the certificate /etc/kubernetes/pki/apiserver.crt ends at "),
        "{message}"
    );
    assert!(!message.contains("more do"), "{message}");
    // The worker may have the images already, so the upgrade is not refused.
    let [(severity, message)] = of(&shown, &UpgradeCheck::Disk).try_into().unwrap();
    assert_eq!(severity, UpgradeSeverity::Warning);
    assert!(
        message.starts_with("0 MiB are free for images on worker-1, and all new ones have 100 MiB"),
        "{message}"
    );
    life.kill();
}

#[test]
fn a_certificate_that_ends_meanwhile_names_the_program_that_renews_it() {
    let site = site();
    let life = site.live();
    let soon = halite_core::clock::Clock::now(&halite_core::clock::SystemClock) / 1000 + 3600;
    let worker = ScriptedMinion::new("worker-1").on(move |job| {
        let ending = |path: &str| json!({"ends": soon, "begins": 0, "path": path});
        (job.function == halite_host_reports::health::FUNCTION).then(|| {
            json!({"certificates": [
                ending("/etc/halite/pki/metrics.crt"),
                ending("/etc/kubernetes/pki/apiserver.crt"),
                ending("/etc/kubernetes/pki/own.crt"),
                ending("/var/lib/halite/minion/identity.crt"),
                ending("/var/lib/kubelet/pki/kubelet-client-current.pem")]})
        })
    });
    life.connect(&ScriptedMinion::new("bootstrap-1"));
    life.connect(&worker);
    let shown = plan(&life, &options());
    let own = shown.findings.iter();
    let own = own.filter(|finding| finding.check == UpgradeCheck::Certificates);
    let mut found: Vec<(&str, &str)> = own
        .map(|finding| {
            let text = finding.message.strip_prefix("on worker-1 the certificate ");
            let (file, _) = text.unwrap().split_once(' ').unwrap();
            assert_eq!(
                finding.message.ends_with(", and 1 more does"),
                file == "/etc/halite/pki/metrics.crt",
                "{}",
                finding.message
            );
            (file, finding.remedy.as_str())
        })
        .collect();
    found.sort_unstable();
    assert_eq!(
        found,
        [
            (
                "/etc/halite/pki/metrics.crt",
                "`ctl certs renew worker-1` renews it"
            ),
            (
                "/etc/kubernetes/pki/own.crt",
                "Halite does not renew it: replace the file"
            ),
            (
                "/var/lib/halite/minion/identity.crt",
                "halite-minion renews it in its last third; `ctl logs worker-1 halite-minion` says why it has not",
            ),
            (
                "/var/lib/kubelet/pki/kubelet-client-current.pem",
                "kubelet renews it in its last third, and `ctl highstate worker-1` at once",
            ),
        ]
    );
    life.kill();
}

#[test]
fn cas_and_identities_that_end_meanwhile_are_findings() {
    const DAY: i64 = 24 * 60 * 60 * 1000;
    let site = site();
    let clock = Arc::new(ManualClock::at(1_800_000_000_000));
    let life = site.live_at(clock.clone());
    for name in ["bootstrap-1", "worker-1"] {
        life.connect(&ScriptedMinion::new(name));
    }
    master_identity(&life.app.config, &life.app.cas, clock.now()).unwrap();
    let csr_pem = PrivateKey::generate().unwrap().request("alice").unwrap();
    let alice = NewOperator {
        name: "alice".to_owned(),
        role: "viewer".to_owned(),
        days: 90,
        csr_pem,
    };
    let made = create_operator(&life.app, "root", &alice);
    life.runtime.block_on(made).unwrap();
    let found = || {
        let shown = plan(&life, &options()).findings.into_iter();
        let own = shown.filter(|finding| finding.check == UpgradeCheck::Certificates);
        own.map(|finding| {
            let (what, _) = finding.message.split_once(" ends at ").unwrap();
            (what.to_owned(), finding.remedy)
        })
        .collect::<Vec<_>>()
    };
    assert_eq!(found(), []);
    clock.advance(89 * DAY + DAY / 2);
    let remedy = "`ctl operator create` with the same name creates the next one";
    let of_alice = "the certificate of the operator alice".to_owned();
    assert_eq!(found(), [(of_alice, remedy.to_owned())]);
    // It has ended before the upgrade.
    clock.advance(DAY);
    assert_eq!(found(), []);
    clock.advance(3559 * DAY + DAY / 4);
    let ending = found();
    for ca in NAMES {
        let expected = (
            format!("the CA {ca}"),
            format!("`ctl certs rotate {ca}` replaces it"),
        );
        assert!(ending.contains(&expected), "{ca}: {ending:?}");
    }
    let of_master = ending
        .iter()
        .find(|(what, _)| what.ends_with("of the master"));
    let (_, remedy) = of_master.unwrap();
    assert!(remedy.contains("journalctl -u halite-master"), "{remedy}");
    assert_eq!(ending.len(), NAMES.len() + 1, "{ending:?}");
    life.kill();
}

#[test]
fn states_that_do_not_compile_are_an_error_before_any_host_changes() {
    let site = site();
    change_document(&site, "broken");
    let life = connected(&site);
    let shown = plan(&life, &options());
    let [(severity, message)] = of(&shown, &UpgradeCheck::States).try_into().unwrap();
    assert_eq!(severity, UpgradeSeverity::Error);
    assert!(
        message.starts_with("the states of worker-1 do not compile: "),
        "{message}"
    );
    assert!(!shown.states.contains_key("worker-1"), "{:?}", shown.states);
    life.kill();
}

#[test]
fn a_later_upgrade_has_an_estimate_and_an_open_one_is_named() {
    let site = site();
    let life = connected(&site);
    let request = upgrade(&life, &options());
    let (code, said) = {
        let stream = life
            .runtime
            .block_on(life.backend.orchestrate("root", request));
        let events = life.collect(stream.unwrap());
        let last = events.last().unwrap();
        (last.retcode, last.data_json.clone())
    };
    assert_eq!(code, 0, "{said}");
    let done = plan(&life, &options());
    assert!(
        done.hosts.is_empty() && done.findings.is_empty() && done.run.is_none(),
        "{done:?}"
    );
    assert!(
        done.estimate.is_some() && done.unknown_steps < done.steps,
        "{done:?}"
    );
    life.kill();
}
