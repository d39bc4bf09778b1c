//! The contract of the outcomes of commands, and of lists that `ctl` makes from several sources.

use halite_api::{
    BackupList, BackupOnDisk, BundleList, BundleOnSite, CheckResult, CheckState, Health,
    HealthFinding, JobOutcome, MasterList, MinionOutcome, RegistryBackupList, RegistryBackupOnDisk,
    RunEnded, RunOutcome, RunOutcomes, RunStatus, StandbyHost, StandbyState, Step, StepDetail,
    StepStatus,
};
use serde_json::{Map, json};

use crate::commands::printed;
use crate::local_contract_tests::{check, state, text, time};
use crate::output::Paint;

#[test]
fn outcomes_of_jobs_and_runs() {
    let minion = MinionOutcome {
        success: true,
        total: Some(1),
        changed: Some(1),
        failed: Some(0),
        states: Some(vec![state()]),
        ..MinionOutcome::default()
    };
    let job = JobOutcome {
        job: Some("20270115080000000001".parse().unwrap()),
        retcode: 0,
        states: Some(1),
        changed: Some(1),
        failed: Some(0),
        minions: [("worker-1".parse().unwrap(), minion)].into(),
        ..JobOutcome::default()
    };
    check("job-outcome", &job);
    let step = Step {
        index: 0,
        name: text("worker-1-drained"),
        status: StepStatus::Succeeded,
        started: Some(time()),
        ended: Some(time()),
        seconds: Some(12.5),
        detail: StepDetail {
            changes: Some(Map::from_iter([(text("worker-1"), json!("drained"))])),
            comment: Some(text("worker-1 is drained")),
            ..StepDetail::default()
        },
    };
    let run = RunOutcome {
        retcode: 0,
        seconds: Some(14.2),
        run: Some(RunEnded {
            run: "20270115080000000002".parse().unwrap(),
            status: RunStatus::Succeeded,
            cancelled_by: None,
            paused_by: None,
            retcode: 0,
            steps: vec![step],
        }),
        ..RunOutcome::default()
    };
    check("run-outcome", &run);
    let refused = RunOutcome {
        retcode: 1,
        failures: vec![text("no master answers")],
        ..RunOutcome::default()
    };
    let outcomes = RunOutcomes {
        retcode: 1,
        nodes: [(text("worker-1"), run), (text("worker-2"), refused)].into(),
    };
    check("run-outcomes", &outcomes);
}

#[test]
fn the_checks_and_the_masters() {
    let health = Health {
        healthy: false,
        checks: vec![
            CheckResult {
                name: text("etcd-quorum"),
                title: text("The members of etcd have a quorum"),
                state: CheckState::Good,
                findings: Vec::new(),
            },
            CheckResult {
                name: text("nodes"),
                title: text("Each Kubernetes node is Ready"),
                state: CheckState::Failure,
                findings: vec![HealthFinding {
                    message: text("worker-1 is not Ready: its kubelet does not report"),
                    host: Some(text("worker-1")),
                    remedy: Some(text("`journalctl -u kubelet` on worker-1")),
                }],
            },
        ],
    };
    check("health", &health);
    let shown = printed::health(&health, &Paint { colour: false });
    assert!(shown.contains("worker-1 is not Ready"), "{shown}");
    let masters = MasterList {
        master: vec![text("10.10.0.11:4550")],
        epoch: Some(1),
        standbys: vec![StandbyHost {
            host: text("cp-2"),
            state: StandbyState::Following,
            since: Some(time()),
            lag: Some(0),
            reason: None,
        }],
        problems: Vec::new(),
    };
    check("masters", &masters);
}

#[test]
fn lists_of_bundles_and_backups() {
    let bundles = BundleList {
        bundles: vec![BundleOnSite {
            version: "0.2.0".parse().unwrap(),
            kubernetes: Some(text("v1.36.3")),
            built: Some(text("2027-01-15T08:00:00Z")),
            size: Some(800_000_000),
            hosts: Some(vec!["cp-1".parse().unwrap(), "worker-1".parse().unwrap()]),
            in_use: true,
            used_by: Vec::new(),
            path: text("/var/lib/halite/bundles/0.2.0"),
            elsewhere: None,
            problem: None,
        }],
    };
    check("bundles", &bundles);
    let backups = BackupList {
        backups: vec![BackupOnDisk {
            backup: text("prod-20270115T080000Z.halite-backup"),
            cluster: Some(text("prod")),
            created: Some(time().to_string()),
            size: Some(42_000_000),
            kubernetes: Some(text("v1.36.3")),
            bundle: Some(text("0.2.0")),
            encrypted: Some(true),
            recipients: vec![text(
                "age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj",
            )],
            started_keys: Some(1420),
            ..BackupOnDisk::default()
        }],
    };
    check("backups", &backups);
    let backups = RegistryBackupList {
        backups: vec![RegistryBackupOnDisk {
            backup: text("20270115T080000Z"),
            time: Some(time().to_string()),
            tags: Some(5),
            blobs: Some(31),
            size: Some(120_000_000),
            added_size: Some(3_000_000),
            problem: None,
        }],
    };
    check("registry-backups", &backups);
}
