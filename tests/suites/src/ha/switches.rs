//! The address of the API changes between keepalived, an external balancer and the proxies, in each
//! direction, while a client on the worker follows the name.

use std::fs;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use halite_lab::cluster::{Cluster, DOCUMENT};
use halite_lab::host::Host;
use halite_lab::wait;

use super::losses::{ApiPath, VIP, under_writes, wait_for_one_holder};
use super::proxies::{HELD, NONE, leads_to};
use super::standbys::nothing_to_do;
use super::{BACK, is_complete, same_content};
use crate::availability::holders::Sampler;
use crate::test::Counts;

const EXTERNAL: &str = "  vip: 10.10.0.100\n  keepalived: false\n";
/// Limit of the gap: control planes lose the address one after the other, and the worker gets its
/// proxy after the last of them.
const GAP: Duration = Duration::from_secs(90);
/// Limit for a highstate of all hosts.
const HIGHSTATE: Duration = Duration::from_secs(600);

/// The path to the API servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lead {
    Keepalived,
    /// The operator's own balancer, whose address the lab assigns to the last control plane.
    External,
    Proxies,
}

impl Lead {
    /// Its lines in the cluster document.
    fn lines(self) -> &'static str {
        match self {
            Self::Keepalived => HELD,
            Self::External => EXTERNAL,
            Self::Proxies => NONE,
        }
    }

    /// The address to which the name resolves on the worker.
    fn address(self) -> String {
        match self {
            Self::Keepalived | Self::External => VIP.to_string(),
            Self::Proxies => "127.0.0.1".to_owned(),
        }
    }
}

/// From start to end, each of the six changes occurs once.
const ROUND: [Lead; 7] = [
    Lead::Keepalived,
    Lead::External,
    Lead::Proxies,
    Lead::External,
    Lead::Keepalived,
    Lead::Proxies,
    Lead::Keepalived,
];

/// All six changes; no acknowledged write is missing, and certificates and kubeconfig files stay
/// the same.
pub(super) fn in_all_directions(cluster: &Cluster) -> Result<Counts> {
    let document = fs::read_to_string(cluster.bootstrap.file(DOCUMENT))?;
    ensure!(document.contains(HELD), "the document has no address");
    let before = identities(cluster)?;
    let switched = round(cluster, &document);
    if switched.is_err() {
        // The tests after this one need the address to be held by keepalived.
        let _ = release(balancer(cluster)?);
        fs::write(cluster.bootstrap.file(DOCUMENT), &document)?;
        let _ = cluster.bootstrap.run(&["ctl", "highstate"]);
    }
    switched?;
    wait_for_one_holder(cluster)?;
    let after = identities(cluster)?;
    ensure!(after == before, "it was:\n{before}\nand is:\n{after}");
    same_content(cluster)?;
    nothing_to_do(
        &cluster.bootstrap,
        &["cp-1", "cp-2", "cp-3", "worker-1", "master"],
    )?;
    Ok(Counts {
        passed: ROUND.len() - 1,
        failed: 0,
    })
}

fn round(cluster: &Cluster, document: &str) -> Result<()> {
    for (from, to) in ROUND.iter().zip(&ROUND[1..]) {
        let text = document.replace(HELD, to.lines());
        switch(cluster, *from, *to, &text).with_context(|| format!("from {from:?} to {to:?}"))?;
    }
    Ok(())
}

/// Changes the document and applies it to all hosts, while the worker writes. Before, between and
/// after that, the operator's balancer gets or loses the address.
fn switch(cluster: &Cluster, from: Lead, to: Lead, document: &str) -> Result<()> {
    let what = format!("{from:?}-to-{to:?}").to_lowercase();
    let measured = under_writes(cluster, ApiPath::Name, &what, |_| {
        let balancer = balancer(cluster)?;
        if (from, to) == (Lead::Proxies, Lead::External) {
            hold(balancer)?;
        }
        fs::write(cluster.bootstrap.file(DOCUMENT), document)?;
        thread::scope(|scope| {
            let run = scope.spawn(|| cluster.bootstrap.run(&["ctl", "highstate"]));
            let over = || run.is_finished();
            let handed = match (from, to) {
                (Lead::Keepalived, Lead::External) => {
                    until_no_keepalived(cluster, &over).and_then(|()| hold(balancer))
                }
                (Lead::External, Lead::Keepalived) => {
                    until_another_holds_it(cluster, balancer, &over)
                        .and_then(|()| release(balancer))
                }
                _ => Ok(()),
            };
            let said = run.join().map_err(|_| anyhow!("the command panicked"))?;
            said.context("ctl highstate")?;
            handed
        })?;
        if (from, to) == (Lead::External, Lead::Proxies) {
            release(balancer)?;
        }
        Ok(())
    })?;
    println!(
        "  {what}: {} writes acknowledged, longest gap {:.1} s; two holders for {} ms",
        measured.acknowledged,
        measured.gap.length.as_secs_f64(),
        measured.shared.as_millis()
    );
    let gap = &measured.gap;
    ensure!(
        gap.length <= GAP,
        "a gap of {:?}: {:?}",
        gap.length,
        gap.errors
    );
    arrived(cluster, to)
}

/// The control plane that has the address of the balancer. It is the last one on which keepalived
/// stops, so that the others' entries for its place in the network stay valid.
fn balancer(cluster: &Cluster) -> Result<&Host> {
    let planes = cluster.control_planes();
    planes.last().copied().context("no control plane")
}

fn hold(host: &Host) -> Result<()> {
    let address = format!("{VIP}/32");
    host.run(&["ip", "addr", "add", &address, "dev", "eth0"])
        .map(drop)
}

/// Removes the balancer's address, unless keepalived has it.
fn release(host: &Host) -> Result<()> {
    let line = format!(
        "systemctl --quiet is-active keepalived || ip addr del {VIP}/32 dev eth0; \
         systemctl --quiet is-active keepalived || ! ip -4 -o addr | grep -qF ' {VIP}/'"
    );
    host.sh(&line).map(drop)
}

/// Waits until keepalived has stopped on each control plane, and none holds the address. The end of
/// the command ends the wait, too.
fn until_no_keepalived(cluster: &Cluster, over: &dyn Fn() -> bool) -> Result<()> {
    wait::until("keepalived to stop on each host", HIGHSTATE, || {
        // Before the check, so that its final state is seen.
        let is_over = over();
        for host in cluster.control_planes() {
            let name = &host.spec.name;
            let state = host.sh("systemctl is-active keepalived || true")?;
            let holds = host.sh(&format!("ip -4 -o addr | grep -F ' {VIP}/' || true"))?;
            if state.trim() == "active" || !holds.is_empty() {
                let missing = format!("{name}: keepalived is {}, {holds}", state.trim());
                if is_over {
                    return Ok(Err(anyhow!("after the highstate {missing}")));
                }
                return Err(anyhow!(missing));
            }
        }
        Ok(Ok(()))
    })?
}

/// Waits until a host other than the balancer holds the address.
fn until_another_holds_it(
    cluster: &Cluster,
    balancer: &Host,
    over: &dyn Fn() -> bool,
) -> Result<()> {
    let sampler = Sampler::start(&cluster.control_planes(), VIP);
    let taken = wait::until("keepalived to take the address", HIGHSTATE, || {
        let is_over = over();
        let holders = sampler.samples().now();
        if holders.iter().any(|name| *name != balancer.spec.name) {
            return Ok(Ok(()));
        }
        ensure!(is_over, "it is held by {holders:?}");
        Ok(Err(anyhow!(
            "after the highstate it is held by {holders:?}"
        )))
    });
    sampler.end()?;
    taken?
}

/// Checks where the name resolves, and that nothing of another path is left.
fn arrived(cluster: &Cluster, lead: Lead) -> Result<()> {
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    let leads = leads_to(cluster)?;
    ensure!(leads == lead.address(), "the name resolves to {leads}");
    let is_active = |host: &Host, unit: &str| -> Result<bool> {
        let state = host.sh(&format!("systemctl is-active {unit} || true"))?;
        Ok(state.trim() == "active")
    };
    let proxy = is_active(&cluster.worker, "haproxy")?;
    ensure!(
        proxy == (lead == Lead::Proxies),
        "haproxy on the worker is active: {proxy}"
    );
    for host in cluster.control_planes() {
        let name = &host.spec.name;
        let keepalived = is_active(host, "keepalived")?;
        ensure!(
            keepalived == (lead == Lead::Keepalived),
            "keepalived on {name} is active: {keepalived}"
        );
    }
    let sampler = Sampler::start(&cluster.control_planes(), VIP);
    let wanted = usize::from(lead != Lead::Proxies);
    let held = wait::until("the number of holders", BACK, || {
        let samples = sampler.samples();
        let now = samples.now();
        ensure!(
            !samples.changes().is_empty() && now.len() == wanted,
            "held by {now:?}"
        );
        Ok(())
    });
    sampler.end()?;
    held
}

/// Digests of the certificates and kubeconfig files of Kubernetes, except those that the kubelet
/// renews by itself.
fn identities(cluster: &Cluster) -> Result<String> {
    let list = "find /etc/kubernetes -name '*.crt' -o -name '*.conf' | sort | xargs sha256sum";
    let of_host = |host: &Host| Ok(format!("{}:\n{}", host.spec.name, host.sh(list)?));
    cluster.hosts().into_iter().map(of_host).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_round_has_each_change_once_and_ends_where_it_began() {
        let changes: Vec<(Lead, Lead)> = ROUND
            .iter()
            .zip(&ROUND[1..])
            .map(|(a, b)| (*a, *b))
            .collect();
        let different: BTreeSet<String> =
            changes.iter().map(|change| format!("{change:?}")).collect();
        assert_eq!((changes.len(), different.len()), (6, 6));
        assert!(changes.iter().all(|(from, to)| from != to));
        assert_eq!(ROUND.first(), ROUND.last());
    }
}
