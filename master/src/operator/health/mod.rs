//! `ctl health`, and the findings in `ctl status`: named checks of the cluster as the master sees
//! it.
//!
//! A check is a row of [`CHECKS`] and a pure function of the [`Picture`]; the reference
//! (docs/reference/health.md) is generated from the table. A new check is one row, one function in
//! the module of its subject, and the data that it needs in the picture, which [`observe`] takes.

mod certificates;
mod cluster;
mod etcd;
mod hosts;
mod network;
mod observe;
mod picture;
#[cfg(test)]
mod tests;

use halite_api::{CheckResult, CheckState, Health, HealthFinding};

pub(super) use observe::{ClusterAnswers, observe};
pub(super) use picture::{HostPicture, Picture};

/// The weight of a check's findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    /// Something is wrong: the exit code is 1.
    Failure,
    /// Something will fail, or could be better.
    Warning,
}

/// One finding of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Finding {
    /// One sentence.
    message: String,
    /// The name for HOST in the remedy, empty for the cluster as a whole; `None` where the message
    /// has its own remedy.
    host: Option<String>,
    /// The next step where it differs between the findings of the check.
    remedy: Option<String>,
}

impl Finding {
    /// A finding about a host; with an empty name, about the cluster as a whole.
    fn on(host: &str, message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            host: Some(host.to_owned()),
            remedy: None,
        }
    }

    /// A finding whose message contains its remedy.
    fn complete(message: impl Into<String>) -> Self {
        Self {
            message: message.into(),
            host: None,
            remedy: None,
        }
    }
}

/// A named check.
pub(super) struct Check {
    /// The name, for programs and for searches in the documents.
    pub name: &'static str,
    /// The healthy state, as a heading.
    pub title: &'static str,
    /// The weight of its findings.
    pub severity: Severity,
    /// The operator's next step, in one line; HOST is the name of the host.
    pub remedy: &'static str,
    judge: fn(&Picture) -> Vec<Finding>,
}

/// The starts of commands in the messages of other modules. A message with one has its own remedy.
const COMMANDS: [&str; 4] = ["`ctl ", "`systemctl ", "`journalctl ", "`kubectl "];

/// The findings of other modules, by the name of the check. One that names no command gets the
/// remedy of the check.
fn reported(picture: &Picture, name: &str) -> Vec<Finding> {
    let texts = picture.reported.get(name).into_iter().flatten();
    let finding = |text: &String| {
        if COMMANDS.iter().any(|command| text.contains(command)) {
            Finding::complete(text)
        } else {
            Finding::on("", text)
        }
    };
    texts.map(finding).collect()
}

/// All checks, in the order of the report: causes come before their consequences.
pub(super) const CHECKS: &[Check] = &[
    // The site.
    Check {
        name: "declaration",
        title: "The documents are valid",
        severity: Severity::Failure,
        remedy: "`ctl config validate` shows each problem with its place",
        judge: |picture| reported(picture, "declaration"),
    },
    Check {
        name: "declaration-warnings",
        title: "The documents have no warnings",
        severity: Severity::Warning,
        remedy: "`ctl config validate` shows each warning with its place",
        judge: |picture| reported(picture, "declaration-warnings"),
    },
    Check {
        name: "bundle",
        title: "The bundle in use is readable",
        severity: Severity::Failure,
        remedy: "mount its disk, or `ctl bundle list` and `ctl bundle use` for another one",
        judge: |picture| reported(picture, "bundle"),
    },
    Check {
        name: "bundle-applied",
        title: "Each host matches the bundle in use",
        severity: Severity::Warning,
        remedy: "`ctl highstate` updates the hosts",
        judge: |picture| reported(picture, "bundle-applied"),
    },
    Check {
        name: "store-space",
        title: "The master's store has room",
        severity: Severity::Failure,
        remedy: "free space on the file system of /var/lib/halite/master",
        judge: |picture| reported(picture, "store-space"),
    },
    Check {
        name: "notify",
        title: "Each sink takes notifications",
        severity: Severity::Warning,
        remedy: "`ctl notify list` shows the last attempts; `ctl notify test` sends a notification at once",
        judge: |picture| reported(picture, "notify"),
    },
    // The masters: standbys and their epoch.
    Check {
        name: "standbys",
        title: "Each standby is up to date with the master",
        severity: Severity::Warning,
        remedy: "`journalctl -u halite-master` on the standby says why; `ctl highstate` for it starts it again",
        judge: |picture| reported(picture, "standbys"),
    },
    // The hosts.
    Check {
        name: "minions",
        title: "The minion of each host is connected",
        severity: Severity::Failure,
        remedy: "is HOST on and reachable? `systemctl status halite-minion` there shows the rest, `systemctl start halite-minion` starts it",
        judge: hosts::minions,
    },
    Check {
        name: "enrolment",
        title: "Each declared host is enrolled",
        severity: Severity::Warning,
        remedy: "`ctl node add HOST` prints the command to run on it; `ctl key list` shows a key that waits",
        judge: hosts::enrolment,
    },
    Check {
        name: "minion-update",
        title: "Updates of minions have reached the master",
        severity: Severity::Failure,
        remedy: "`journalctl -u halite-minion` on the host, then `ctl highstate` for it",
        judge: |picture| reported(picture, "minion-update"),
    },
    Check {
        name: "highstate",
        title: "The last highstate of each host succeeded",
        severity: Severity::Warning,
        remedy: "`ctl highstate HOST` shows what fails, and repeats the rest",
        judge: hosts::highstate,
    },
    Check {
        name: "certificate-authorities",
        title: "No CA has expired",
        severity: Severity::Failure,
        remedy: "`ctl certs list` shows each CA with its end; the finding says what still works",
        judge: |picture| reported(picture, "certificate-authorities"),
    },
    Check {
        name: "certificates-valid",
        title: "No certificate has expired",
        severity: Severity::Failure,
        remedy: "`ctl highstate HOST` makes it again",
        judge: certificates::ended,
    },
    Check {
        name: "certificates-ending",
        title: "No certificate ends soon (in the last sixth of its time)",
        severity: Severity::Warning,
        remedy: "`ctl highstate HOST` renews it",
        judge: certificates::ending,
    },
    Check {
        name: "certificates-renewed",
        title: "Each certificate in the last third of its time is renewed",
        severity: Severity::Warning,
        remedy: "`ctl highstate HOST` renews them now, and shows what fails",
        judge: certificates::renewals,
    },
    // etcd.
    Check {
        name: "etcd-disk",
        title: "The file system of each member of etcd has room",
        severity: Severity::Failure,
        remedy: "free space there, or make it larger, on HOST: a member that has ended starts again by itself",
        judge: etcd::disks,
    },
    Check {
        name: "etcd-quorum",
        title: "The members of etcd have a quorum",
        severity: Severity::Failure,
        remedy: "switch on the hosts of the missing members; nothing is written until more than half serve",
        judge: etcd::quorum,
    },
    Check {
        name: "etcd-members",
        title: "Each member of etcd serves",
        severity: Severity::Failure,
        remedy: "`tail /var/log/pods/kube-system_etcd-HOST_*/etcd/*.log`, or `journalctl -u etcd`, on HOST; `ctl highstate HOST` starts it again",
        judge: etcd::members,
    },
    Check {
        name: "etcd-data",
        title: "Each member of etcd has its data",
        severity: Severity::Failure,
        remedy: "`ctl highstate` for the host shows how to recover it",
        judge: |picture| reported(picture, "etcd-data"),
    },
    Check {
        name: "etcd-alarms",
        title: "etcd has raised no alarm",
        severity: Severity::Failure,
        remedy: "NOSPACE: the master makes room within a minute, `ctl etcd defrag` at once; CORRUPT: remove the member and add it again",
        judge: etcd::alarms,
    },
    Check {
        name: "etcd-space",
        title: "The database of etcd has room below its quota",
        severity: Severity::Warning,
        remedy: "`ctl etcd defrag HOST`, or a larger `quota-backend-bytes` in etcd.extraArgs",
        judge: etcd::space,
    },
    Check {
        name: "etcd-defrag",
        title: "etcd is defragmented at the declared time",
        severity: Severity::Warning,
        remedy: "`ctl etcd status` shows each member; `ctl etcd defrag` does it at once",
        judge: |picture| reported(picture, "etcd-defrag"),
    },
    // Kubernetes.
    Check {
        name: "api",
        title: "The Kubernetes API answers",
        severity: Severity::Failure,
        remedy: "`ctr -n k8s.io containers ls` on a control plane shows its containers, and /var/log/pods why one fails; `ctl highstate` writes its manifest again",
        judge: cluster::api,
    },
    Check {
        name: "api-servers",
        title: "Each API server is ready",
        severity: Severity::Failure,
        remedy: "`tail /var/log/pods/kube-system_kube-apiserver-HOST_*/kube-apiserver/*.log` on HOST; `ctl highstate HOST` writes its manifest again",
        judge: cluster::servers,
    },
    Check {
        name: "control-plane-pods",
        title: "Each control plane runs all its components",
        severity: Severity::Failure,
        remedy: "`ctl highstate HOST` puts its manifest back; the logs below /var/log/pods there show why one fails",
        judge: cluster::components,
    },
    Check {
        name: "encryption",
        title: "Objects in etcd are encrypted as declared, and no rotation is left in the middle",
        severity: Severity::Warning,
        remedy: "`ctl certs rotate encryption` begins or continues it, and shows the one that runs",
        judge: |picture| reported(picture, "encryption"),
    },
    Check {
        name: "secrets",
        title: "Each standby and each declared recipient can decrypt the encrypted values of secrets",
        severity: Severity::Warning,
        remedy: "`systemctl restart halite-master` on the standby: it sends its recipient; `ctl certs rotate secrets` for changed recipients; `ctl secrets recipients` lists them",
        judge: |picture| reported(picture, "secrets"),
    },
    Check {
        name: "ca-rotation",
        title: "No rotation of a CA is left in the middle",
        severity: Severity::Warning,
        remedy: "`ctl certs rotate CA` continues it, and shows the one that runs; the finding names the command",
        judge: |picture| reported(picture, "ca-rotation"),
    },
    Check {
        name: "vip",
        title: "One host holds the virtual address of the API",
        severity: Severity::Failure,
        remedy: "`systemctl status keepalived` on the control planes; `ctl highstate` writes its configuration and starts it again",
        judge: cluster::vip,
    },
    Check {
        name: "nodes",
        title: "Each Kubernetes node is Ready",
        severity: Severity::Failure,
        remedy: "`kubectl describe node HOST`, `journalctl -u kubelet` there; `ctl highstate HOST` restores its declared configuration, and starts it",
        judge: hosts::nodes,
    },
    Check {
        name: "node-daemons",
        title: "The pods of kube-proxy and of the pod network run on each node",
        severity: Severity::Failure,
        remedy: "the finding names the pod: `kubectl describe pod` and its logs say why; `ctl highstate HOST` repairs what it needs on \
                 the host",
        judge: network::daemons,
    },
    Check {
        name: "pod-network-setup",
        title: "A new pod on each node gets the declared network",
        severity: Severity::Failure,
        remedy: "the finding names the obstacle; `ctl highstate HOST` repairs what flannel and Halite have written",
        judge: network::setup,
    },
    Check {
        name: "pod-network",
        title: "Pods of each node reach those of other nodes, the API's Service and the cluster's DNS",
        severity: Severity::Failure,
        remedy: "the finding names the unreachable target; `ctl highstate HOST` writes lost routes and rules of the firewall again",
        judge: network::traffic,
    },
    Check {
        name: "dns",
        title: "A replica of the cluster's DNS is ready",
        severity: Severity::Failure,
        remedy: "`kubectl -n kube-system describe pods -l k8s-app=kube-dns` and `kubectl -n kube-system logs -l k8s-app=kube-dns` say \
                 why; without any pod `kubectl -n kube-system get events` does",
        judge: cluster::dns,
    },
    Check {
        name: "dns-spread",
        title: "The loss of one host leaves a replica of the cluster's DNS",
        severity: Severity::Warning,
        remedy: "`kubectl -n kube-system delete pod $(kubectl -n kube-system get pods -l k8s-app=kube-dns -o \
                 jsonpath='{.items[0].metadata.name}')` starts one of them again, on another host",
        judge: cluster::dns_spread,
    },
    // Backups.
    Check {
        name: "backup",
        title: "The cluster is backed up",
        severity: Severity::Failure,
        remedy: "`journalctl -u halite-backup` on the host that is named; `systemctl start halite-backup` there makes one",
        judge: |picture| reported(picture, "backup"),
    },
    Check {
        name: "backup-first",
        title: "Each host with backups of the cluster has its first",
        severity: Severity::Warning,
        remedy: "wait for the time that is named, or `ctl backup create`; without one after an interval of `backup.at` it is a failure",
        judge: |picture| reported(picture, "backup-first"),
    },
    Check {
        name: "backup-run",
        title: "The last scheduled backup on each host succeeded",
        severity: Severity::Warning,
        remedy: "remove the cause that is named; the next run is tried by itself, or `systemctl start halite-backup` on the host",
        judge: |picture| reported(picture, "backup-run"),
    },
    Check {
        name: "backup-verified",
        title: "The newest backup on each host is verified, and an etcd starts with it",
        severity: Severity::Failure,
        remedy: "`systemctl start halite-backup halite-backup-verify` on the host that is named",
        judge: |picture| reported(picture, "backup-verified"),
    },
    Check {
        name: "backup-copies",
        title: "As many hosts as declared hold a verified backup of the cluster",
        severity: Severity::Warning,
        remedy: "`ctl highstate` sets up the timers of the standbys; `systemctl start halite-backup halite-backup-verify` there makes \
                 one and verifies it",
        judge: |picture| reported(picture, "backup-copies"),
    },
    Check {
        name: "backup-removal",
        title: "Old backups of the cluster are removed",
        severity: Severity::Warning,
        remedy: "`journalctl -u halite-backup` on the master's host says why they stay; `ctl backup list` shows them",
        judge: |picture| reported(picture, "backup-removal"),
    },
    Check {
        name: "backup-encrypted",
        title: "Backups of the cluster are encrypted",
        severity: Severity::Warning,
        remedy: "declare the public keys of their readers as `backup.recipients`",
        judge: |picture| reported(picture, "backup-encrypted"),
    },
    Check {
        name: "registry-backup",
        title: "The site registry is backed up",
        severity: Severity::Failure,
        remedy: "`journalctl -u halite-registry-backup` on the registry's host",
        judge: |picture| reported(picture, "registry-backup"),
    },
];

/// Runs all checks; returns `healthy`, and one entry for each check.
pub(super) fn report(picture: &Picture) -> Health {
    let judged: Vec<(&Check, Vec<Finding>)> = CHECKS
        .iter()
        .map(|check| (check, (check.judge)(picture)))
        .collect();
    let failed = |(check, found): &(&Check, Vec<Finding>)| {
        check.severity == Severity::Failure && !found.is_empty()
    };
    Health {
        healthy: !judged.iter().any(failed),
        checks: (judged.iter())
            .map(|(check, found)| result(check, found))
            .collect(),
    }
}

fn result(check: &Check, found: &[Finding]) -> CheckResult {
    let finding = |one: &Finding| {
        let own = one.remedy.clone();
        HealthFinding {
            message: one.message.clone(),
            host: one.host.clone().filter(|host| !host.is_empty()),
            remedy: own.or_else(|| one.host.as_ref().map(|host| remedy(check, host))),
        }
    };
    CheckResult {
        name: check.name.to_owned(),
        title: check.title.to_owned(),
        state: match (found, check.severity) {
            ([], _) => CheckState::Good,
            (_, Severity::Failure) => CheckState::Failure,
            (_, Severity::Warning) => CheckState::Warning,
        },
        findings: found.iter().map(finding).collect(),
    }
}

fn remedy(check: &Check, host: &str) -> String {
    match host {
        "" => check.remedy.to_owned(),
        host => check.remedy.replace("HOST", host),
    }
}
