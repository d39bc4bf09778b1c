//! Events during one rotation: a disk without space for a CA, a second rotation, and a cut link.

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{CTL, Cluster};
use halite_lab::host::Host;
use halite_lab::wait;

use super::{RESTART, command, old_has_left, old_is_refused, under_writes};
use crate::cluster::PODS;
use crate::interrupted::Running;
use crate::small_disk::SmallDisk;
use crate::test::Counts;

/// The CA that is replaced, and that of the second rotation.
const REPLACED: &str = "kubernetes";
const SECOND: &str = "site";

/// The directory of the CA on the worker, and the space there in MiB before it is filled.
const DIRECTORY: &str = "/etc/kubernetes/pki";
const ROOM: u32 = 1;
/// The steps in which the control plane and the worker get both CAs.
const FIRST: &str = "bootstrap-1-trust";
const WORKERS: &str = "nodes-trust";

/// A directory of drop-ins that Halite does not remove, because `systemctl set-property` writes
/// there.
const DROP_INS: &str = "/etc/systemd/system.control/kubelet.service.d";
/// A drop-in that holds a start of the kubelet, and so the step that restarts it, as long as a file
/// exists. Another file shows that it has begun.
const DROP_IN: &str = "\
[Service]
TimeoutStartSec=10min
ExecStartPre=/bin/sh -c 'touch /run/lab-begun; while test -e /run/lab-hold; do sleep 1; done'
";
const HOLD: &str = "/run/lab-hold";
const BEGUN: &str = "/run/lab-begun";

/// The worker has no space for the CA: the rotation stops there, and with space the same command
/// continues. While the worker has its turn, the link between it and the master's host is cut, and
/// other commands are given in a second terminal. Clients write all the time.
pub(super) fn completes(cluster: &Cluster) -> Result<Counts> {
    let (_, notes) = under_writes(cluster, |host| {
        stops_without_space(cluster).context("a full disk")?;
        with_hold(&cluster.worker, || {
            let mut running = Running::start(host, &command(REPLACED, RESTART))?;
            running.wait_for(FIRST, || Ok(()))?;
            let others = second_terminal(host).context("a second rotation")?;
            waits_for_the_link(cluster, &mut running).context("a cut link")?;
            for rotation in std::iter::once(running).chain(others) {
                let (status, said) = rotation.ended(|| Ok(()))?;
                println!("  {}", said.trim().replace('\n', "\n  "));
                ensure!(status.success(), "a rotation ended with {status}");
            }
            Ok(())
        })
    })?;
    notes.check(cluster)?;
    old_is_refused(&cluster.bootstrap)?;
    old_has_left(cluster)?;
    Ok(Counts {
        passed: 3,
        failed: 0,
    })
}

/// The worker has no space for the CA. The rotation stops, names the host and the cause, and is
/// unfinished.
fn stops_without_space(cluster: &Cluster) -> Result<()> {
    let disk = SmallDisk::over(&cluster.worker, DIRECTORY, ROOM)?;
    let stopped = disk.fill().and_then(|()| stopped(cluster));
    // Also after a failure: the tests after this one rotate again.
    disk.remove()?;
    stopped
}

fn stopped(cluster: &Cluster) -> Result<()> {
    let (host, worker) = (&cluster.bootstrap, cluster.worker.spec.name.as_str());
    let words = command(REPLACED, RESTART);
    let (status, said) = Running::start(host, &words)?.ended(|| Ok(()))?;
    println!("  {}", said.trim().replace('\n', "\n  "));
    ensure!(!status.success(), "the rotation succeeded");
    for part in [
        &format!("{WORKERS} ✗"),
        &format!("✗ {worker}: file.managed {DIRECTORY}/"),
        "No space left on device",
        "ctl certs rotate kubernetes --restart-pods",
    ] {
        ensure!(said.contains(part), "{part:?} is not in the output");
    }
    let findings = host.sh(&format!("{CTL} health -o json || true"))?;
    let unfinished = format!("the rotation of the CA {REPLACED} has not ended");
    ensure!(findings.contains(&unfinished), "{findings}");
    Ok(())
}

/// Does something while a start of the worker's kubelet is held.
fn with_hold(worker: &Host, act: impl FnOnce() -> Result<()>) -> Result<()> {
    let drop_in = worker.file(&format!("{DROP_INS}/lab.conf"));
    worker.sh(&format!("mkdir -p {DROP_INS} && touch {HOLD}"))?;
    std::fs::write(&drop_in, DROP_IN)?;
    let done = worker
        .run(&["systemctl", "daemon-reload"])
        .and_then(|_| act());
    // Also after a failure: the tests after this one restart the kubelet.
    worker.sh(&format!(
        "rm -rf {HOLD} {BEGUN} {DROP_INS} && systemctl daemon-reload"
    ))?;
    done
}

/// The rotation of another CA waits for the end of this one, and says so. The same command joins
/// it. Returns both.
fn second_terminal(host: &Host) -> Result<[Running; 2]> {
    let mut second = Running::start(host, &command(SECOND, &[]))?;
    let waits = "until the lock etcd-members is free: ";
    let line = second.wait_for_line(&["turn: waiting for ", waits, "rotate_ca) holds it"])?;
    println!("  {}", line.trim());
    ensure!(
        line.contains("it continues by itself when that run ends"),
        "no remedy is in: {line}"
    );
    let joined = Running::start(host, &command(REPLACED, RESTART))?;
    Ok([second, joined])
}

/// Cuts the link between the master's host and the worker, whose kubelet is held, until the
/// rotation says that it waits for the worker. Then the kubelet starts.
fn waits_for_the_link(cluster: &Cluster, running: &mut Running) -> Result<()> {
    let (first, worker) = (&cluster.bootstrap, &cluster.worker);
    let name = worker.spec.name.as_str();
    wait::until("a start of the kubelet to be held", PODS, || {
        worker.run(&["test", "-e", BEGUN]).map(drop)
    })?;
    let waits = format!("{WORKERS}: waiting for ");
    let away = format!("{name} is not connected, and may still work on the job ");
    let cut = cluster.lab.cut_link(first, worker);
    let cut = cut.and_then(|()| cluster.lab.cut_link(worker, first));
    let line = cut.and_then(|()| running.wait_for_line(&[&waits, &away]));
    // Also after a failure: the tests after this one need the link.
    cluster.lab.restore_link(first, worker)?;
    cluster.lab.restore_link(worker, first)?;
    let line = line?;
    println!("  {}", line.trim());
    ensure!(
        line.contains("switch the host on, and the step continues"),
        "no remedy is in: {line}"
    );
    worker.run(&["rm", HOLD]).map(drop)
}

#[cfg(test)]
mod tests {
    use halite_lab::layout::TWO;
    use halite_states::shipped::ROTATE_CA;
    use serde_json::json;

    use super::*;
    use crate::interrupted::steps;

    #[test]
    fn the_steps_of_the_test_exist() {
        for (ca, wanted) in [
            (REPLACED, &["turn", FIRST, WORKERS][..]),
            (SECOND, &["turn"]),
        ] {
            let known = steps(ROTATE_CA, &json!({"ca": ca}), &TWO).unwrap();
            for step in wanted {
                assert!(known.iter().any(|own| own == step), "{step}: {known:?}");
            }
        }
    }

    #[test]
    fn the_drop_in_looks_at_the_files_of_the_test() {
        assert!(DROP_IN.contains(HOLD) && DROP_IN.contains(BEGUN));
    }
}
