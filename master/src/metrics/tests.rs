//! All metrics of a cluster, and their reference.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use halite_api::{BackupHost, ClusterBackups, ClusterStatus, RegistryBackups, Time};
use halite_core::metrics::CallLabels;
use halite_host_reports::health::{HostHealth, Lifetime};
use halite_states::low::StateReturn;
use serde_json::json;

use super::*;
use crate::backend::fixture::{ScriptedMinion, Site};
use crate::health_rounds::HealthRound;
use crate::operator::status::Inspection;

const NOW: i64 = 1_800_000_000_000;

/// A state of the cluster in which each metric has a value.
fn status() -> ClusterStatus {
    let text = include_str!("../../../lib/api/contract/status.json");
    let mut status: ClusterStatus = halite_api::from_text(text).unwrap();
    let time = |ago: i64| Some(Time::from_millis(NOW - ago * 1000));
    status.backups = Some(ClusterBackups {
        copies: 1,
        hosts: vec![
            BackupHost {
                host: "bootstrap-1".to_owned(),
                newest: time(3600),
                verified: time(7200),
                ..BackupHost::default()
            },
            BackupHost {
                host: "worker-1".to_owned(),
                ..BackupHost::default()
            },
        ],
    });
    status.registry = Some(RegistryBackups {
        host: "worker-1".to_owned(),
        backup: Some("a".to_owned()),
        backup_time: time(60),
        verified: time(120),
    });
    status
}

fn round() -> HealthRound {
    let certificate = Lifetime {
        ends: NOW / 1000 + 86400,
        begins: NOW / 1000 - 86400,
        path: "/etc/kubernetes/pki/apiserver.crt".to_owned(),
        subject: String::new(),
        issuer: String::new(),
    };
    let health = HostHealth {
        certificates: vec![certificate],
        ..HostHealth::default()
    };
    HealthRound {
        ended: NOW,
        took: Duration::from_millis(1500),
        inspection: Inspection {
            status: status(),
            minions: BTreeMap::from([("bootstrap-1".parse().unwrap(), health)]),
        },
        open_jobs: 2,
        open_runs: 1,
    }
}

/// The metrics after this round.
pub(super) fn exposition(latest: LatestHealth) -> Exposition {
    let metrics = Metrics::default();
    let call = CallLabels {
        method: "Operator/Run".to_owned(),
        code: "Ok".to_owned(),
    };
    metrics.calls.get_or_create(&call).inc();
    metrics.count_job("state.highstate", true, Duration::from_secs(7));
    let state = json!({"index": 0, "__id__": "a", "name": "a", "function": "file.managed", "__sls__": "a", "result": true,
        "changes": {}, "comment": "", "start_time": "", "duration": 1.0, "__run_num__": 0, "__state_ran__": true});
    let state: StateReturn = serde_json::from_value(state).unwrap();
    metrics.count_state(&state);
    let commits = Histogram::new([0.01, 1.0]);
    commits.observe(0.5);
    let (_, health) = watch::channel(latest);
    Exposition {
        cluster: "prod".to_owned(),
        isolated: Box::new(|| false),
        metrics: Arc::new(metrics),
        commits,
        health,
    }
}

/// The text of all metrics.
pub(super) fn full() -> String {
    let round = Some(Arc::new(round()));
    exposition(LatestHealth { round, stale: None }).text()
}

/// A metric, as a scrape shows it.
#[derive(Debug, Default)]
pub(super) struct Family {
    pub kind: String,
    pub help: String,
    /// The names of its labels, without a histogram's `le`.
    pub labels: Vec<String>,
    /// The names of its samples.
    pub samples: Vec<String>,
}

/// The metrics in a text, by name.
pub(super) fn families(text: &str) -> BTreeMap<String, Family> {
    let mut found: BTreeMap<String, Family> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').unwrap();
            current = name.to_owned();
            found.entry(current.clone()).or_default().help = help.to_owned();
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            found.get_mut(name).unwrap().kind = kind.to_owned();
        } else if !line.starts_with('#') {
            let (name, rest) = line.split_at(line.find(['{', ' ']).unwrap());
            let family = found.get_mut(&current).unwrap();
            assert!(name.starts_with(&current), "{line} after {current}");
            family.samples.push(name.to_owned());
            let labels = rest.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            for (key, _) in labels.iter().flat_map(|(labels, _)| {
                labels
                    .split("\",")
                    .filter_map(|label| label.split_once('='))
            }) {
                if key != "le" && !family.labels.contains(&key.to_owned()) {
                    family.labels.push(key.to_owned());
                }
            }
        }
    }
    found
}

/// The name with which a metric is used in queries.
fn queried(name: &str, family: &Family) -> String {
    match family.kind.as_str() {
        "counter" => format!("{name}_total"),
        _ => name.to_owned(),
    }
}

fn reference() -> String {
    let mut text = String::from(
        "# Metrics\n\nGenerated from what the master serves; a test compares them. [Monitoring](../guide/monitoring.md) \
         says how to scrape\nthem and which alerts a bundle has.\n\nMetrics whose names begin with `halite_master_` count the \
         master's work since it started. All others are the state of\nthe cluster at the last round of checks, one each \
         minute; they exist only while `master.metrics` or a sink of\nnotifications is declared.\n\n| name | type | labels | meaning |\n|---|---|---|---|\n",
    );
    for (name, family) in families(&full()) {
        let labels: Vec<String> = family
            .labels
            .iter()
            .map(|name| format!("`{name}`"))
            .collect();
        let help = family.help.trim_end_matches('.');
        let (kind, labels) = (&family.kind, labels.join(", "));
        let name = queried(&name, &family);
        text.push_str(&format!("| `{name}` | {kind} | {labels} | {help} |\n"));
    }
    text
}

#[test]
fn the_reference_in_docs_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/metrics.md");
    if std::env::var_os("HALITE_UPDATE_GOLDENS").is_some() {
        std::fs::write(&path, reference()).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == reference(),
        "docs/reference/metrics.md is out of date: run this test with HALITE_UPDATE_GOLDENS=1"
    );
}

/// <https://prometheus.io/docs/practices/naming/>
#[test]
fn names_follow_the_conventions_of_prometheus() {
    for (name, family) in families(&full()) {
        assert!(name.starts_with("halite_"), "{name}");
        assert!(
            !family.help.is_empty() && !family.samples.is_empty(),
            "{name}"
        );
        let is_lower = |c: char| c.is_ascii_lowercase() || c == '_' || c.is_ascii_digit();
        assert!(name.chars().all(is_lower), "{name}");
        // Units are base units, and last.
        for other in [
            "_ms", "_millis", "_minutes", "_hours", "_days", "_mib", "_kb", "_percent",
        ] {
            assert!(!name.ends_with(other), "{name}");
        }
        if name.contains("timestamp") || name.contains("duration") {
            assert!(name.ends_with("_seconds"), "{name}");
        }
        if family.kind == "counter" {
            assert!(
                family
                    .samples
                    .iter()
                    .all(|sample| sample.ends_with("_total")),
                "{name}"
            );
        }
    }
}

#[test]
fn a_scrape_has_the_state_of_the_cluster() {
    let text = full();
    for line in [
        "halite_healthy 0.0",
        "halite_health_check_state{check=\"nodes\"} 2.0",
        "halite_health_check_state{check=\"api\"} 0.0",
        "halite_health_findings{check=\"nodes\",severity=\"failure\",host=\"worker-1\"} 1",
        "halite_health_findings{check=\"control-plane-pods\",severity=\"failure\",host=\"bootstrap-1\"} 4",
        "halite_backup_last_timestamp_seconds{host=\"bootstrap-1\"} 1799996400.0",
        "halite_backup_verified_timestamp_seconds{host=\"bootstrap-1\"} 1799992800.0",
        "halite_certificate_end_timestamp_seconds{host=\"bootstrap-1\",path=\"/etc/kubernetes/pki/apiserver.crt\"} 1800086400.0",
        "halite_certificate_start_timestamp_seconds{host=\"bootstrap-1\",path=\"/etc/kubernetes/pki/apiserver.crt\"} 1799913600.0",
        "halite_registry_backup_last_timestamp_seconds{host=\"worker-1\"} 1799999940.0",
        "halite_registry_backup_verified_timestamp_seconds{host=\"worker-1\"} 1799999880.0",
        "halite_etcd_answers 1.0",
        "halite_etcd_member_up{member=\"bootstrap-1\"} 1.0",
        "halite_etcd_voters_serving 1.0",
        "halite_etcd_database_in_use_bytes{member=\"bootstrap-1\"} 4096.0",
        "halite_etcd_database_quota_bytes{member=\"bootstrap-1\"} 2147483648.0",
        "halite_etcd_voters 1.0",
        "halite_etcd_database_size_bytes{member=\"bootstrap-1\"} 4096.0",
        "halite_host_connected{host=\"bootstrap-1\"} 0.0",
        "halite_host_connected{host=\"worker-1\"} 1.0",
        "halite_open_jobs 2.0",
        "halite_open_runs 1.0",
        "halite_health_stale 0.0",
        "halite_health_round_timestamp_seconds 1800000000.0",
        "halite_health_round_duration_seconds 1.5",
        "halite_master_isolated 0.0",
        "halite_master_calls_total{method=\"Operator/Run\",code=\"Ok\"} 1",
        "halite_master_states_total{result=\"unchanged\"} 1",
        "halite_master_job_duration_seconds_sum{function=\"state.highstate\",result=\"succeeded\"} 7.0",
        "halite_master_commit_duration_seconds_count 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    // A host without a backup has no time of one: its absence is the check's finding.
    assert!(!text.contains("halite_backup_last_timestamp_seconds{host=\"worker-1\"}"));
    assert!(text.ends_with("# EOF\n"));
}

#[test]
fn a_job_counts_with_its_return_and_its_duration() {
    let site = Site::new(&[
        ("top.sls", "base:\n  '*-1':\n    - host\n"),
        (
            "host.sls",
            "motd:\n  file.managed:\n    - name: /etc/motd\n    - contents: welcome\n",
        ),
    ]);
    let life = site.live();
    life.connect(&ScriptedMinion::new("worker-1"));
    life.run("state.highstate", "worker-1", json!({}), false);
    let (_, health) = watch::channel(LatestHealth::default());
    let text = Exposition::new(&life.app, health).text();
    for line in [
        "halite_master_jobs_total 1",
        "halite_master_returns_total 1",
        "halite_master_states_total{result=\"failed\"} 0",
        "halite_master_job_duration_seconds_count{function=\"state.highstate\",result=\"succeeded\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}: {text}");
    }
    assert!(!text.contains("halite_master_commit_duration_seconds_count 0"));
    life.kill();
}

#[test]
fn a_stale_round_stays_and_says_so() {
    let stale = Some("the disk is full".into());
    let round = Some(Arc::new(round()));
    let text = exposition(LatestHealth { round, stale }).text();
    assert!(text.contains("halite_health_stale 1.0") && text.contains("halite_healthy 0.0"));
    // Without a round there is nothing about the cluster, and no alert about it resolves wrongly.
    let text = exposition(LatestHealth::default()).text();
    assert!(!text.contains("halite_health") && !text.contains("halite_host_connected"));
    assert!(text.contains("halite_master_info"));
}
