//! Damages of the pod network: each makes its check fail while the node stays Ready, and the
//! printed remedy repairs it.

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{Cluster, WORKER};
use halite_lab::wait;

use super::{LIMIT, findings, health, is_well};
use crate::reboots::reboot;
use crate::test::Counts;

/// A rule of another program that drops flannel's packets.
const DROP: &str = "nft add table inet case && nft 'add chain inet case out { type filter hook output priority 0; }' && nft add \
                    rule inet case out udp dport 8472 drop";
const UNDROP: &str = "nft delete table inet case";
/// The line of the API's name.
const NAMES: &str = "/etc/hosts";

/// Waits until a check names the worker with these words; returns the remedy.
fn named(cluster: &Cluster, check: &str, words: &str) -> Result<String> {
    wait::until(&format!("{check} to name {WORKER}"), LIMIT, || {
        let (code, health) = health(cluster)?;
        let found = findings(&health, check);
        let mut own = found
            .iter()
            .filter(|finding| finding.host.as_deref() == Some(WORKER));
        let own = own
            .find(|finding| finding.message.contains(words))
            .with_context(|| format!("{words:?} is not found: {health:#?}"))?;
        ensure!(code == Some(1), "exit code {code:?}: {health:#?}");
        Ok(own.remedy.clone().unwrap_or_default())
    })
}

/// Checks that a remedy has this command, and runs it on the master's host.
fn run(cluster: &Cluster, remedy: &str, command: &str) -> Result<()> {
    ensure!(remedy.contains(&format!("`{command}`")), "{remedy}");
    cluster.bootstrap.sh(command).map(drop)
}

/// A damage of the worker that a highstate repairs.
fn highstate_repairs(cluster: &Cluster, damage: &str, check: &str, words: &str) -> Result<Counts> {
    is_well(cluster)?;
    cluster.worker.sh(damage)?;
    let remedy = named(cluster, check, words)?;
    run(cluster, &remedy, &format!("ctl highstate {WORKER}"))?;
    is_well(cluster)?;
    Ok(Counts::ONE)
}

/// The process of flannel on the worker.
fn flannel(cluster: &Cluster) -> Result<String> {
    let found = cluster.worker.sh("pgrep -x flanneld")?;
    Ok(found.trim().to_owned())
}

/// No damage: flannel needs no path to a Service, and keeps the address that the firewalls of the
/// others know. The host's first address is a lease, which flannel would choose last.
pub(super) fn addresses(cluster: &Cluster) -> Result<Counts> {
    is_well(cluster)?;
    let worker = &cluster.worker;
    let own = worker.workload_address();
    let device = worker.sh(&format!("ip -4 -o addr show to {own}"))?;
    let device = device
        .split_whitespace()
        .nth(1)
        .context("no interface")?
        .to_owned();
    let default = worker.sh("ip route show default")?;
    let default = default.trim();
    let gateway = default.split_whitespace().nth(2);
    let gateway = gateway.context("no default route")?;
    let (other, hosts) = ("10.20.0.250/24", "10.10.0.0/16");
    let before = flannel(cluster)?;
    // The other hosts are reached through the router, as usual.
    worker.sh(&format!(
        "ip addr change {own}/24 dev {device} valid_lft 86400 preferred_lft 86400; ip addr add {other} dev {device}; ip route add \
         {hosts} via {gateway}; ip route del default; pkill -x flanneld"
    ))?;
    let tried = wait::until(
        "flannel to run again with the host's address",
        LIMIT,
        || {
            // A new process that has written its file.
            ensure!(flannel(cluster)? != before, "{before} has not ended");
            worker.sh("test -s /run/flannel/subnet.env")?;
            let link = worker.sh("ip -d link show flannel.1")?;
            ensure!(link.contains(&format!("local {own} ")), "{link}");
            Ok(())
        },
    );
    let tried = tried.and_then(|()| is_well(cluster));
    worker.sh(&format!(
        "ip addr del {other} dev {device}; ip addr change {own}/24 dev {device} valid_lft forever preferred_lft forever; ip route \
         replace {default}; ip route del {hosts} via {gateway}"
    ))?;
    tried?;
    is_well(cluster)?;
    Ok(Counts::ONE)
}

/// Waits until flannel has run for a while: one that has just started writes its routes and its
/// file again, and a highstate leaves it alone.
fn settled(cluster: &Cluster) -> Result<()> {
    let old = "ps -C flanneld -o etimes= | awk '$1 > 40 { old = 1 } END { exit !old }'";
    let waited = wait::until("flannel to run for a while", LIMIT, || {
        cluster.worker.sh(old)
    });
    waited.map(drop)
}

pub(super) fn routes(cluster: &Cluster) -> Result<Counts> {
    settled(cluster)?;
    let words = "the route by flannel.1 is missing";
    highstate_repairs(
        cluster,
        "ip route flush dev flannel.1",
        "pod-network",
        words,
    )
}

pub(super) fn forwarding(cluster: &Cluster) -> Result<Counts> {
    let words = "net.ipv4.ip_forward is 0";
    let damage = "echo 0 > /proc/sys/net/ipv4/ip_forward";
    highstate_repairs(cluster, damage, "pod-network-setup", words)
}

pub(super) fn subnet_file(cluster: &Cluster) -> Result<Counts> {
    settled(cluster)?;
    let damage = "rm /run/flannel/subnet.env";
    highstate_repairs(
        cluster,
        damage,
        "pod-network-setup",
        "subnet.env is missing",
    )
}

/// The step of `ctl node add` reports the same.
pub(super) fn tunnel(cluster: &Cluster) -> Result<Counts> {
    is_well(cluster)?;
    cluster.worker.sh(DROP)?;
    let remedy = named(
        cluster,
        "pod-network",
        "the VXLAN packets or their answers are lost",
    )?;
    let added = cluster.bootstrap.output(&cluster.add_command())?;
    cluster.worker.sh(UNDROP)?;
    ensure!(remedy.contains("allow UDP port 8472 between"), "{remedy}");
    let said = [added.stdout, added.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    let said = said.concat();
    ensure!(
        added.status.code() == Some(1) && said.contains("allow UDP port 8472 between"),
        "ctl node add ended with {}: {said}",
        added.status
    );
    is_well(cluster)?;
    let again = cluster.bootstrap.output(&cluster.add_command())?;
    ensure!(
        again.status.success(),
        "ctl node add ended with {}",
        again.status
    );
    let left = cluster.kubectl(&["-n", "kube-system", "get", "pods", "-o", "name"])?;
    ensure!(!left.contains("halite-pod-network"), "{left}");
    Ok(Counts::ONE)
}

pub(super) fn foreign_network(cluster: &Cluster) -> Result<Counts> {
    is_well(cluster)?;
    let path = "/etc/cni/net.d/05-old.conflist";
    let network = r#"{"cniVersion": "0.3.1", "name": "old", "plugins": [{"type": "bridge", "bridge": "old0", "isGateway": true, "ipam": {"type": "host-local", "subnet": "10.244.0.0/24"}}]}"#;
    cluster
        .worker
        .sh(&format!("printf '%s' '{network}' > {path}"))?;
    let remedy = named(cluster, "pod-network-setup", path)?;
    ensure!(
        remedy.contains(&format!("`ctl node reboot {WORKER}`")),
        "{remedy}"
    );
    // No pod has started with it, so a reboot is unnecessary.
    run(
        cluster,
        &remedy,
        &format!("ctl cmd {WORKER} -- 'rm {path}'"),
    )?;
    is_well(cluster)?;
    Ok(Counts::ONE)
}

pub(super) fn foreign_bridge(cluster: &Cluster) -> Result<Counts> {
    is_well(cluster)?;
    let damage = "ip addr flush dev cni0 && ip addr add 10.244.0.1/24 dev cni0";
    // The bridge exists once a pod has run.
    cluster.worker.sh(&format!(
        "ip link show cni0 || ip link add cni0 type bridge; {damage}"
    ))?;
    let remedy = named(cluster, "pod-network-setup", "cni0 on")?;
    run(
        cluster,
        &remedy,
        &format!("ctl cmd {WORKER} -- 'ip link delete cni0'"),
    )?;
    ensure!(
        remedy.contains(&format!("`ctl node reboot {WORKER}`")),
        "{remedy}"
    );
    reboot(cluster, &cluster.worker, "--no-drain")?;
    is_well(cluster)?;
    Ok(Counts::ONE)
}

/// kube-proxy is stopped first: otherwise it would write its rules again by itself after a while.
pub(super) fn service_rules(cluster: &Cluster) -> Result<Counts> {
    is_well(cluster)?;
    cluster
        .worker
        .sh("pkill -STOP -x kube-proxy && nft delete table ip kube-proxy")?;
    let remedy = named(
        cluster,
        "pod-network",
        "do not reach the Service of the API",
    );
    let remedy = remedy.and_then(|remedy| {
        let command = format!(
            "kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName={WORKER}"
        );
        run(cluster, &remedy, &command)
    });
    cluster.worker.sh("pkill -CONT -x kube-proxy; true")?;
    remedy?;
    is_well(cluster)?;
    Ok(Counts::ONE)
}

/// As after a boot at which another program has written the names of the host.
pub(super) fn daemons(cluster: &Cluster) -> Result<Counts> {
    is_well(cluster)?;
    cluster.worker.sh(&format!(
        "sed -i '/ api\\.\\|\\tapi\\./d' {NAMES} && pkill -x 'kube-proxy|flanneld'"
    ))?;
    let remedy = named(cluster, "node-daemons", "does not run on")?;
    run(cluster, &remedy, &format!("ctl highstate {WORKER}"))?;
    is_well(cluster)?;
    Ok(Counts::ONE)
}

/// A resolver of the host at its own loopback address: CoreDNS would query itself, and exits.
pub(super) fn dns(cluster: &Cluster) -> Result<Counts> {
    is_well(cluster)?;
    let hosts = cluster.hosts();
    for host in &hosts {
        host.sh(
            "cp /etc/resolv.conf /root/resolv.conf && echo nameserver 127.0.0.1 > /etc/resolv.conf",
        )?;
    }
    let restart = [
        "-n",
        "kube-system",
        "rollout",
        "restart",
        "deployment",
        "coredns",
    ];
    let delete = [
        "-n",
        "kube-system",
        "delete",
        "pod",
        "-l",
        "k8s-app=kube-dns",
    ];
    let found = cluster.kubectl(&delete).and_then(|_| {
        wait::until("the check of the DNS to fail", LIMIT, || {
            let (_, health) = health(cluster)?;
            let found = findings(&health, "dns");
            let found = found
                .first()
                .with_context(|| format!("not found: {health:#?}"))?;
            let remedy = found.remedy.as_deref().unwrap_or_default();
            let command = "kubectl -n kube-system logs -l k8s-app=kube-dns";
            ensure!(remedy.contains(&format!("`{command}`")), "{remedy}");
            let said = cluster.bootstrap.sh(command)?;
            ensure!(said.contains("plugin/loop"), "{said}");
            Ok(())
        })
    });
    for host in &hosts {
        host.sh("cat /root/resolv.conf > /etc/resolv.conf; rm /root/resolv.conf")?;
    }
    found?;
    cluster.kubectl(&restart)?;
    is_well(cluster)?;
    Ok(Counts::ONE)
}
