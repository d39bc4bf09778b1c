//! What must not stop the cluster: a command that hangs, a flood of connections, and a minion that
//! reads nothing.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};
use halite_lab::wait;

use super::repair;
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "limits: a hung command ends with its job, and the host goes on",
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
];

/// The time limit of the job with the hung command, in seconds.
const SHORT: &str = "5";

/// Longest time from then until the next run of the host has begun.
const NEXT: Duration = Duration::from_secs(15);

/// Connections of the flood; the master once had 1,024 descriptors.
const CONNECTIONS: u32 = 1060;

const HUNG: &str = "hung:\n  cmd.run:\n    - name: exec sleep 86399\n";

fn hung_command(cluster: &Cluster) -> Result<Counts> {
    let custom = cluster.bootstrap.root().join("etc/halite/custom");
    ensure!(!custom.exists(), "{} is there already", custom.display());
    fs::create_dir_all(&custom)?;
    fs::write(custom.join("hung.sls"), HUNG)?;
    let result = hung_command_in(cluster);
    fs::remove_dir_all(&custom)?;
    result?;
    Ok(Counts::ONE)
}

fn hung_command_in(cluster: &Cluster) -> Result<()> {
    let apply = [
        CTL,
        "apply",
        "custom.hung",
        "--target",
        WORKER,
        "--timeout",
        SHORT,
    ];
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
        .run(&[CTL, "apply", "halite.host.directories", "--target", WORKER])?;
    ensure!(
        start.elapsed() < NEXT,
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
         touch /run/flooded; sleep 60"
    );
    let mut flood = cluster.worker.command(&["bash", "-c", &line])?.spawn()?;
    let result = during_flood(cluster);
    flood.kill()?;
    flood.wait()?;
    cluster.worker.run(&["rm", "-f", "/run/flooded"])?;
    result?;
    repair::quiet(cluster)?;
    Ok(Counts::ONE)
}

fn during_flood(cluster: &Cluster) -> Result<()> {
    wait::until("a thousand connections", Duration::from_secs(30), || {
        cluster.worker.run(&["test", "-e", "/run/flooded"])
    })?;
    ping(cluster, &[])?;
    // A stranger until its handshake ends, like those of the flood, and from the same address.
    cluster
        .worker
        .run(&["systemctl", "restart", "halite-minion"])?;
    wait::until("the worker's minion", Duration::from_secs(20), || {
        ping(cluster, &[WORKER])
    })
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
    wait::until("the worker's minion", Duration::from_secs(60), || {
        ping(cluster, &[WORKER])
    })?;
    repair::quiet(cluster)?;
    Ok(Counts::ONE)
}

fn ping(cluster: &Cluster, target: &[&str]) -> Result<()> {
    let all = [&[CTL, "ping"], target].concat();
    cluster.bootstrap.run(&all).map(drop)
}
