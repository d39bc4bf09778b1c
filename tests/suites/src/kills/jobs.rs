//! No job is lost, and none is started twice.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use halite_api::{Job, JobList, JobStatus, PartState};
use halite_lab::host::Host;

use crate::ctl_answer;

/// Limit of listed jobs, higher than the number that one series of kills ever makes.
const LIMIT: &str = "500";
/// The function of `ctl ping`.
const PING: &str = "test.ping";

/// The newest jobs, newest first.
pub fn list(bootstrap: &Host) -> Result<Vec<Job>> {
    let list: JobList = ctl_answer::of(bootstrap, &["job", "list", "--limit", LIMIT])?;
    Ok(list.jobs)
}

/// A job with the returns of its minions.
pub fn show(bootstrap: &Host, job: &str) -> Result<Job> {
    ctl_answer::of(bootstrap, &["job", "show", job])
}

/// The id of the newest job; ids increase.
pub fn newest(bootstrap: &Host) -> Result<String> {
    let jobs = list(bootstrap)?;
    let newest = jobs.first().map(|job| job.job.to_string());
    Ok(newest.unwrap_or_default())
}

/// Checks that every job after `newest` has ended, that each minion has answered it or was not sent
/// it because an earlier one failed, and that no minion started it twice. The first of the hosts is
/// the bootstrap host. Pings do not count: [`answering`](super::super::repair::answering) sends
/// them while a minion is not connected yet, and then they have no answer.
pub fn sound(hosts: &[&Host], newest: &str) -> Result<()> {
    let bootstrap = hosts.first().context("no host")?;
    for job in list(bootstrap)?
        .iter()
        .filter(|job| job.job.as_str() > newest)
        .filter(|job| job.function != PING)
    {
        let id = &job.job;
        ensure!(
            job.status != JobStatus::Running,
            "job {id} never ended: {job:#?}"
        );
        let parts = show(bootstrap, id)?.returns.unwrap_or_default();
        let interrupted = parts
            .iter()
            .any(|part| part.state == PartState::Returned && part.retcode != Some(0));
        for part in parts {
            let error = part.error.as_deref().unwrap_or_default();
            // An ordered run ends after the host whose part was interrupted.
            let not_started = interrupted && error.starts_with("not started, because ");
            ensure!(
                part.state == PartState::Returned || not_started,
                "{} never answered job {id}: {error}",
                part.minion
            );
        }
    }
    for host in hosts {
        let journal = host.run(&[
            "journalctl",
            "-u",
            "halite-minion",
            "-o",
            "cat",
            "--no-pager",
        ])?;
        let mut begun: BTreeMap<&str, usize> = BTreeMap::new();
        for line in journal.lines().filter(|line| line.contains("applying")) {
            let id = line
                .split_once("job=")
                .and_then(|(_, rest)| rest.split_whitespace().next());
            *begun
                .entry(id.with_context(|| format!("no job in {line:?}"))?)
                .or_default() += 1;
        }
        ensure!(
            !begun.is_empty(),
            "the journal of {} names no job",
            host.spec.name
        );
        let twice: Vec<_> = begun.iter().filter(|(_, times)| **times > 1).collect();
        ensure!(
            twice.is_empty(),
            "{} started jobs twice: {twice:?}",
            host.spec.name
        );
    }
    Ok(())
}
