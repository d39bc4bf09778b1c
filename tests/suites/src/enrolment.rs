//! Keys, tokens, targets and an operator's orchestrations, with the real programs.

use std::fs;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_api::{JobOutcome, KeyList, KeyState, MinionKey, NewToken};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};
use halite_lab::wait;

use super::repair;
use crate::checks::wait_until_worker_is_away;
use crate::ctl_answer;
use crate::test::{Counts, Test};

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "enrolment: a revoked token lets no host in",
        run: revoked_token,
    },
    Test {
        name: "enrolment: without a token a host waits until its fingerprint is accepted",
        run: without_token,
    },
    Test {
        name: "enrolment: each kind of target finds its hosts",
        run: targets,
    },
    Test {
        name: "enrolment: an operator's orchestration calls functions and skips disconnected hosts",
        run: orchestration,
    },
];

/// Limit for a minion to connect, and for a key to appear.
const LIMIT: Duration = Duration::from_secs(180);

const ORCHESTRATION: &str = "\
hello:
  halite.function:
    - tgt: '*'
    - fun: cmd.run
    - arg: ['echo hello >> /root/halite-test-orchestrated']

one-after-the-other:
  halite.state:
    - tgt: '*'
    - sls: [halite.host.directories]
    - batch: '1'
    - offline: skip
    - require:
        - halite: hello
";

fn ctl(cluster: &Cluster, args: &[&str]) -> Result<String> {
    cluster.bootstrap.run(&[&[CTL], args].concat())
}

/// Runs a command that must be refused with the given words.
fn refused(cluster: &Cluster, args: &[&str], words: &str) -> Result<()> {
    let output = cluster.bootstrap.output(&[&[CTL], args].concat())?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned()
        + &String::from_utf8_lossy(&output.stdout);
    ensure!(
        !output.status.success() && said.contains(words),
        "ctl {args:?} ended with {}, without `{words}`: {said}",
        output.status
    );
    Ok(())
}

/// The master's address, as a minion names it.
fn master(cluster: &Cluster) -> String {
    format!("{}:4550", cluster.bootstrap.control_plane_address())
}

/// Starts the worker's minion, and waits until it answers.
fn start_worker(cluster: &Cluster) -> Result<()> {
    cluster
        .worker
        .run(&["systemctl", "start", "halite-minion"])?;
    wait::until("the worker's minion", LIMIT, || {
        ctl(cluster, &["ping", WORKER]).map(drop)
    })
}

/// A new token for the worker: id, secret, hash of the CA.
fn token(cluster: &Cluster) -> Result<[String; 3]> {
    let words = ["token", "create", "--id", WORKER, "--ttl", "10m"];
    let made: NewToken = ctl_answer::of(&cluster.bootstrap, &words)?;
    let parts: Vec<String> = made.token.split('.').map(str::to_owned).collect();
    <[String; 3]>::try_from(parts).map_err(|_| anyhow::Error::msg("not ID.SECRET.CAHASH"))
}

fn revoked_token(cluster: &Cluster) -> Result<Counts> {
    let parts = token(cluster)?;
    let [id, ..] = &parts;
    ensure!(
        ctl(cluster, &["token", "list"])?.contains(id.as_str()),
        "the token is not listed"
    );
    ctl(cluster, &["token", "revoke", id])?;
    let output = cluster.worker.output(&[
        "env",
        &format!("HALITE_TOKEN={}", parts.join(".")),
        "/usr/local/bin/halite-minion",
        "enrol",
        "--force",
        "--master",
        &master(cluster),
        "--id",
        "worker-2",
    ])?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && said.contains("token"),
        "with a revoked token: {}: {said}",
        output.status
    );
    refused(
        cluster,
        &["token", "revoke", "no-such-token"],
        "no-such-token",
    )?;
    ctl(cluster, &["ping", WORKER])?;
    Ok(Counts::ONE)
}

/// Starts the enrolment of the worker with only the hash of the CA; it ends when an operator has
/// decided.
fn enrol(cluster: &Cluster, hash: &str) -> Result<Child> {
    let address = master(cluster);
    let line = [
        "/usr/local/bin/halite-minion",
        "enrol",
        "--force",
        "--master",
        &address,
        "--id",
        WORKER,
        "--ca-hash",
        hash,
    ];
    Ok(cluster.worker.command(&line)?.spawn()?)
}

/// The fingerprint of the worker's pending key.
fn waiting(cluster: &Cluster) -> Result<String> {
    wait::until("the worker's key to be pending", LIMIT, || {
        let keys: KeyList = ctl_answer::of(&cluster.bootstrap, &["key", "list"])?;
        let waits = |key: &&MinionKey| key.minion == WORKER && key.state == KeyState::Pending;
        let key = keys.keys.iter().find(waits);
        key.map(|key| key.fingerprint.clone())
            .with_context(|| format!("{keys:?}"))
    })
}

fn without_token(cluster: &Cluster) -> Result<Counts> {
    let [id, _, hash] = token(cluster)?;
    ctl(cluster, &["token", "revoke", &id])?;
    cluster
        .worker
        .run(&["systemctl", "stop", "halite-minion"])?;
    wait::until("the worker to be away", LIMIT, || {
        ctl(cluster, &["key", "delete", WORKER]).map(drop)
    })?;

    let mut first = enrol(cluster, &hash)?;
    let fingerprint = waiting(cluster)?;
    let wrong = "0".repeat(fingerprint.len());
    refused(
        cluster,
        &["key", "accept", WORKER, "--fingerprint", &wrong],
        "fingerprint",
    )?;
    refused(cluster, &["key", "accept", WORKER], "--fingerprint")?;
    ctl(cluster, &["key", "reject", WORKER])?;
    let status = first.wait()?;
    ensure!(!status.success(), "a rejected host ended with {status}");

    ctl(cluster, &["key", "delete", WORKER])?;
    let mut second = enrol(cluster, &hash)?;
    let again = waiting(cluster)?;
    ensure!(
        again == fingerprint,
        "its key was {fingerprint}, is {again}"
    );
    ctl(
        cluster,
        &["key", "accept", WORKER, "--fingerprint", &fingerprint],
    )?;
    let status = second.wait()?;
    ensure!(status.success(), "an accepted host ended with {status}");
    start_worker(cluster)?;
    repair::quiet(cluster)?;
    Ok(Counts::ONE)
}

fn targets(cluster: &Cluster) -> Result<Counts> {
    let both = [BOOTSTRAP, WORKER];
    let list = both.join(",");
    let expected: [(&[&str], &[&str]); 8] = [
        (&["*"], &both),
        (&["worker-?"], &[WORKER]),
        (&["-L", &list], &both),
        (&["-G", "os:Debian"], &both),
        (&["-I", "halite:node:roles:worker"], &[WORKER]),
        (&["-C", "G@os:Debian and not worker-*"], &[BOOTSTRAP]),
        (&["-C", "I@halite:node:roles:etcd or L@worker-1"], &both),
        (&["-C", "G@os:Debian and E@boot.*"], &[BOOTSTRAP]),
    ];
    for (target, hosts) in expected {
        let words = [&["ping"], target].concat();
        let answer: JobOutcome = ctl_answer::of(&cluster.bootstrap, &words)?;
        let found: Vec<&str> = answer
            .minions
            .keys()
            .map(|minion| minion.as_str())
            .collect();
        ensure!(found == hosts, "{target:?} found {found:?}, not {hosts:?}");
    }
    refused(cluster, &["ping", "no-such-*"], "no-such-*")?;
    Ok(Counts::ONE)
}

fn orchestration(cluster: &Cluster) -> Result<Counts> {
    let custom = cluster.bootstrap.root().join("etc/halite/custom");
    ensure!(!custom.exists(), "{} already exists", custom.display());
    fs::create_dir_all(&custom)?;
    fs::write(custom.join("orchestrated.sls"), ORCHESTRATION)?;
    let result = orchestrated(cluster);
    fs::remove_dir_all(&custom)?;
    for host in [&cluster.bootstrap, &cluster.worker] {
        host.run(&["rm", "-f", "/root/halite-test-orchestrated"])?;
    }
    result?;
    Ok(Counts::ONE)
}

fn orchestrated(cluster: &Cluster) -> Result<()> {
    let run = ["orchestrate", "custom.orchestrated"];
    ctl(cluster, &run)?;
    for host in [&cluster.bootstrap, &cluster.worker] {
        let lines = host.run(&["cat", "/root/halite-test-orchestrated"])?;
        ensure!(lines == "hello\n", "the function wrote {lines:?}");
    }
    // A function has no `offline: skip`: it fails, and a step that requires it does not run.
    cluster
        .worker
        .run(&["systemctl", "stop", "halite-minion"])?;
    let away = wait_until_worker_is_away(cluster).and_then(|()| {
        refused(cluster, &run, WORKER)?;
        let custom = cluster.bootstrap.root().join("etc/halite/custom");
        let skips = ORCHESTRATION
            .split_once("one-after")
            .map(|(_, rest)| format!("one-after{rest}"))
            .unwrap_or_default()
            .replace("    - require:\n        - halite: hello\n", "");
        fs::write(custom.join("orchestrated.sls"), skips)?;
        let said = ctl(cluster, &run)?;
        ensure!(
            said.contains(WORKER),
            "the skipped host is not named: {said}"
        );
        Ok(())
    });
    start_worker(cluster)?;
    away
}
