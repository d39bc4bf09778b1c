//! Operators follow the work of others: events, a job and a run, while they run and afterwards. A
//! viewer sees no output of commands.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_api::{Event, EventData, Job, JobList, JobOutcome, JobStatus, from_text};
use halite_lab::cluster::{CTL, Cluster, WORKER};
use halite_lab::wait;

use crate::ctl_answer;
use crate::interrupted::Running;

/// The output of a command.
const CANARY: &str = "lab-canary-4711";
/// All events of jobs. The stored ones, which come first, show that the stream is open.
const EVENTS: &[&str] = &[
    "-o",
    "json",
    "events",
    "--prefix",
    "halite/job/",
    "--after",
    "0",
];
/// The file on the worker that lets the run continue.
const HANG: &str = "/run/halite-test-followed";
/// Limit for a run to start its job.
const SOON: Duration = Duration::from_secs(60);

/// The words of `ctl` for an operator with this file.
fn words_of<'a>(identity: &'a str, words: &[&'a str]) -> Vec<&'a str> {
    [&[CTL, "--identity", identity], words].concat()
}

/// The events of a command, as root and a viewer read them at the same time.
pub(super) fn events(cluster: &Cluster, viewer: &str) -> Result<()> {
    let host = &cluster.bootstrap;
    let mut theirs = Running::start(host, &words_of(viewer, EVENTS))?;
    let mut own = Running::start(host, &[&[CTL], EVENTS].concat())?;
    let job = announced(cluster, [&mut theirs, &mut own]);
    // They do not end by themselves. Other processes of `ctl` are left alone.
    host.sh("pkill -KILL -f 'prefix [h]alite/job/' || true")?;
    let (_, theirs) = theirs.ended(|| Ok(()))?;
    let (_, own) = own.ended(|| Ok(()))?;
    let job = job?;
    ensure!(
        !theirs.contains(CANARY),
        "a viewer's events have the output of a command: {theirs}"
    );
    for (said, is_admin) in [(&theirs, false), (&own, true)] {
        let (mut created, mut returned) = (0, 0);
        for line in said.lines().filter(|line| line.contains(&job)) {
            let event: Event = from_text(line)?;
            match EventData::from_value(&event.tag, event.data) {
                EventData::JobCreated(data) => {
                    ensure!(data.function == "cmd.run", "{line}");
                    created += 1;
                }
                // A short output can be guessed from its digest.
                EventData::PartReturned(data) => {
                    ensure!(data.digest.is_some() == is_admin, "{line}");
                    returned += 1;
                }
                _ => {}
            }
        }
        let hosts = cluster.hosts().len();
        ensure!(
            created == 1 && returned == hosts,
            "{created} announcements and {returned} returns from {hosts} hosts: {said}"
        );
    }
    // The record. Its arguments have the text of the output, too.
    let record: Job = ctl_answer::of(host, &["job", "show", &job])?;
    let parts = record.returns.context("the record has no returns")?;
    let outputs = parts
        .iter()
        .filter_map(|part| part.answer.as_ref()?.stdout());
    let number = outputs.filter(|output| output.contains(CANARY)).count();
    ensure!(
        number == cluster.hosts().len(),
        "root does not see the output of each host: {parts:?}"
    );
    // By a command that follows a job which has ended.
    let theirs = host.run(&words_of(viewer, &["job", "follow", &job]))?;
    ensure!(
        theirs.contains("need the role admin") && !theirs.contains(CANARY),
        "a viewer's record of a command: {theirs}"
    );
    Ok(())
}

/// Runs a command once all streams are open, and waits until they have its end; returns its job.
fn announced(cluster: &Cluster, mut streams: [&mut Running; 2]) -> Result<String> {
    for stream in &mut streams {
        let first = stream.next_line(0, |_| true)?;
        first.context("ctl events has ended")?;
    }
    let words = ["cmd", "*", "--", "echo", CANARY];
    let outcome: JobOutcome = ctl_answer::of(&cluster.bootstrap, &words)?;
    let job = outcome.job.context("a command without a job")?.to_string();
    for stream in streams {
        stream.wait_for_line(&[&job, "/done"])?;
    }
    Ok(job)
}

/// A viewer follows a run and its job to their ends.
pub(super) fn run(cluster: &Cluster, viewer: &str) -> Result<()> {
    let custom = cluster.bootstrap.file("/etc/halite/custom");
    ensure!(!custom.exists(), "{} already exists", custom.display());
    let result = run_in(cluster, &custom, viewer);
    cluster.worker.sh(&format!("rm -f {HANG}"))?;
    fs::remove_dir_all(&custom)?;
    result
}

fn run_in(cluster: &Cluster, custom: &Path, viewer: &str) -> Result<()> {
    let host = &cluster.bootstrap;
    fs::create_dir_all(custom)?;
    // A job that applies states: only its events are stored, so that a later follower sees its
    // start.
    let orchestration =
        format!("step:\n  halite.state:\n    - tgt: {WORKER}\n    - sls: [custom.waits]\n");
    fs::write(custom.join("followed.sls"), orchestration)?;
    let waits =
        format!("waits:\n  cmd.run:\n    - name: while test -e {HANG}; do sleep 0.1; done\n");
    fs::write(custom.join("waits.sls"), waits)?;
    cluster.worker.sh(&format!("touch {HANG}"))?;
    let started = Running::start(host, &[CTL, "orchestrate", "custom.followed"])?;
    let (job, run) = wait::until("the job of the run", SOON, || {
        let list: JobList = ctl_answer::of(host, &["job", "list"])?;
        let ours = |job: &&Job| job.function == "state.apply" && job.status == JobStatus::Running;
        let job = list
            .jobs
            .iter()
            .find(ours)
            .context("no states are applied")?;
        let run = job.operator.strip_prefix("run:");
        let run = run.with_context(|| format!("{} applies states", job.operator))?;
        Ok((job.job.to_string(), run.to_owned()))
    })?;
    let follow_run = words_of(viewer, &["orchestrate", "follow", &run]);
    let mut of_job = Running::start(host, &words_of(viewer, &["job", "follow", &job]))?;
    let of_run = Running::start(host, &follow_run)?;
    of_job.wait_for_line(&[&job, "state.apply on"])?;
    cluster.worker.sh(&format!("rm -f {HANG}"))?;
    for (running, part) in [
        (started, ""),
        (of_job, "has ended: 1 succeeded"),
        (of_run, "step"),
    ] {
        let (status, said) = running.ended(|| Ok(()))?;
        ensure!(
            status.success() && said.contains(part),
            "ended with {status} and {said:?}, which should have {part:?}"
        );
    }
    let said = host.run(&follow_run)?;
    ensure!(said.contains("succeeded"), "the run has ended: {said}");
    Ok(())
}
