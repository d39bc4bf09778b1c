//! Events that must not stop the cluster: a command that hangs, a flood of connections, a minion
//! that reads nothing, a link that is cut, a full disk under the store and under etcd, a reached
//! quota, and a file system that does not answer.

mod full_disk;
mod full_etcd;
mod hung_mount;
mod large_object;
mod quota;

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};
use halite_lab::wait;

use super::repair;
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "limits: a hung command ends with its job, and the host continues",
        run: hung_command,
    },
    Test {
        name: "limits: a thousand idle connections keep no minion out",
        run: flood,
    },
    Test {
        name: "limits: a minion that reads nothing delays no other",
        run: deaf_minion,
    },
    Test {
        name: "limits: a link that is cut for two seconds loses no job",
        run: cut_link,
    },
    Test {
        name: "limits: a full disk under the store stops changes, and nothing else",
        run: full_disk::stops_changes,
    },
    Test {
        name: "limits: a reached quota of etcd is resolved by the master",
        run: quota::resolved,
    },
    Test {
        name: "limits: a bundle whose file system hangs stops no ping",
        run: hung_mount::stops_no_ping,
    },
];

/// An additional test of `full`: the kubelet takes minutes until it restarts a program that exited
/// several times.
pub(super) const FULL: &[Test<Cluster>] = &[Test {
    name: "limits: a full disk under etcd is reported, loses no write, and with space etcd continues",
    run: full_etcd::loses_no_write,
}];

/// The time limit of the job with the hung command. It counts from the creation of the job, and the
/// command must have started by then.
const SHORT: &str = "20s";

/// Limit of a wait. The hung command takes a day, and the sleeping connections five minutes.
const LIMIT: Duration = Duration::from_secs(240);

/// Connections of the flood; the master once had 1,024 descriptors.
const CONNECTIONS: u32 = 1060;

const CUT: &str = "cut:\n  cmd.run:\n    - name: sleep 5; echo counted >> /root/halite-test-cut\n";

const HUNG: &str = "hung:\n  cmd.run:\n    - name: exec sleep 86399\n";

fn hung_command(cluster: &Cluster) -> Result<Counts> {
    with_state(cluster, "hung.sls", HUNG, hung_command_in)
}

/// Runs a test with one state of the operator.
fn with_state(
    cluster: &Cluster,
    file: &str,
    content: &str,
    test: fn(&Cluster) -> Result<()>,
) -> Result<Counts> {
    let custom = cluster.bootstrap.root().join("etc/halite/custom");
    ensure!(!custom.exists(), "{} already exists", custom.display());
    fs::create_dir_all(&custom)?;
    fs::write(custom.join(file), content)?;
    let result = test(cluster);
    fs::remove_dir_all(&custom)?;
    result?;
    Ok(Counts::ONE)
}

fn cut_link(cluster: &Cluster) -> Result<Counts> {
    with_state(cluster, "cut.sls", CUT, cut_link_in)
}

/// Cuts the worker's link while it works on a job, and again while its answer is in transit.
fn cut_link_in(cluster: &Cluster) -> Result<()> {
    let host = &cluster.worker;
    let apply = [CTL, "apply", WORKER, "custom.cut"];
    let mut job = cluster.bootstrap.command(&apply)?.spawn()?;
    wait::until("the job's command", LIMIT, || {
        // It may have ended before it was noticed, and then has left its file.
        host.sh("pgrep -f '[e]cho counted' || test -e /root/halite-test-cut")
            .map(drop)
    })?;
    let cut = "nft add table inet halite_test && \
               nft 'add chain inet halite_test out { type filter hook output priority -300; policy accept; }' && \
               nft 'add chain inet halite_test in { type filter hook input priority -300; policy accept; }' && \
               nft add rule inet halite_test out oifname != lo drop && \
               nft add rule inet halite_test in iifname != lo drop; \
               sleep 2; nft delete table inet halite_test";
    host.sh(cut)?;
    wait::until("the command's end", LIMIT, || {
        host.sh("! pgrep -f '[e]cho counted'").map(drop)
    })?;
    host.sh(cut)?;
    let status = job.wait()?;
    let counted = host.sh("cat /root/halite-test-cut; rm -f /root/halite-test-cut")?;
    ensure!(
        status.success() && counted.lines().count() == 1,
        "ctl ended with {status}, and the command ran this often: {counted:?}"
    );
    Ok(())
}

fn hung_command_in(cluster: &Cluster) -> Result<()> {
    let apply = [CTL, "apply", WORKER, "custom.hung", "--timeout", SHORT];
    let output = cluster.bootstrap.output(&apply)?;
    let shown = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    ensure!(
        output.status.code() == Some(1) && shown.contains("the job's time limit has passed"),
        "ctl ended with {}: {shown}",
        output.status
    );
    let start = Instant::now();
    cluster
        .bootstrap
        .run(&[CTL, "apply", WORKER, "halite.host.directories"])?;
    ensure!(
        start.elapsed() < LIMIT,
        "the next run took {:?}",
        start.elapsed()
    );
    let left = cluster.worker.output(&["pgrep", "-f", "sleep 86399"])?;
    ensure!(left.status.code() == Some(1), "the hung command still runs");
    Ok(())
}

fn flood(cluster: &Cluster) -> Result<Counts> {
    let address = cluster.bootstrap.control_plane_address();
    let line = format!(
        "ulimit -n 4096; for n in $(seq {CONNECTIONS}); do exec {{fd}}<>/dev/tcp/{address}/4550 || exit 1; done; \
         touch /run/flooded; for n in $(seq 300); do sleep 1; test -e /run/flooded || exit 0; done"
    );
    let mut flood = cluster.worker.command(&["bash", "-c", &line])?.spawn()?;
    let result = during_flood(cluster);
    // Removing its file ends it: a signal would reach only the process that entered the host.
    cluster.worker.run(&["rm", "-f", "/run/flooded"])?;
    flood.wait()?;
    result?;
    repair::quiet(cluster)?;
    Ok(Counts::ONE)
}

fn during_flood(cluster: &Cluster) -> Result<()> {
    wait::until("a thousand connections", LIMIT, || {
        cluster.worker.run(&["test", "-e", "/run/flooded"])
    })?;
    ping(cluster, &[])?;
    // A stranger until its handshake ends, like those of the flood, and from the same address.
    cluster
        .worker
        .run(&["systemctl", "restart", "halite-minion"])?;
    wait::until("the worker's minion", LIMIT, || ping(cluster, &[WORKER]))
}

fn deaf_minion(cluster: &Cluster) -> Result<Counts> {
    let signal = |name: &str| {
        cluster.worker.run(&[
            "systemctl",
            "kill",
            "--kill-whom=main",
            &format!("--signal={name}"),
            "halite-minion",
        ])
    };
    signal("SIGSTOP")?;
    let result = (0..3).try_for_each(|_| ping(cluster, &[BOOTSTRAP]));
    signal("SIGCONT")?;
    result.context("while the worker's minion did not read")?;
    wait::until("the worker's minion", LIMIT, || ping(cluster, &[WORKER]))?;
    repair::quiet(cluster)?;
    Ok(Counts::ONE)
}

fn ping(cluster: &Cluster, target: &[&str]) -> Result<()> {
    let all = [&[CTL, "ping"], target].concat();
    cluster.bootstrap.run(&all).map(drop)
}
