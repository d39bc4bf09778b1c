//! Operators with roles: created, tested with the real programs, revoked, refused. A viewer follows
//! the work of others.

use anyhow::{Result, ensure};
use halite_api::{AuditLine, AuditLog, HostJournal};
use halite_lab::cluster::{CTL, Cluster, WORKER};
use halite_lab::wait;

use super::{ctl, following, patience};
use crate::ctl_answer;
use crate::test::Counts;

/// The directory of the operators' files, on the bootstrap host.
const FILES: &str = "/root/lab-operators";

/// Commands, and the roles that may run them: viewer, deployer.
const MAY: &[(&[&str], [bool; 2])] = &[
    (&["status"], [true, true]),
    (&["ping", WORKER], [true, true]),
    (&["pillar", WORKER], [true, true]),
    (&["key", "list"], [true, true]),
    (&["operator", "list"], [true, true]),
    (&["audit", "--limit", "5"], [true, true]),
    (&["highstate", WORKER, "--test"], [false, true]),
    (&["highstate", WORKER], [false, true]),
    (&["cmd", WORKER, "--", "true"], [false, false]),
    (&["logs", WORKER, "kubelet"], [false, false]),
    (&["token", "create"], [false, false]),
    (&["kubeconfig"], [false, false]),
    (&["kubeconfig", "list"], [true, true]),
    (&["key", "reject", WORKER], [false, false]),
    (&["node", "add", "worker-9", "--no-wait"], [false, false]),
    (&["operator", "revoke", "root", "--yes"], [false, false]),
];

/// States that take a host out of service: refused for every role, and not applied here.
const RESERVED: &[&str] = &[
    "halite.leave.data",
    "halite.leave.*",
    "halite.base.etcd.alone",
    "halite.services.master.absent",
];

/// An operator of this suite.
struct Operator {
    role: &'static str,
    name: String,
    file: String,
}

impl Operator {
    fn new(role: &'static str) -> Self {
        Self {
            role,
            name: format!("lab-{role}"),
            file: format!("{FILES}/{role}.pem"),
        }
    }

    /// Exit code and messages of a command of this operator.
    fn says(&self, cluster: &Cluster, args: &[&str]) -> Result<(bool, String)> {
        let all = [&[CTL, "--identity", &self.file], args].concat();
        let output = cluster.bootstrap.output(&all)?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Ok((output.status.success(), said))
    }
}

pub(super) fn roles(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    host.sh(&format!("rm -rf {FILES} && mkdir -m 0700 {FILES}"))?;
    let operators = ["viewer", "deployer"].map(Operator::new);
    for operator in &operators {
        // From an interrupted run.
        let _ = ctl(cluster, &["operator", "revoke", &operator.name, "--yes"]);
        create(cluster, operator)?;
    }
    for (args, allowed) in MAY {
        for (operator, allowed) in operators.iter().zip(allowed) {
            let shown = args.join(" ");
            let said = wait::until("the role's permissions", patience(args), || {
                let (done, said) = operator.says(cluster, args)?;
                ensure!(
                    done == *allowed,
                    "a {} and ctl {shown}: {said:?}",
                    operator.role
                );
                Ok(said)
            })?;
            ensure!(
                *allowed || said.contains("needs the role"),
                "a {} was refused ctl {shown} without the role that it takes: {said:?}",
                operator.role
            );
        }
    }
    reserved(cluster, &operators)?;
    let words = ["logs", WORKER, "kubelet", "--lines", "5"];
    let journal: HostJournal = ctl_answer::of(host, &words)?;
    ensure!(!journal.lines.is_empty(), "the kubelet has no journal");
    let [viewer, _] = &operators;
    following::events(cluster, &viewer.file)?;
    following::run(cluster, &viewer.file)?;
    for operator in &operators {
        ctl(cluster, &["operator", "revoke", &operator.name, "--yes"])?;
        let (done, said) = operator.says(cluster, &["status"])?;
        ensure!(
            !done && said.contains("does not accept this identity"),
            "{} is revoked, but the answer was {said:?}",
            operator.name
        );
    }
    let last = host.output(&[CTL, "operator", "revoke", "root", "--yes"])?;
    let said = String::from_utf8_lossy(&last.stderr);
    ensure!(
        !last.status.success() && said.contains("last administrator"),
        "the last administrator: {said:?}"
    );
    audit(cluster, &operators)?;
    host.sh(&format!("rm -r {FILES}"))?;
    Ok(Counts::ONE)
}

/// No operator applies states of leaving hosts, not even root. In test mode, so that nothing is
/// lost if they are not refused.
fn reserved(cluster: &Cluster, operators: &[Operator]) -> Result<()> {
    for sls in RESERVED {
        let args = ["apply", WORKER, sls, "--test"];
        for operator in operators {
            let (done, said) = operator.says(cluster, &args)?;
            let wanted = match operator.role {
                "viewer" => "needs the role",
                _ => "of Halite apply it",
            };
            ensure!(
                !done && said.contains(wanted),
                "a {} may apply {sls}: {said:?}",
                operator.role
            );
        }
        let output = cluster
            .bootstrap
            .output(&[&[CTL], args.as_slice()].concat())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            !output.status.success() && said.contains("of Halite apply it"),
            "root may apply {sls}: {said:?}"
        );
    }
    Ok(())
}

fn create(cluster: &Cluster, operator: &Operator) -> Result<()> {
    let Operator { role, name, file } = operator;
    let args = ["operator", "create", name, "--role", role, "--out", file];
    let said = ctl(cluster, &args)?;
    ensure!(
        !said.contains("PRIVATE KEY"),
        "ctl operator create printed a key"
    );
    let mode = cluster.bootstrap.sh(&format!("stat -c %a {file}"))?;
    ensure!(mode.trim() == "600", "{file} has the mode {mode}");
    Ok(())
}

/// The audit log has both commands of each operator, and the refusals.
fn audit(cluster: &Cluster, operators: &[Operator]) -> Result<()> {
    for operator in operators {
        for (filter, wanted) in [
            (["--action", "CreateOperator"], "ok"),
            (["--action", "RevokeOperator"], "ok"),
            (["--operator", &operator.name], "refused"),
        ] {
            let words = [["audit"].as_slice(), &filter].concat();
            let found: AuditLog = ctl_answer::of(&cluster.bootstrap, &words)?;
            let is_named = |line: &AuditLine| {
                let name = &operator.name;
                (line.what.starts_with(name) || line.who.ends_with(name))
                    && line.outcome.starts_with(wanted)
            };
            ensure!(
                found.audit.iter().any(is_named),
                "{filter:?} of {} is not in the audit: {found:?}",
                operator.name
            );
        }
    }
    Ok(())
}
