//! Mistakes of an operator that must have no further effects: an invalid document while the master
//! restarts, and a state that would be retried for hours.

use std::fs;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_api::{Job, JobList, JobPart, JobStatus, PartState};
use halite_lab::cluster::{CTL, Cluster};
use halite_lab::wait;

use super::super::health::is_well;
use super::super::repair;
use super::ctl;
use crate::ctl_answer;
use crate::test::{Counts, Test};

pub(super) const RESTART: Test<Cluster> = Test {
    name: "operator: a restart with a mistake in a document cuts off no host",
    run: restart,
};

pub(super) const RETRY: Test<Cluster> = Test {
    name: "operator: a cancelled retry frees its host",
    run: retry,
};

/// The time in which the master answers again, and in which a cancelled job must end.
const SOON: Duration = Duration::from_secs(60);

const HOURS: &str =
    "never:\n  cmd.run:\n    - name: 'false'\n    - retry: {attempts: 100, interval: 600}\n";

fn restart(cluster: &Cluster) -> Result<Counts> {
    let document = cluster.bootstrap.root().join("etc/halite/cluster.yaml");
    let sound = fs::read_to_string(&document)?;
    fs::write(&document, format!("{sound}\nmistake: [\n"))?;
    let result = restart_with_mistake(cluster);
    fs::write(&document, sound)?;
    result?;
    is_well(cluster)?;
    repair::quiet(cluster)?;
    Ok(Counts::ONE)
}

fn restart_with_mistake(cluster: &Cluster) -> Result<()> {
    let first = &cluster.bootstrap;
    first.sh("systemctl restart halite-master")?;
    let all = || {
        let text = ctl(cluster, &["ping", "-o", "json"])?;
        for host in cluster.hosts() {
            ensure!(
                text.contains(&host.spec.name),
                "{} is not in {text}",
                host.spec.name
            );
        }
        Ok(())
    };
    wait::until("all hosts to answer a ping", SOON, all)?;
    // A stream that is cut comes back: the master's log shows how often.
    let line = "journalctl -o cat _SYSTEMD_INVOCATION_ID=$(systemctl show -P InvocationID halite-master) \
                | grep -c 'minion disconnected' || true";
    ctl(cluster, &["grains", "*", "--item", "os"])?;
    let cut = first.sh(line)?;
    ensure!(cut.trim() == "0", "{} streams ended", cut.trim());
    for verb in ["status", "health"] {
        let output = first.output(&[CTL, verb])?;
        let said = String::from_utf8_lossy(&output.stdout);
        let top = said.lines().next().unwrap_or_default();
        ensure!(
            output.status.code() == Some(1) && top.contains("cluster.yaml:"),
            "ctl {verb} does not start with the mistake: {said}"
        );
    }
    let output = first.output(&[CTL, "highstate"])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && said.contains("cluster.yaml:"),
        "a highstate with an invalid document: {said}"
    );
    Ok(())
}

fn retry(cluster: &Cluster) -> Result<Counts> {
    let custom = cluster.bootstrap.root().join("etc/halite/custom");
    ensure!(!custom.exists(), "{} already exists", custom.display());
    fs::create_dir_all(&custom)?;
    fs::write(custom.join("hours.sls"), HOURS)?;
    let result = cancelled(cluster);
    fs::remove_dir_all(&custom)?;
    result?;
    repair::quiet(cluster)?;
    Ok(Counts::ONE)
}

/// The status of a job, and its first part.
fn part(cluster: &Cluster, job: &str) -> Result<(JobStatus, JobPart)> {
    let shown: Job = ctl_answer::of(&cluster.bootstrap, &["job", "show", job])?;
    let part = shown.returns.and_then(|parts| parts.into_iter().next());
    Ok((shown.status, part.context("a job without parts")?))
}

fn cancelled(cluster: &Cluster) -> Result<()> {
    let worker = &cluster.worker.spec.name;
    let mut command = cluster
        .bootstrap
        .command(&[CTL, "apply", worker, "custom.hours"])?;
    let mut applying = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let running = || {
        let jobs: JobList = ctl_answer::of(&cluster.bootstrap, &["job", "list"])?;
        let ours = |job: &&Job| job.function == "state.apply" && job.status == JobStatus::Running;
        let job = jobs.jobs.iter().find(ours);
        let job = job.context("the job does not run")?.job.to_string();
        let shown = part(cluster, &job)?;
        ensure!(shown.1.state == PartState::Started, "{shown:?}");
        Ok(job)
    };
    let job_id = wait::until("the states to run", SOON, running);
    let ended = job_id.and_then(|job_id| {
        ctl(cluster, &["job", "cancel", &job_id])?;
        let ended = || {
            let (status, part) = part(cluster, &job_id)?;
            ensure!(status != JobStatus::Running, "{part:?}");
            let part = format!("{part:?}");
            ensure!(
                part.contains("not tried again"),
                "the minion did not end it: {part}"
            );
            Ok(())
        };
        wait::until("the minion to return", SOON, ended)
    });
    // It ends with its job; after a failure of this test it would be in the way.
    if ended.is_err() {
        applying.kill()?;
    }
    applying.wait()?;
    ended
}
