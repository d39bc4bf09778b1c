//! A mistake in the declaration that keeps etcd from starting.

use std::fs;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{Cluster, DOCUMENT};
use halite_lab::host::Host;
use halite_lab::wait;

use super::{BACK, is_complete, same_content};
use crate::test::Counts;

const MANIFEST: &str = "/etc/kubernetes/manifests/etcd.yaml";

/// Hash and restarts of each etcd pod.
fn pods(cluster: &Cluster) -> Result<String> {
    let path = "jsonpath={range .items[*]}{.metadata.name} {.metadata.annotations.kubernetes\\.io/config\\.hash} \
                {.status.containerStatuses[0].restartCount}{\"\\n\"}{end}";
    cluster.kubectl(&[
        "get",
        "pods",
        "-n",
        "kube-system",
        "-l",
        "component=etcd",
        "-o",
        path,
    ])
}

fn manifests(planes: &[&Host]) -> Result<Vec<String>> {
    let all = planes
        .iter()
        .map(|host| fs::read_to_string(host.file(MANIFEST)));
    Ok(all.collect::<Result<_, _>>()?)
}

/// A highstate with a flag that etcd does not know: one member disappears, comes back with its
/// previous manifest, and the others are not touched.
pub(super) fn stops_at_the_first(cluster: &Cluster) -> Result<Counts> {
    let planes = cluster.control_planes();
    let (first, others) = planes.split_first().context("no control plane")?;
    let document = fs::read_to_string(first.file(DOCUMENT))?;
    ensure!(!document.contains("\netcd:"), "the document has `etcd:`");
    let (before, were) = (manifests(&planes)?, pods(cluster)?);
    fs::write(
        first.file(DOCUMENT),
        format!("{document}\netcd:\n  extraArgs:\n    no-such-flag: \"1\"\n"),
    )?;
    let output = first.output(&["ctl", "highstate"]);
    fs::write(first.file(DOCUMENT), &document)?;
    let output = output?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success(), "the highstate succeeded: {said}");
    ensure!(
        said.contains("no-such-flag"),
        "etcd's own message is missing: {said}"
    );
    wait::until("the member to be back", BACK, || {
        ensure!(manifests(&planes)? == before, "a manifest has changed");
        is_complete(cluster)
    })?;
    let now = pods(cluster)?;
    for host in others {
        let of = |text: &str| {
            let name = format!("etcd-{} ", host.spec.name);
            text.lines()
                .find(|line| line.starts_with(&name))
                .map(str::to_owned)
        };
        ensure!(
            of(&now).is_some() && of(&now) == of(&were),
            "were {were}, are {now}"
        );
    }
    first.run(&["ctl", "highstate"])?;
    same_content(cluster)?;
    Ok(Counts::ONE)
}
