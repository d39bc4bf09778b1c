//! The destruction of the whole cluster: nothing of Halite is left on any host, and the hosts can
//! be used again.

use std::time::Duration;

use anyhow::{Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};
use halite_lab::host::Host;
use halite_lab::layout::TWO;
use halite_lab::wait;
use halite_states::shipped;
use serde_json::json;

use crate::bare::{has_no_packages_or_data, is_bare, wait_until_bare};
use crate::checks::wait_until_worker_is_away;
use crate::etcd;
use crate::interrupted::{Repeated, in_series, kill_ctl, one_run, steps};
use crate::kills::moments;
use crate::test::{Case, Counts, Test};

/// Limit for a minion to be connected again, for the pods of the new cluster, and for the command
/// that finishes an interrupted one: one attempt may take minutes, and there must be time for
/// another.
const BACK: Duration = Duration::from_secs(600);
/// Directories at which a file system is mounted, below paths to be removed: on the worker, and
/// that of the backups on the first host.
const MOUNTED: [&str; 2] = ["/var/lib/halite/mine", "/var/lib/halite/backup"];

pub(super) const TESTS: &[Test<Cluster>] = &[Test {
    name: "destroy: nothing is left on any host, and the hosts form a cluster again",
    run: destroyed,
}];

/// The test of the boundaries of the command.
///
/// # Errors
/// The orchestration does not compile.
pub(super) fn numbered() -> Result<Vec<Case<Cluster>>> {
    let boundaries = boundaries()?;
    let run = move |cluster: &Cluster| {
        in_series(&boundaries, |left| {
            let missed = interrupted(cluster, left)?;
            bare_and_again(cluster)?;
            Ok(missed)
        })
    };
    let name = "destroy: boundaries of ctl destroy".to_owned();
    Ok(vec![Case::new(name, run)])
}

/// The steps after which the command is interrupted. The last one is left out: the unit that
/// removes the master's host stops the master and `ctl` at the same time.
fn boundaries() -> Result<Vec<String>> {
    let pillar = json!({"wipe_data": true, "packages": true});
    let mut steps = steps(shipped::DESTROY, &pillar, &TWO)?;
    steps.pop();
    Ok(steps)
}

/// The command, confirmed.
pub(crate) const DESTROY: [&str; 5] = [CTL, "destroy", "--force", "--cluster", "demo"];

/// Runs `ctl destroy` with further words, which must fail; returns its output.
fn refused(cluster: &Cluster, words: &[&str], code: i32) -> Result<String> {
    let all = [&[CTL, "destroy"], words].concat();
    let output = cluster.bootstrap.output(&all)?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    let found = output.status.code();
    ensure!(found == Some(code), "{all:?} ended with {found:?}: {said}");
    Ok(said)
}

/// The worker's minion is connected.
fn is_connected(cluster: &Cluster) -> Result<()> {
    cluster.bootstrap.run(&[CTL, "ping", WORKER]).map(drop)
}

fn destroyed(cluster: &Cluster) -> Result<Counts> {
    refusals(cluster)?;
    mounts(cluster)?;
    killed_and_repeated(cluster)?;
    bare_and_again(cluster)
}

/// `ctl` and the master die when each of these steps has ended, and the same command finishes the
/// run. Returns the steps whose end was missed.
fn interrupted(cluster: &Cluster, steps: &[String]) -> Result<Vec<String>> {
    let host = &cluster.bootstrap;
    let words = [&DESTROY[..], &["--packages", "--wipe-data"]].concat();
    // The master resumes the run by itself: `ctl` may be gone before it is run again.
    let is_bare = |_: &str| !host.file("/etc/halite").exists();
    let mut command = Repeated::start(host, &words)?.over(is_bare);
    let missed = one_run(steps, |place, step| {
        let later: Vec<&str> = steps[place + 1..].iter().map(String::as_str).collect();
        let is_at = command.reach(step, &later, place == 0)?;
        if is_at {
            kill_ctl(host)?;
            moments::die(host, "halite-master")?;
        }
        Ok(is_at)
    })?;
    // It still runs if the last step was missed.
    kill_ctl(host)?;
    command.ended()?;
    repeated(host, &words.join(" "))?;
    Ok(missed)
}

/// Nothing is left on any host, and the hosts form a cluster again.
fn bare_and_again(cluster: &Cluster) -> Result<Counts> {
    for (host, other) in [(&cluster.bootstrap, WORKER), (&cluster.worker, BOOTSTRAP)] {
        wait_until_bare(host)?;
        is_bare(host, &format!("{other}|api[.]demo"))?;
        has_no_packages_or_data(host)?;
    }
    // The same hosts as the first time, except that etcd is a service now: the next suite needs it.
    cluster.bootstrap(&etcd::document())?;
    cluster.add_worker()?;
    cluster.wait_for_pods(BACK)?;
    Ok(Counts::ONE)
}

/// Without confirmation, or while a host is offline, nothing is touched.
fn refusals(cluster: &Cluster) -> Result<()> {
    refused(cluster, &["--force"], 64)?;
    let said = refused(cluster, &["--force", "--cluster", "prod"], 1)?;
    ensure!(
        said.contains("is not this cluster, which is demo"),
        "{said}"
    );
    let worker = &cluster.worker;
    worker.run(&["systemctl", "stop", "halite-minion"])?;
    // While the master has not noticed, the command would be accepted.
    let said = wait_until_worker_is_away(cluster).and_then(|()| refused(cluster, &DESTROY[2..], 1));
    worker.run(&["systemctl", "start", "halite-minion"])?;
    let said = said?;
    ensure!(
        said.contains("not connected: worker-1") && said.contains("--skip-offline"),
        "{said}"
    );
    wait::until("the worker's minion", BACK, || is_connected(cluster))
}

/// File systems below paths to be removed are all named in one report, and leave every host
/// unchanged.
fn mounts(cluster: &Cluster) -> Result<()> {
    let hosts: [&Host; 2] = [&cluster.worker, &cluster.bootstrap];
    for (host, place) in hosts.iter().zip(MOUNTED) {
        host.sh(&format!(
            "mkdir -p {place} && mount -t tmpfs none {place} && echo kept > {place}/kept"
        ))?;
    }
    let words = [&DESTROY[2..], &["--wipe-data"]].concat();
    let said = refused(cluster, &words, 1);
    let kept: Vec<Result<String>> = (hosts.iter().zip(MOUNTED))
        .map(|(host, place)| host.sh(&format!("cat {place}/kept; umount {place}")))
        .collect();
    let said = said?;
    for (place, kept) in MOUNTED.iter().zip(kept) {
        ensure!(said.contains(&format!("is mounted at {place}")), "{said}");
        ensure!(kept?.trim() == "kept", "the file in {place} was removed");
    }
    is_connected(cluster)?;
    cluster.kubectl(&["get", "nodes"]).map(drop)
}

/// The command and the master are killed in the middle, and the same command finishes the run.
pub(crate) fn killed_and_repeated(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    let line = format!("{} --packages --wipe-data", DESTROY.join(" "));
    host.sh(&format!(
        "timeout -s KILL 2 {line}; systemctl kill -s KILL halite-master"
    ))?;
    repeated(host, &line)
}

/// Runs the command until it has finished an interrupted run.
fn repeated(host: &Host, line: &str) -> Result<()> {
    // The master resumes the run by itself, and may have finished it before it can be queried.
    let unit = host.file("/etc/systemd/system/halite-leave.service");
    let early = std::cell::Cell::new(false);
    wait::until("the same command to finish it", BACK, || {
        if host.file("/etc/halite").exists() {
            let said = host.sh(line)?;
            early.set(early.get() || unit.exists());
            ensure!(said.contains("Halite is completely removed from"), "{said}");
        }
        Ok(())
    })?;
    // If the command has ended, its own host is bare, too.
    ensure!(!early.get(), "ctl destroy did not wait for its own host");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_but_the_last_one_is_a_boundary() {
        let boundaries = boundaries().unwrap().join(" ");
        assert_eq!(boundaries, "turn allowed mounts workers workers-gone last");
    }
}
