//! Steps that wait on real hosts: after ten seconds one line names the reason, the time so far, the
//! usual time, and the operator's options; and those options work.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;
use halite_upstream::LAB_POD;

use super::{BACK, is_complete, same_content};
use crate::interrupted::Running;
use crate::test::Counts;
use crate::{guide, images};

/// A state that runs as long as a file exists, and a file that shows that it has started.
const HANGS: &str = "\
hang:
  cmd.run:
    - name: touch /run/halite-test-hangs; while test -e /root/halite-test-hang; do sleep 1; done
";
/// An image that no container of the worker uses: after its removal all of it is pulled again.
const IMAGE: &str = LAB_POD;

/// The file on the worker that lets it hang.
const HANG: &str = "/root/halite-test-hang";
const BEGUN: &str = "/run/halite-test-hangs";

/// An orchestration of one step on the worker.
fn orchestration(sls: &str) -> String {
    format!(
        "step:\n  halite.state:\n    - tgt: worker-1\n    - sls: [{sls}]\n    - timeout: 1800\n"
    )
}

const RUN: [&str; 3] = ["ctl", "orchestrate", "custom.stalls"];

/// The operator's own states, for as long as this exists.
struct Custom(PathBuf);

impl Custom {
    fn new(cluster: &Cluster, sls: &str) -> Result<Self> {
        let directory = cluster.bootstrap.file("/etc/halite/custom");
        ensure!(
            !directory.exists(),
            "the operator's own states already exist"
        );
        fs::create_dir_all(&directory)?;
        let custom = Self(directory);
        fs::write(custom.0.join("stalls.sls"), orchestration(sls))?;
        fs::write(custom.0.join("hangs.sls"), HANGS)?;
        let pulls = format!("pulled:\n  image.present:\n    - name: {IMAGE}\n");
        fs::write(custom.0.join("pulls.sls"), pulls)?;
        Ok(custom)
    }
}

impl Drop for Custom {
    fn drop(&mut self) {
        // Leftovers are found by the next test that makes it.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The id of the job in the command that cancels it.
fn job_of(line: &str) -> Result<String> {
    let rest = line.split_once("`ctl job cancel ").map(|(_, rest)| rest);
    let id = rest.and_then(|rest| rest.split_once('`'));
    let (id, _) = id.with_context(|| format!("no command with a job in: {line}"))?;
    Ok(id.to_owned())
}

/// The seconds for which a step has waited, in its line.
pub(super) fn waited(line: &str) -> Result<u64> {
    let rest = line.split_once("waiting for ").map(|(_, rest)| rest);
    let seconds = rest.and_then(|rest| rest.split_once(" s ")?.0.parse().ok());
    seconds.with_context(|| format!("it does not name the time so far: {line}"))
}

/// Checks that a line has the time so far, and the usual time after a successful run.
fn has_times(line: &str) -> Result<()> {
    ensure!(
        (10..20).contains(&waited(line)?),
        "it does not come after ten seconds: {line}"
    );
    ensure!(
        line.contains("(usually ") && line.contains(" s here)"),
        "the usual time is missing: {line}"
    );
    Ok(())
}

/// The worker is lost while it works: the line names it and both remedies, which work.
pub(super) fn of_a_dead_host(cluster: &Cluster) -> Result<Counts> {
    let (first, worker) = (&cluster.bootstrap, &cluster.worker);
    let name = [worker.spec.name.clone()];
    let custom = Custom::new(cluster, "custom.hangs")?;
    worker.sh(&format!("rm -f {HANG} {BEGUN}"))?;
    // It takes no time, and from then on the usual time is known.
    first.run(&RUN)?;
    worker.sh(&format!("rm -f {BEGUN} && touch {HANG}"))?;
    let mut running = Running::start(first, &RUN)?;
    let begun = wait::until("the state to hang", BACK, || {
        worker.sh(&format!("test -e {BEGUN}")).map(drop)
    });
    if let Err(error) = begun {
        worker.sh(&format!("rm -f {HANG}"))?;
        return Err(error);
    }
    cluster.lab.power_off(&name, true)?;
    let line = running.wait_for_line(&["step: waiting for ", "is not connected"])?;
    println!("  {line}");
    has_times_of_death(&line)?;
    for part in [
        "until worker-1 has returned",
        "worker-1 is not connected, and may still work on the job",
    ] {
        ensure!(line.contains(part), "{part} is not in: {line}");
    }
    end_the_wait(first, &line)?;
    failed_without_its_host(running)?;
    drop(custom);
    guide::replace(cluster, first, "## A worker is lost", &worker.spec.name)?;
    wait::until("the new host to serve", BACK, || is_complete(cluster))?;
    same_content(cluster)?;
    Ok(Counts::ONE)
}

/// Cancels the wait for a lost host by the command in the line about it, which also names the other
/// options.
pub(super) fn end_the_wait(first: &Host, line: &str) -> Result<()> {
    for part in [
        "switch the host on",
        "ctl node replace",
        "ctl node remove --dead",
    ] {
        ensure!(line.contains(part), "{part} is not in: {line}");
    }
    let job = job_of(line)?;
    end(first, &["ctl", "job", "cancel", &job])
}

/// Runs a command that cancels a job or a run. It may have ended by itself since the line about it.
pub(super) fn end(first: &Host, words: &[&str]) -> Result<()> {
    let output = first.output(words)?;
    let said = [output.stdout, output.stderr]
        .map(|text| String::from_utf8_lossy(&text).into_owned())
        .concat();
    ensure!(
        output.status.success() || said.contains("has ended"),
        "{} ended with {}: {said}",
        words.join(" "),
        output.status
    );
    Ok(())
}

/// The command ends with a failure: its host is lost.
fn failed_without_its_host(running: Running) -> Result<()> {
    let (status, said) = running.ended(|| Ok(()))?;
    ensure!(
        !status.success(),
        "the command succeeded without its host: {said}"
    );
    Ok(())
}

/// The line about a lost host comes with the first report after the master has noticed, which may
/// be a later one.
fn has_times_of_death(line: &str) -> Result<()> {
    let seconds = waited(line)?;
    ensure!(seconds >= 10, "it came after {seconds} s: {line}");
    ensure!(line.contains("(usually "), "no usual time: {line}");
    Ok(())
}

/// The worker needs an image, and the host that serves images is so slow that none arrives: the
/// line says that images are pulled and names their servers. Once the server recovers, so does the
/// command.
pub(super) fn of_an_image(cluster: &Cluster) -> Result<Counts> {
    let (first, worker) = (&cluster.bootstrap, &cluster.worker);
    let custom = Custom::new(cluster, "custom.pulls, halite.images")?;
    // From then on the usual time is known.
    first.run(&RUN)?;
    let limit = format!("echo 'limit_rate 10k;' > {SLOW} && systemctl restart nginx");
    first.sh(&limit)?;
    let stalled = stalled_pull(cluster, IMAGE);
    // Also after a failure: the tests after this one need a fast server.
    first.sh(&quick())?;
    stalled?;
    drop(custom);
    images::is_there(worker, IMAGE)?;
    is_complete(cluster)?;
    Ok(Counts::ONE)
}

/// The file that makes the bundle server of the first host slow.
const SLOW: &str = "/etc/nginx/conf.d/test-slow.conf";

/// The line that makes it fast again; slow connections are closed.
fn quick() -> String {
    format!("rm -f {SLOW} && systemctl restart nginx")
}

fn stalled_pull(cluster: &Cluster, image: &str) -> Result<()> {
    let (first, worker) = (&cluster.bootstrap, &cluster.worker);
    images::remove(worker, image)?;
    let mut running = Running::start(first, &RUN)?;
    let line = running.wait_for_line(&["step: waiting for "])?;
    println!("  {line}");
    has_times(&line)?;
    for part in [
        "until worker-1 has returned",
        "it pulls images",
        "`ctl health` names the missing ones",
        "a full disk below /var/lib/containerd",
    ] {
        ensure!(line.contains(part), "{part} is not in: {line}");
    }
    job_of(&line)?;
    first.sh(&quick())?;
    let (status, said) = running.ended(|| Ok(()))?;
    if !status.success() {
        // A pull that was interrupted with its server.
        println!("  it ended with {status}, and is run again: {said}");
        first.run(&RUN)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_verb_are_read_from_the_line() {
        let line = "! custom.stalls  step: waiting for 10 s (usually 1 s here) until worker-1 has returned: the job 20261121000000123000 \
                    runs there: it pulls images; `ctl job show 20261121000000123000` shows its parts, `ctl job cancel \
                    20261121000000123000` ends the step";
        has_times(line).unwrap();
        assert_eq!(job_of(line).unwrap(), "20261121000000123000");
        has_times_of_death(line).unwrap();
        assert!(has_times(&line.replace("10 s", "40 s")).is_err());
        assert!(has_times(&line.replace(" (usually 1 s here)", "")).is_err());
        assert!(job_of("worker-1 is away").is_err());
    }
}
