//! No job is lost, and none is started twice.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use halite_lab::cluster::CTL;
use halite_lab::host::Host;
use serde_json::Value;

/// Limit of listed jobs, higher than the number that one kill ever makes.
const LIMIT: &str = "100";
/// The function of `ctl ping`.
const PING: &str = "test.ping";

/// The newest jobs, newest first.
pub fn list(bootstrap: &Host) -> Result<Vec<Value>> {
    let text = bootstrap.run(&[CTL, "job", "list", "--limit", LIMIT, "-o", "json"])?;
    let list: Value = serde_json::from_str(&text).context("`ctl job list` did not print JSON")?;
    list.as_array()
        .cloned()
        .context("`ctl job list` did not print a list")
}

/// The id of a job; ids increase.
pub fn jid(job: &Value) -> String {
    job["jid"].as_str().unwrap_or_default().to_owned()
}

/// A job with the returns of its minions.
pub fn show(bootstrap: &Host, jid: &str) -> Result<Value> {
    let text = bootstrap.run(&[CTL, "job", "show", jid, "-o", "json"])?;
    serde_json::from_str(&text).context("`ctl job show` did not print JSON")
}

/// The id of the newest job.
pub fn newest(bootstrap: &Host) -> Result<String> {
    Ok(list(bootstrap)?.first().map(jid).unwrap_or_default())
}

/// Checks that every job after `newest` has ended, that each minion has answered it or was not sent
/// it because one before it failed, and that no minion began it twice. The first of the hosts is
/// the bootstrap host. Pings count for nothing: [`answering`](super::super::repair::answering) sends
/// them while a minion is not connected yet, and then they have no answer.
pub fn sound(hosts: &[&Host], newest: &str) -> Result<()> {
    let bootstrap = hosts.first().context("no host")?;
    for job in list(bootstrap)?
        .iter()
        .filter(|job| jid(job).as_str() > newest)
        .filter(|job| job["function"] != PING)
    {
        let jid = jid(job);
        ensure!(job["status"] != "running", "job {jid} never ended: {job:#}");
        let shown = show(bootstrap, &jid)?;
        let rows = shown["returns"].as_array().cloned().unwrap_or_default();
        let interrupted = rows
            .iter()
            .any(|row| row["state"] == "returned" && row["retcode"] != 0);
        for row in rows {
            let error = row["error"].as_str().unwrap_or_default();
            // An ordered run ends behind the host whose part was cut off.
            let not_started = interrupted && error.starts_with("not started, because ");
            ensure!(
                row["state"] == "returned" || not_started,
                "{} never answered job {jid}: {error}",
                row["minion"]
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
            "{} began jobs twice: {twice:?}",
            host.spec.name
        );
    }
    Ok(())
}
