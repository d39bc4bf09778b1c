//! A waiting run that an operator cancels: its lock is released, and its changes stay.

use anyhow::{Context as _, Result, ensure};
use halite_api::{RunList, RunStatus, RunSummary};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;
use serde_json::Value;

use super::BACK;
use crate::ctl_answer;
use crate::interrupted::Running;

/// The removal of the worker, which a budget blocks, is cancelled. The worker is unchanged, but
/// unschedulable.
pub(super) fn removal(cluster: &Cluster) -> Result<()> {
    let first = &cluster.bootstrap;
    let name = cluster.worker.spec.name.as_str();
    let words = ["ctl", "node", "remove", name, "--yes"];
    let words = [&words[..], &["--delete-emptydir-data"]].concat();
    let running = Running::start(first, &words)?;
    let run = wait::until("the removal to drain the worker", BACK, || draining(first))?;
    let said = first.run(&["ctl", "orchestrate", "cancel", &run])?;
    print!("  {said}");
    ensure!(said.contains("was cancelled by "), "{said}");
    let (status, said) = running.ended(|| Ok(()))?;
    ensure!(
        !status.success() && said.contains("was cancelled by ") && said.contains("To continue"),
        "{status}: {said}"
    );
    let runs = runs(first)?;
    let own = runs.iter().find(|own| own.run.as_str() == run);
    let own = own.with_context(|| format!("{run} is not listed"))?;
    ensure!(
        own.status == RunStatus::Cancelled
            && own.cancelled_by.is_some()
            && own.on.as_deref() == Some(name),
        "{own:?}"
    );
    // It needs the lock that the removal had.
    first.run(&["timeout", "120", "ctl", "etcd", "defrag"])?;
    let node: Value =
        serde_json::from_str(&cluster.kubectl(&["get", "node", name, "-o", "json"])?)?;
    ensure!(node["spec"]["unschedulable"] == true, "{}", node["spec"]);
    first.run(&["ctl", "node", "uncordon", name]).map(drop)
}

/// The newest runs of orchestrations.
pub(super) fn runs(first: &Host) -> Result<Vec<RunSummary>> {
    let list: RunList = ctl_answer::of(first, &["orchestrate", "list"])?;
    Ok(list.runs)
}

/// The id of the run that drains.
fn draining(first: &Host) -> Result<String> {
    let runs = runs(first)?;
    let drains = |run: &&RunSummary| {
        run.status == RunStatus::Running && run.step.as_deref() == Some("drained")
    };
    let run = runs.iter().find(drains);
    let id = run.map(|run| run.run.to_string());
    id.with_context(|| format!("no run drains: {runs:?}"))
}
