//! The master renews certificates that expire soon, without an operator.

use std::time::Duration;

use anyhow::{Result, ensure};
use halite_api::{Job, JobList};
use halite_lab::cluster::{Cluster, WORKER};
use halite_lab::wait;

use super::renewal::{HOLDERS, modified, others, process};
use super::{quiet, wait_ready};
use crate::ctl_answer;
use crate::health;
use crate::lifetimes::{self, Lifetimes};
use crate::test::Counts;

/// Limit for the master's first check after its start, two jobs, and restarts of two programs. If
/// no host that is due answers a check within three seconds, the next check is ten minutes later.
const LIMIT: Duration = Duration::from_secs(900);

/// Gives all certificates two days, restarts the master, which checks when it starts, and compares
/// the running programs with the files.
pub(super) fn without_an_operator(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let before = others(cluster)?;
    let mut old = Vec::new();
    for (name, _) in HOLDERS {
        old.push(process(cluster, name)?.id);
    }
    lifetimes::set(cluster, Lifetimes::EndSoon)?;
    let jobs = || -> Result<Vec<Job>> {
        let list: JobList = ctl_answer::of(host, &["job", "list"])?;
        Ok(list.jobs)
    };
    let newest = jobs()?.into_iter().map(|job| job.job).max();
    host.run(&["systemctl", "restart", "halite-master"])?;
    lifetimes::wait_until_renewed(cluster, LIMIT)?;
    for ((name, file), old) in HOLDERS.into_iter().zip(old) {
        wait::until(&format!("{name} with its new certificate"), LIMIT, || {
            let new = process(cluster, name)?;
            let written = modified(cluster, file)?;
            ensure!(
                new.id != old && new.may_have_read(written),
                "{new:?} is the old process, or older than {file} ({written})"
            );
            Ok(())
        })?;
    }
    lifetimes::is_served(host)?;
    let after = others(cluster)?;
    ensure!(before == after, "restarted: was {before:?}, is {after:?}");
    let mut new = jobs()?;
    new.retain(|job| Some(&job.job) > newest.as_ref());
    ensure!(
        new.len() >= 2 && new.iter().all(|job| job.function == "state.certificates"),
        "not only renewals: {new:#?}"
    );
    let outcomes = lifetimes::outcomes(cluster)?;
    for name in [host.spec.name.as_str(), WORKER] {
        let renewed = |line: &&String| line.contains(name) && line.ends_with(": ok");
        let count = outcomes.iter().filter(renewed).count();
        ensure!(count >= 1, "{name}: {outcomes:#?}");
    }
    wait_ready::settled(cluster, wait_ready::pods(cluster)?)?;
    health::is_well(cluster)?;
    quiet(cluster)?;
    Ok(Counts::ONE)
}
