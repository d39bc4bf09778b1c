//! The bundle in use is missing for a while: Halite reports it, operations that need it wait, all
//! others continue, and afterwards no problem is left.

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use halite_lab::cluster::{BUNDLE, CTL, Cluster, WORKER};
use serde_json::json;

use super::{FIRST, configuration, listed, problems, pulled, row, second};
use crate::checks::{only_served, refused};
use crate::repair::{answering, pods, quiet, running, settled, still};
use crate::test::Counts;
use crate::{health, images};

/// Path to which the bundle's directory is moved.
const ASIDE: &str = "/var/lib/halite/moved-away";

/// Limit for the start of a pod whose image the host has.
const READY: Duration = Duration::from_secs(180);

/// Limit for the error to be reported: less than the time for which `ctl` waits for a missing
/// master.
const AT_ONCE: Duration = Duration::from_secs(55);

/// One way to remove the bundle in use and to bring it back.
struct Way {
    version: &'static str,
    away: fn(&Cluster) -> Result<()>,
    back: fn(&Cluster) -> Result<()>,
    /// Parts of the message to each operator who needs the bundle: where it should be, and what to
    /// do.
    message: &'static [&'static str],
}

/// The second bundle, to which the site has only a link.
const MOUNTED: Way = Way {
    version: second::VERSION,
    away: second::unmount,
    back: second::mount,
    message: &[
        second::VERSION,
        second::MOUNT_POINT,
        "mount the disk or ISO there again",
        "ctl bundle add",
    ],
};

/// The first bundle, in the site's own directory of bundles.
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
    message: &[BUNDLE, "ctl bundle add"],
};

/// A removed bundle, which is brought back on drop.
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
    /// Restores the bundle even after a failure, for the tests that follow.
    fn drop(&mut self) {
        if self.away
            && let Err(error) = (self.way.back)(self.cluster)
        {
            println!(
                "  the bundle {} was not restored: {error:#}",
                self.way.version
            );
        }
    }
}

pub(super) fn unmounted(cluster: &Cluster) -> Result<Counts> {
    harmless(cluster, &MOUNTED)
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
    reported(cluster, way)?;
    still_works(cluster)?;
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

/// Checks that commands that need the bundle do nothing and report which bundle is missing, where
/// it should be, and what to do.
fn reported(cluster: &Cluster, way: &Way) -> Result<()> {
    let says = |text: &str| way.message.iter().all(|part| text.contains(part));
    let row = row(cluster, way.version)?;
    ensure!(
        row.in_use && row.problem.as_deref().is_some_and(says),
        "ctl bundle list should show {:?} and shows {row:?}",
        way.message
    );
    let problems = problems(cluster)?;
    ensure!(
        problems.iter().any(|problem| says(problem)),
        "ctl status complains about {problems:?}"
    );
    // `ctl status` still shows everything else.
    health::all_answer(cluster)?;
    let add = cluster.add_command();
    let add: Vec<&str> = add.iter().map(String::as_str).collect();
    for command in [
        [CTL, "highstate"].as_slice(),
        &[CTL, "highstate", "--test"],
        &[CTL, "apply", WORKER, "halite.host"],
        &add,
    ] {
        let start = Instant::now();
        refused(&cluster.bootstrap, command, way.message)?;
        ensure!(
            start.elapsed() < AT_ONCE,
            "{} reports it only after {:?}",
            command.join(" "),
            start.elapsed()
        );
    }
    Ok(())
}

/// Checks that minions answer, and that a new pod starts from an image that its host has.
fn still_works(cluster: &Cluster) -> Result<()> {
    cluster.bootstrap.run(&[CTL, "ping", "*"])?;
    let before = pods(cluster)?;
    let image = images::by_digest(&cluster.worker, "registry.k8s.io/pause")?;
    let started = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "without-bundle", "namespace": "default"},
        "spec": {"nodeName": WORKER, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "it", "image": image}]},
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

/// Checks that the bundle is served and used normally again, and that `ctl status` reports no
/// problem.
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

/// Restarts Halite and nginx while the bundle is missing, as in a boot at which the ISO is not yet
/// mounted.
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
    reported(cluster, &DIRECTORY)?;
    gone.back()?;
    only_served(cluster)?;
    well(cluster, &DIRECTORY)?;
    Ok(Counts::ONE)
}
