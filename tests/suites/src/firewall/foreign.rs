//! An operator's own zone, rules and SSH connections survive a highstate that makes firewalld
//! reload.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::net::Network;

use super::super::repair;
use super::source::Stranger;
use super::table::SSH;
use crate::test::Counts;

/// Host numbers of a machine in the operator's zone, and of one in the default zone.
const KNOWN: u8 = 201;
const UNKNOWN: u8 = 202;

/// Ports that the operator opens: in the operator's own zone, in the default zone only at run time,
/// and in the default zone permanently.
const ZONE: u16 = 7773;
const NOW: u16 = 7771;
const ALWAYS: u16 = 7772;

const RULE: &str = "rule family=\"ipv4\" source address=\"10.20.0.0/24\" port port=\"7772\" protocol=\"tcp\" accept";

pub fn stays(cluster: &Cluster) -> Result<Counts> {
    let host = &cluster.worker;
    let result = prepare(host).and_then(|()| check(cluster, host));
    // Remove the operator's settings, whatever the result.
    host.sh(&format!(
        "firewall-cmd -q --permanent --delete-zone=operator; firewall-cmd -q --permanent --zone=public --remove-rich-rule='{RULE}'; \
         firewall-cmd -q --reload"
    ))?;
    result
}

fn prepare(host: &Host) -> Result<()> {
    host.sh(&format!(
        "set -e; firewall-cmd -q --permanent --new-zone=operator
         firewall-cmd -q --permanent --zone=operator --add-source={}.{KNOWN}
         firewall-cmd -q --permanent --zone=operator --add-port={ZONE}/tcp
         firewall-cmd -q --permanent --zone=public --add-rich-rule='{RULE}'
         firewall-cmd -q --permanent --policy=halite-pods-out --set-priority=-40
         firewall-cmd -q --reload
         firewall-cmd -q --zone=public --add-port={NOW}/tcp",
        Network::Workload.prefix()
    ))?;
    Ok(())
}

fn check(cluster: &Cluster, host: &Host) -> Result<Counts> {
    let known = Stranger::plug(cluster, Network::Workload, KNOWN)?;
    let unknown = Stranger::plug(cluster, Network::Workload, UNKNOWN)?;
    let reached = |stranger: &Stranger| -> Result<BTreeSet<u16>> {
        Ok(stranger
            .source
            .scan(
                &host.workload_address(),
                &[],
                &[SSH, ZONE, NOW, ALWAYS].into(),
            )?
            .reached())
    };
    let expect = |when: &str| -> Result<()> {
        let (zone, public) = (reached(&known)?, reached(&unknown)?);
        ensure!(
            zone == [ZONE].into(),
            "{when}, the operator's zone lets in {zone:?}"
        );
        ensure!(
            public == [SSH, NOW, ALWAYS].into(),
            "{when}, the default zone lets in {public:?}"
        );
        Ok(())
    };
    expect("before")?;
    let changed = repair::highstate(cluster, &[])?.changed;
    ensure!(
        changed
            .iter()
            .any(|tag| tag.contains("firewalld.policy halite-pods-out")),
        "the highstate did not repair Halite's policy, so nothing was tested: {changed:?}"
    );
    expect("after a highstate that reloads")?;
    let priority = host.sh("firewall-cmd --info-policy=halite-pods-out | grep '^ *priority:'")?;
    ensure!(
        priority.trim() == "priority: -50",
        "Halite's policy was not repaired: {priority}"
    );
    host.run(&[
        "firewall-cmd",
        "-q",
        "--permanent",
        "--zone=public",
        &format!("--query-rich-rule={RULE}"),
    ])?;
    let permanent = host.output(&[
        "firewall-cmd",
        "-q",
        "--permanent",
        "--zone=public",
        &format!("--query-port={NOW}/tcp"),
    ])?;
    ensure!(
        !permanent.status.success(),
        "a temporary opening became permanent"
    );
    Ok(Counts::ONE)
}
