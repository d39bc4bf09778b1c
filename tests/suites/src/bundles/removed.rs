//! The bundle in use is away for a while: it is told, what needs it waits, all else goes on, and
//! afterwards all is well.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BUNDLE, CTL, Cluster, WORKER};
use serde_json::{Value, json};

use super::{FIRST, configuration, ctl, listed, pause, problems, pulled, row, second};
use crate::checks::{only_served, refused};
use crate::repair::{answering, pods, quiet, running, settled, still};
use crate::test::Counts;

/// Where the directory goes.
const ASIDE: &str = "/var/lib/halite/moved-away";

/// For a pod to start whose image the host has.
const READY: Duration = Duration::from_secs(60);

/// What is missing is said at once: ctl would wait longer for a master that is away.
const AT_ONCE: Duration = Duration::from_secs(30);

/// How the bundle in use goes and comes back.
struct Way {
    version: &'static str,
    away: fn(&Cluster) -> Result<()>,
    back: fn(&Cluster) -> Result<()>,
    /// What everybody is told who needs it: where it should be, and what to do.
    told: &'static [&'static str],
}

/// The second bundle, which the site only has a link to.
const MEDIUM: Way = Way {
    version: second::VERSION,
    away: second::eject,
    back: second::insert,
    told: &[
        second::VERSION,
        second::MEDIUM,
        "mount the medium there again",
        "ctl bundle add",
    ],
};

/// The first bundle, which stands among the site's.
const DIRECTORY: Way = Way {
    version: FIRST,
    away: |cluster| {
        cluster
            .bootstrap
            .run(&["mv", "-T", BUNDLE, ASIDE])
            .map(drop)
    },
    back: |cluster| {
        cluster
            .bootstrap
            .run(&["mv", "-T", ASIDE, BUNDLE])
            .map(drop)
    },
    told: &[BUNDLE, "ctl bundle add"],
};

/// A bundle that is away, until this ends.
struct Gone<'a> {
    cluster: &'a Cluster,
    way: &'a Way,
    away: bool,
}

impl<'a> Gone<'a> {
    fn new(cluster: &'a Cluster, way: &'a Way) -> Result<Self> {
        (way.away)(cluster)?;
        Ok(Self {
            cluster,
            way,
            away: true,
        })
    }

    fn back(mut self) -> Result<()> {
        self.away = false;
        (self.way.back)(self.cluster)
    }
}

impl Drop for Gone<'_> {
    /// Whatever failed, what follows finds the bundle.
    fn drop(&mut self) {
        if self.away
            && let Err(error) = (self.way.back)(self.cluster)
        {
            println!(
                "  the bundle {} was not brought back: {error:#}",
                self.way.version
            );
        }
    }
}

pub(super) fn medium(cluster: &Cluster) -> Result<Counts> {
    harmless(cluster, &MEDIUM)
}

pub(super) fn directory(cluster: &Cluster) -> Result<Counts> {
    harmless(cluster, &DIRECTORY)
}

fn harmless(cluster: &Cluster, way: &Way) -> Result<Counts> {
    let files = || {
        cluster
            .hosts()
            .into_iter()
            .map(configuration)
            .collect::<Result<Vec<_>>>()
    };
    let (before, configured) = (running(cluster)?, files()?);
    let gone = Gone::new(cluster, way)?;
    told(cluster, way)?;
    goes_on(cluster)?;
    still(cluster, &before)?;
    ensure!(
        files()? == configured,
        "something below /etc has changed while the bundle was away"
    );
    gone.back()?;
    well(cluster, way)?;
    still(cluster, &before)?;
    Ok(Counts::ONE)
}

/// Whoever asks is told which bundle is missing, where it should be and what to do; what needs it
/// does nothing.
fn told(cluster: &Cluster, way: &Way) -> Result<()> {
    let says = |text: &str| way.told.iter().all(|part| text.contains(part));
    let row = row(cluster, way.version)?;
    ensure!(
        row["in_use"] == true && row["problem"].as_str().is_some_and(says),
        "ctl bundle list should say {:?} and says {row}",
        way.told
    );
    let problems = problems(cluster)?;
    ensure!(
        problems.iter().any(|problem| says(problem)),
        "ctl status complains about {problems:?}"
    );
    // All else is shown as ever.
    let status = ctl(cluster, &["status"])?;
    let nodes = status["nodes"]
        .as_array()
        .context("a status without nodes")?;
    let well = |node: &Value| node["connected"] == true && node["kubernetes"]["ready"] == true;
    ensure!(
        status["api"]["answers"] == true && nodes.iter().all(well),
        "ctl status: {status}"
    );
    let add = cluster.add_command();
    let add: Vec<&str> = add.iter().map(String::as_str).collect();
    for command in [
        [CTL, "highstate"].as_slice(),
        &[CTL, "highstate", "--test"],
        &[CTL, "apply", "halite.host", "--target", WORKER],
        &add,
    ] {
        let start = Instant::now();
        refused(&cluster.bootstrap, command, way.told)?;
        ensure!(
            start.elapsed() < AT_ONCE,
            "{} says so after {:?}",
            command.join(" "),
            start.elapsed()
        );
    }
    Ok(())
}

/// Minions answer, and a new pod starts from what its host has.
fn goes_on(cluster: &Cluster) -> Result<()> {
    cluster.bootstrap.run(&[CTL, "ping", "*"])?;
    let before = pods(cluster)?;
    let started = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "without-bundle", "namespace": "default"},
        "spec": {"nodeName": WORKER, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "it", "image": pause()}]},
    });
    fs::write(
        cluster.bootstrap.file("/root/without-bundle.json"),
        started.to_string(),
    )?;
    cluster.kubectl(&["apply", "-f", "/root/without-bundle.json"])?;
    let limit = format!("--timeout={}s", READY.as_secs());
    let ready = cluster.kubectl(&[
        "wait",
        "--for=condition=Ready",
        "pod/without-bundle",
        &limit,
    ]);
    cluster.kubectl(&["delete", "-f", "/root/without-bundle.json", "--wait=true"])?;
    ready?;
    settled(cluster, before)
}

/// It is served and used as before, and nobody complains.
fn well(cluster: &Cluster, way: &Way) -> Result<()> {
    listed(cluster, way.version, true, 2)?;
    let problems = problems(cluster)?;
    ensure!(
        problems.is_empty(),
        "ctl status still complains about {problems:?}"
    );
    pulled(cluster)?;
    quiet(cluster)
}

/// As after a boot at which the medium was not there yet.
pub(super) fn started(cluster: &Cluster) -> Result<Counts> {
    let gone = Gone::new(cluster, &DIRECTORY)?;
    cluster.bootstrap.run(&[
        "systemctl",
        "restart",
        "nginx",
        "halite-master",
        "halite-minion",
    ])?;
    answering(cluster)?;
    told(cluster, &DIRECTORY)?;
    gone.back()?;
    only_served(cluster)?;
    well(cluster, &DIRECTORY)?;
    Ok(Counts::ONE)
}
