//! A member of etcd as a unit of systemd.

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster};
use halite_lab::host::Host;

use super::{declare, destroy, serves, status, with};
use crate::test::Counts;

const UNIT: &str = "/etc/systemd/system/etcd.service";
const PROGRAMS: &str = "/usr/local/lib/halite/etcd";
const MANIFEST: &str = "/etc/kubernetes/manifests/etcd.yaml";
const SECTION: &str = "etcd:\n  mode: host-service\n";

/// The document of a cluster whose etcd is a service of the host.
pub(crate) fn document() -> String {
    with(SECTION)
}

/// Makes a cluster with a service, unless the lab's cluster already has it.
fn prepared(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    if is_unit(host).is_ok() {
        return Ok(());
    }
    destroy(cluster)?;
    cluster.bootstrap(&document()).map(drop)
}

/// systemd runs etcd, and nothing else does.
fn is_unit(host: &Host) -> Result<()> {
    host.sh(&format!(
        "systemctl --quiet is-active etcd && systemctl --quiet is-enabled etcd && ! test -e {MANIFEST} && \
         test \"$(pgrep -xc etcd)\" = 1 && grep -q '/etcd.service$' /proc/$(pgrep -x etcd)/cgroup"
    ))
    .map(drop)
}

/// Unit and program are lost, then a flag is declared that etcd does not know.
pub(super) fn repaired(cluster: &Cluster) -> Result<Counts> {
    prepared(cluster)?;
    let host = &cluster.bootstrap;
    is_unit(host)?;
    host.sh(&format!(
        "systemctl disable --now etcd && rm -rf {UNIT} {PROGRAMS} && systemctl daemon-reload && ! pgrep -x etcd"
    ))?;
    host.run(&[CTL, "highstate", BOOTSTRAP])
        .context("without unit and program")?;
    is_unit(host)?;
    serves(cluster)?;

    let unit = std::fs::read_to_string(host.file(UNIT))?;
    let before = declare(host, |text| {
        text.replace(
            SECTION,
            &format!("{SECTION}  extraArgs: {{no-such-flag: \"1\"}}\n"),
        )
    })?;
    let output = host.output(&[CTL, "highstate", BOOTSTRAP]);
    declare(host, |_| before)?;
    let output = output?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(
        !output.status.success() && said.contains("no-such-flag"),
        "the highstate ended with {}: {said}",
        output.status
    );
    ensure!(
        std::fs::read_to_string(host.file(UNIT))? == unit,
        "the previous unit is not back: {said}"
    );
    serves(cluster)?;
    is_unit(host)?;
    host.run(&[CTL, "highstate", BOOTSTRAP]).map(drop)?;
    status(host, "1 member, none may fail")?;
    Ok(Counts::ONE)
}

/// The mode changes on a live cluster, in both directions.
pub(super) fn changed(cluster: &Cluster) -> Result<Counts> {
    prepared(cluster)?;
    let host = &cluster.bootstrap;
    serves(cluster)?;
    cluster.kubectl(&["create", "configmap", "kept", "--from-literal=by=etcd"])?;
    let before = declare(host, |text| text.replace(SECTION, ""))?;
    host.run(&[CTL, "highstate", BOOTSTRAP])
        .context("as a static pod")?;
    host.sh(&format!(
        "test -e {MANIFEST} && ! test -e {UNIT} && ! test -e {PROGRAMS} && test \"$(pgrep -xc etcd)\" = 1"
    ))?;
    serves(cluster)?;
    let kept = ["get", "configmap", "kept", "-o", "jsonpath={.data.by}"];
    ensure!(cluster.kubectl(&kept)? == "etcd", "as a static pod");
    declare(host, |_| before)?;
    host.run(&[CTL, "highstate", BOOTSTRAP])
        .context("as a service")?;
    is_unit(host)?;
    serves(cluster)?;
    ensure!(cluster.kubectl(&kept)? == "etcd", "as a service");
    Ok(Counts::ONE)
}
