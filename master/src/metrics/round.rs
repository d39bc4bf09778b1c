//! The metrics of the cluster, from a health round.

use std::sync::atomic::AtomicU64;

use halite_api::{BackupHost, CheckResult, CheckState, EtcdMember, EtcdStatus, NodeStatus, Time};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::health_rounds::{HealthRound, LatestHealth};

/// The labels of a sample: names and values.
type Labels = Vec<(&'static str, String)>;
/// A sample: its labels and its value.
type Sample = (Labels, f64);

/// Adds a gauge to the registry.
pub(super) fn gauge(
    registry: &mut Registry,
    name: &'static str,
    help: &'static str,
    samples: impl IntoIterator<Item = Sample>,
) {
    let family: Family<Labels, Gauge<f64, AtomicU64>> = Family::default();
    for (labels, value) in samples {
        family.get_or_create(&labels).set(value);
    }
    registry.register(name, help, family);
}

/// Adds a gauge without labels to the registry.
pub(super) fn single(registry: &mut Registry, name: &'static str, help: &'static str, value: f64) {
    let gauge: Gauge<f64, AtomicU64> = Gauge::default();
    gauge.set(value);
    registry.register(name, help, gauge);
}

/// A time in seconds since 1970.
fn seconds(time: Time) -> f64 {
    millis(time.as_millis())
}

#[expect(clippy::cast_precision_loss, reason = "exact until the year 287396")]
fn millis(time: i64) -> f64 {
    time as f64 / 1000.0
}

#[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 bytes")]
fn number(value: u64) -> f64 {
    value as f64
}

fn count(value: usize) -> f64 {
    number(u64::try_from(value).unwrap_or(u64::MAX))
}

pub(super) fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// Adds the metrics of the latest round, if there should be one.
pub(super) fn register_health(registry: &mut Registry, latest: &LatestHealth) {
    if latest.round.is_none() && latest.stale.is_none() {
        return;
    }
    single(
        registry,
        "halite_health_stale",
        "1 if a round of checks did not complete since the last one that did, so that all metrics of the cluster are out of \
         date",
        flag(latest.stale.is_some()),
    );
    let Some(round) = &latest.round else {
        return;
    };
    checks(registry, round);
    let status = &round.inspection.status;
    let nodes = status.nodes.iter().filter(|node| node.declared);
    let host = |node: &NodeStatus| (host_label(&node.name), flag(node.connected));
    gauge(
        registry,
        "halite_host_connected",
        "1 if the minion of a declared host is connected",
        nodes.map(host),
    );
    single(
        registry,
        "halite_open_jobs",
        "Jobs that have not ended",
        count(round.open_jobs),
    );
    single(
        registry,
        "halite_open_runs",
        "Orchestrations that have not ended",
        count(round.open_runs),
    );
    backups(registry, round);
    certificates(registry, round);
    if let Some(etcd) = &status.etcd {
        members(registry, etcd);
    }
}

fn host_label(host: &str) -> Labels {
    vec![("host", host.to_owned())]
}

fn checks(registry: &mut Registry, round: &HealthRound) {
    single(
        registry,
        "halite_health_round_timestamp_seconds",
        "End of the last completed round of checks, in seconds since 1970",
        millis(round.ended),
    );
    single(
        registry,
        "halite_health_round_duration_seconds",
        "Length of the last completed round of checks",
        round.took.as_secs_f64(),
    );
    let health = round.health();
    single(
        registry,
        "halite_healthy",
        "1 if no check of `ctl health` has failed; warnings do not count",
        flag(health.healthy),
    );
    let state = |check: &CheckResult| {
        let value = match check.state {
            CheckState::Good => 0.0,
            CheckState::Warning => 1.0,
            _ => 2.0,
        };
        (vec![("check", check.name.clone())], value)
    };
    gauge(
        registry,
        "halite_health_check_state",
        "State of each check of `ctl health`: 0 good, 1 warning, 2 failure",
        health.checks.iter().map(state),
    );
    let family: Family<Labels, Gauge> = Family::default();
    for check in &health.checks {
        for finding in &check.findings {
            let host = finding.host.clone().unwrap_or_default();
            let labels = vec![
                ("check", check.name.clone()),
                ("severity", check.state.to_string()),
                ("host", host),
            ];
            family.get_or_create(&labels).inc();
        }
    }
    registry.register(
        "halite_health_findings",
        "Findings of the checks of `ctl health`, by check, severity (failure, warning) and host; the host is empty if the \
         finding is about the cluster or names several hosts",
        family,
    );
}

fn backups(registry: &mut Registry, round: &HealthRound) {
    let status = &round.inspection.status;
    let hosts = || status.backups.iter().flat_map(|backups| &backups.hosts);
    let of = |host: &BackupHost, time: Option<Time>| Some((host_label(&host.host), seconds(time?)));
    gauge(
        registry,
        "halite_backup_last_timestamp_seconds",
        "Time of the newest backup of the cluster on each host that makes some, in seconds since 1970",
        hosts().filter_map(|host| of(host, host.newest)),
    );
    gauge(
        registry,
        "halite_backup_verified_timestamp_seconds",
        "Time of the last verification that found a backup of the cluster good, in seconds since 1970",
        hosts().filter_map(|host| of(host, host.verified)),
    );
    let registry_backup = |time: Option<Time>| {
        let backups = status.registry.as_ref()?;
        Some((host_label(&backups.host), seconds(time?)))
    };
    let (last, verified) = match &status.registry {
        Some(backups) => (backups.backup_time, backups.verified),
        None => (None, None),
    };
    gauge(
        registry,
        "halite_registry_backup_last_timestamp_seconds",
        "Time of the newest good backup of the site registry, in seconds since 1970",
        registry_backup(last),
    );
    gauge(
        registry,
        "halite_registry_backup_verified_timestamp_seconds",
        "Time of the last good verification of the site registry's backups, in seconds since 1970",
        registry_backup(verified),
    );
}

fn certificates(registry: &mut Registry, round: &HealthRound) {
    let all = || {
        let minions = round.inspection.minions.iter();
        minions.flat_map(|(host, health)| {
            let certificates = health.certificates.iter();
            certificates.map(move |one| {
                let labels = vec![("host", host.to_string()), ("path", one.path.clone())];
                (labels, one)
            })
        })
    };
    gauge(
        registry,
        "halite_certificate_start_timestamp_seconds",
        "Start of the validity of each certificate on the hosts whose minions answered, in seconds since 1970",
        all().map(|(labels, one)| (labels, millis(one.begins.saturating_mul(1000)))),
    );
    gauge(
        registry,
        "halite_certificate_end_timestamp_seconds",
        "End of the validity of each certificate on the hosts whose minions answered, in seconds since 1970",
        all().map(|(labels, one)| (labels, millis(one.ends.saturating_mul(1000)))),
    );
}

fn members(registry: &mut Registry, etcd: &EtcdStatus) {
    single(
        registry,
        "halite_etcd_answers",
        "1 if a member of etcd answers",
        flag(etcd.error.is_none()),
    );
    single(
        registry,
        "halite_etcd_voters",
        "Members of etcd that vote; 0 if none answers",
        count(etcd.voters),
    );
    single(
        registry,
        "halite_etcd_voters_serving",
        "Members of etcd that vote and serve",
        count(etcd.serving),
    );
    let each = |value: fn(&EtcdMember) -> Option<f64>| {
        etcd.members.iter().filter_map(move |member| {
            let labels = vec![("member", member.name.clone())];
            Some((labels, value(member)?))
        })
    };
    gauge(
        registry,
        "halite_etcd_member_up",
        "1 if a member of etcd serves",
        each(|member| Some(flag(member.fault.is_none()))),
    );
    gauge(
        registry,
        "halite_etcd_database_size_bytes",
        "Size of the database of each member of etcd",
        each(|member| member.db_size.map(number)),
    );
    gauge(
        registry,
        "halite_etcd_database_in_use_bytes",
        "Part of the database of each member of etcd that is in use; a defragmentation frees the rest",
        each(|member| member.db_in_use.map(number)),
    );
    gauge(
        registry,
        "halite_etcd_database_quota_bytes",
        "Quota of the database of each member of etcd",
        each(|member| member.db_quota.map(number)),
    );
}
