//! Two bundles of one Kubernetes version on a running site. Changing from one to the other and back
//! restarts nothing that is the same in both, and adds and removes the parts that only one of them
//! has. A bundle that is missing for a while does no harm. A bundle with another Halite restarts
//! only Halite.

pub(super) mod chart;
mod first;
mod newer;
mod removed;
mod second;

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_api::{BundleList, BundleOnSite, UsedBundle};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, DOCUMENT, WORKER};
use halite_lab::host::Host;
use halite_upstream::versions::NEWEST;

use self::first::FIRST;
use super::repair::{highstate, quiet, running, still};
use crate::checks::{only_served, refused};
use crate::ctl_answer;
use crate::health;
use crate::test::{Counts, Test};

pub(crate) use self::newer::{MASTER, first_host, minions_say, other_programs, runs};
pub(crate) use self::second::variant_of;

pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "bundles: a change to another with the same Kubernetes restarts nothing",
        run: there,
    },
    Test {
        name: "bundles: a chart is installed, repaired, and removed without a trace",
        run: chart::all,
    },
    Test {
        name: "bundles: an ISO that is unmounted while the cluster uses it harms nothing",
        run: removed::unmounted,
    },
    Test {
        name: "bundles: a change back to the first restores everything",
        run: back,
    },
    Test {
        name: "bundles: a directory that is moved away harms nothing",
        run: removed::directory,
    },
    Test {
        name: "bundles: programs started without the bundle need no help once it is back",
        run: removed::started,
    },
    Test {
        name: "bundles: a change to one with another Halite resumes after an interruption",
        run: newer::there,
    },
    Test {
        name: "bundles: a change back to the first Halite restores everything",
        run: newer::back,
    },
];

/// Directory on the bootstrap host in which a test that leaves the first bundle records the hosts'
/// configuration, for the test that returns to it.
const BEFORE: &str = "/root/before-bundles";

/// Parts of the tags of states that may change when only the address of the bundle in use differs.
const ADDRESSES: &[&str] = &[
    "/etc/containerd/certs.d/_default/hosts.toml",
    "/etc/apt/halite",
    "[halite-repository]",
    "/etc/nginx/conf.d/halite.conf",
    "service.running nginx",
    "[nginx-knows-every-bundle]",
    // nginx keeps answering with its old configuration for a moment after a reload.
    "[bundle-server-answers]",
    "/srv/halite/enrol.sh",
];

/// Every file below /etc, with its digest.
fn configuration(host: &Host) -> Result<String> {
    host.sh("find /etc -xdev -type f -print0 | sort -z | xargs -0 sha256sum")
}

fn document(cluster: &Cluster) -> Result<String> {
    Ok(fs::read_to_string(cluster.bootstrap.file(DOCUMENT))?)
}

/// The row of a bundle in `ctl bundle list`.
fn row(cluster: &Cluster, version: &str) -> Result<BundleOnSite> {
    let list: BundleList = ctl_answer::of(&cluster.bootstrap, &["bundle", "list"])?;
    let row = list.bundles.iter().find(|row| row.version == version);
    row.cloned()
        .with_context(|| format!("ctl bundle list does not name {version}: {list:?}"))
}

/// Checks that the list shows a bundle as complete, whether it is in use, and the number of hosts
/// that are configured from it.
fn listed(cluster: &Cluster, version: &str, in_use: bool, hosts: usize) -> Result<()> {
    let row = row(cluster, version)?;
    let users = row.hosts.as_ref().map(Vec::len);
    ensure!(
        row.in_use == in_use && row.problem.is_none() && users == Some(hosts),
        "should be complete, in use: {in_use}, and of {hosts} hosts, but ctl bundle list shows {row:?}"
    );
    Ok(())
}

/// The problems that `ctl status` reports.
pub(super) fn problems(cluster: &Cluster) -> Result<Vec<String>> {
    Ok(health::status(cluster)?.problems)
}

/// Runs a highstate that does exactly what `--test` predicted, changes only addresses, and restarts
/// nothing.
fn only_addresses(cluster: &Cluster) -> Result<()> {
    let before = running(cluster)?;
    let predicted = highstate(cluster, &["--test"])?.changed;
    let changed = highstate(cluster, &[])?.changed;
    let ours = |tag: &&String| ADDRESSES.iter().any(|part| tag.contains(part));
    let others: Vec<&String> = changed.iter().filter(|tag| !ours(tag)).collect();
    ensure!(
        others.is_empty(),
        "another bundle with the same content changed {others:#?}"
    );
    let surprises: BTreeSet<&String> = changed.difference(&predicted).collect();
    ensure!(
        surprises.is_empty(),
        "changed, but not named by --test: {surprises:#?}"
    );
    for name in [BOOTSTRAP, WORKER] {
        let led = |part: &str| {
            changed
                .iter()
                .any(|tag| tag.starts_with(&format!("{name}: ")) && tag.contains(part))
        };
        ensure!(
            led("hosts.toml") && led("[halite-repository]"),
            "{name} still uses the other one: {changed:#?}"
        );
    }
    quiet(cluster)?;
    still(cluster, &before)
}

/// Checks that containerd and apt of every host use one bundle, and not the other.
fn asked(cluster: &Cluster, version: &str, other: &str) -> Result<()> {
    for host in cluster.hosts() {
        let lists = "/etc/apt/sources.list.d/halite.list $(find /etc/apt/halite -type f)";
        let said = [
            host.sh("cat /etc/containerd/certs.d/_default/hosts.toml")?,
            host.sh(&format!("cat {lists}"))?,
        ];
        for text in said {
            ensure!(
                text.contains(&format!("bundles/{version}/"))
                    && !text.contains(&format!("bundles/{other}/")),
                "{} does not use the bundle {version}, or not only: {text}",
                host.spec.name
            );
        }
        // The second bundle lacks one package, so apt's index shows which bundle it was read from.
        let offered = |package: &str| host.sh(&format!("apt-cache madison {package}"));
        ensure!(
            !offered("kubelet")?.trim().is_empty(),
            "{} is offered no kubelet",
            host.spec.name
        );
        let there = !offered(second::WITHOUT)?.trim().is_empty();
        ensure!(
            there == (version == FIRST),
            "{} is offered {}: {there}, with the bundle {version} in use",
            host.spec.name,
            second::WITHOUT
        );
    }
    pulled(cluster)
}

/// Reference of the pause image by its tag. Every host has the image by its digest.
fn pause() -> String {
    format!("registry.k8s.io/pause:{}", NEWEST.pause)
}

/// Pulls on every host an image whose layers the host already has: containerd still resolves the
/// name.
fn pulled(cluster: &Cluster) -> Result<()> {
    for host in cluster.hosts() {
        let hosts = "--hosts-dir=/etc/containerd/certs.d";
        host.run(&["ctr", "-n", "k8s.io", "images", "pull", hosts, &pause()])?;
    }
    Ok(())
}

fn there(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    second::carry(cluster)?;
    remember(cluster)?;
    let before = document(cluster)?;
    host.run(&[CTL, "bundle", "add", second::MOUNT_POINT])?;
    listed(cluster, FIRST, true, 2)?;
    listed(cluster, second::VERSION, false, 0)?;
    only_served(cluster)?;

    let words = ["bundle", "use", second::VERSION, "--test"];
    let tried: UsedBundle = ctl_answer::of(host, &words)?;
    let changes = format!("{:?}", tried.changes);
    ensure!(
        !tried.changed
            && [halite_upstream::chart::NAME, second::WITHOUT]
                .iter()
                .all(|part| changes.contains(part)),
        "ctl bundle use --test: {tried:?}"
    );
    ensure!(
        document(cluster)? == before,
        "ctl bundle use --test wrote into the cluster document"
    );
    quiet(cluster)?;
    let words = ["bundle", "use", second::VERSION];
    let used: UsedBundle = ctl_answer::of(host, &words)?;
    ensure!(
        used.changed && used.before.as_ref().is_some_and(|before| before == FIRST),
        "ctl bundle use: {used:?}"
    );
    let reported = problems(cluster)?;
    let behind = format!(
        "still in the state of bundle {FIRST}, but {} is in use",
        second::VERSION
    );
    ensure!(
        reported.iter().any(|problem| problem.contains(&behind)),
        "ctl status reports no host that still has the old bundle: {reported:?}"
    );
    only_addresses(cluster)?;
    listed(cluster, FIRST, false, 0)?;
    listed(cluster, second::VERSION, true, 2)?;
    ensure!(problems(cluster)?.is_empty(), "{:?}", problems(cluster)?);
    asked(cluster, second::VERSION, FIRST)?;
    Ok(Counts::ONE)
}

fn back(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let recorded = document(cluster)?;
    refused(
        host,
        &[CTL, "bundle", "use", FIRST],
        &["was built at", "--allow-downgrade"],
    )?;
    refused(
        host,
        &[CTL, "bundle", "remove", second::VERSION],
        &[second::VERSION, "is in use"],
    )?;
    ensure!(
        document(cluster)? == recorded,
        "a refused command wrote into the cluster document"
    );
    host.run(&[CTL, "bundle", "use", FIRST, "--allow-downgrade"])?;
    refused(
        host,
        &[CTL, "bundle", "remove", second::VERSION],
        &["still use the bundle", BOOTSTRAP, WORKER],
    )?;
    only_addresses(cluster)?;
    asked(cluster, FIRST, second::VERSION)?;
    host.run(&[CTL, "bundle", "remove", second::VERSION, "--yes"])?;
    let manifest = second::file(cluster, "manifest.json");
    ensure!(
        manifest.exists(),
        "ctl bundle remove deleted {} from the ISO",
        manifest.display()
    );
    second::take_away(cluster)?;
    only_served(cluster)?;
    quiet(cluster)?;
    listed(cluster, FIRST, true, 2)?;
    as_remembered(cluster)?;
    Ok(Counts::ONE)
}

/// Records the configuration of every host.
fn remember(cluster: &Cluster) -> Result<()> {
    let directory = cluster.bootstrap.file(BEFORE);
    fs::create_dir_all(&directory)?;
    fs::write(directory.join("cluster.yaml"), document(cluster)?)?;
    for host in cluster.hosts() {
        fs::write(directory.join(&host.spec.name), configuration(host)?)?;
    }
    Ok(())
}

/// Checks that every file below /etc equals the record.
fn as_remembered(cluster: &Cluster) -> Result<()> {
    let before = cluster.bootstrap.file(BEFORE);
    let was = |name: &str| fs::read_to_string(before.join(name));
    ensure!(
        document(cluster)? == was("cluster.yaml")?,
        "the cluster document is {}",
        document(cluster)?
    );
    for of in cluster.hosts() {
        let (was, is) = (was(&of.spec.name)?, configuration(of)?);
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<BTreeSet<_>>();
        let differ: Vec<String> = lines(&was)
            .symmetric_difference(&lines(&is))
            .cloned()
            .collect();
        ensure!(
            differ.is_empty(),
            "changed on {}: {differ:#?}",
            of.spec.name
        );
    }
    fs::remove_dir_all(before)?;
    Ok(())
}
