//! Problems that other modules of the master find and a check only names.

use std::collections::BTreeSet;

use halite_api::CheckState;

use super::{CHECKS, report, sound};

/// A check, its state when a problem is reported under its name, and that problem.
pub(super) type Case = (&'static str, &'static str, &'static str);

pub(super) const REPORTED: &[Case] = &[
    (
        "declaration",
        "failure",
        "cannot read /etc/halite/cluster.yaml: permission denied",
    ),
    (
        "declaration-warnings",
        "warning",
        "cluster.yaml:12:3: bundle 0.1.0 is older than 0.2.0",
    ),
    (
        "bundle",
        "failure",
        "cannot read /media/iso/bundle.json: input/output error",
    ),
    (
        "bundle-applied",
        "warning",
        "cp-2: still in the state of bundle 0.1.0, but 0.2.0 is in use",
    ),
    ("store-space", "failure", "only 3 MiB are free"),
    (
        "notify",
        "warning",
        "the sink ops has taken no notification since 1970-07-01: it answers 500",
    ),
    ("standbys", "warning", "cp-3 does not follow: it is away"),
    (
        "minion-update",
        "failure",
        "the minion of cp-2 did not reach the master with 0.2.0",
    ),
    (
        "certificate-authorities",
        "failure",
        "the CA etcd expired on 1970-07-01T00:00:00.000Z; no certificate of it is valid",
    ),
    (
        "etcd-data",
        "failure",
        "the etcd member cp-3 has lost its data",
    ),
    (
        "etcd-defrag",
        "warning",
        "the etcd member cp-1 did not answer; next attempt 1970-07-20T02:30Z",
    ),
    ("backup", "failure", "the last backup is of 1970-07-01"),
    (
        "backup-first",
        "warning",
        "cp-2 makes its first backup at 1970-07-20T02:30Z",
    ),
    ("backup-run", "warning", "the last backup on cp-2 failed"),
    (
        "backup-verified",
        "failure",
        "no etcd has started with the newest backup on cp-1",
    ),
    (
        "backup-copies",
        "warning",
        "1 host holds a verified backup, and 2 are declared",
    ),
    (
        "backup-removal",
        "warning",
        "cannot remove the backup 19700701T023000Z: read-only file system",
    ),
    ("backup-encrypted", "warning", "no recipient is declared"),
    (
        "encryption",
        "warning",
        "a rotation of the encryption key has not ended",
    ),
    ("secrets", "warning", "cp-2 cannot decrypt the secrets"),
    (
        "ca-rotation",
        "warning",
        "the rotation of the CA etcd has not ended: it has the stage `sign`",
    ),
    (
        "registry-backup",
        "failure",
        "the last backup of the site registry is of 1970-07-01",
    ),
];

#[test]
fn each_reported_problem_is_a_finding_of_its_check_alone() {
    for (name, state, problem) in REPORTED {
        let mut picture = sound();
        let problems = vec![(*problem).to_owned()];
        picture.reported.insert(name, problems);
        let report = report(&picture);
        assert_eq!(report.healthy, *state == "warning", "{name}");
        let checks = report.checks.iter();
        let found: Vec<_> = checks
            .filter(|check| check.state != CheckState::Good)
            .collect();
        let [check] = found.as_slice() else {
            panic!("{name}: {found:?}");
        };
        assert_eq!(check.name, *name);
        assert_eq!(check.state.as_str(), *state, "{name}");
        let [finding] = check.findings.as_slice() else {
            panic!("{name}: {check:?}");
        };
        assert_eq!(finding.message, *problem, "{name}");
        let mut checks = CHECKS.iter();
        let own = checks.find(|check| check.name == *name).unwrap();
        assert_eq!(finding.remedy.as_deref(), Some(own.remedy), "{name}");
    }
}

#[test]
fn a_reported_problem_that_names_a_command_keeps_its_own_remedy() {
    for (text, is_own) in [
        ("it is late: `ctl backup create` makes one", true),
        ("`systemctl start halite-backup` on cp-2 makes one", true),
        ("`journalctl -u halite-minion` on cp-2 shows why", true),
        ("see `backup.recipients`", false),
    ] {
        let mut picture = sound();
        picture.reported.insert("backup", vec![text.to_owned()]);
        let report = report(&picture);
        let mut findings = report.checks.iter().flat_map(|check| &check.findings);
        let finding = findings.next().unwrap();
        assert_eq!(finding.message, text);
        assert_eq!(finding.remedy.is_none(), is_own, "{text}");
    }
}

/// A problem under a name that no check has would appear in no report.
#[test]
fn the_status_reports_under_the_names_of_checks() {
    let code = include_str!("../../status.rs");
    let calls = ["problems.add(", "problems.warnings("];
    let calls = calls
        .map(|call| code.split(call).skip(1))
        .into_iter()
        .flatten();
    let names = calls.filter_map(|call| call.trim_start().strip_prefix('"')?.split('"').next());
    let names: BTreeSet<&str> = names.collect();
    let cases: BTreeSet<&str> = REPORTED.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, cases);
}
