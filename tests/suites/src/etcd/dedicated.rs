//! A member of etcd on a dedicated host, the lab's second one: no kubelet runs there, and the first
//! host gives up its own member: first by itself, and then by a change of its roles.

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, CTL, Cluster, WORKER};
use halite_lab::host::Host;

use super::{cluster_configuration, destroy, serves, status, with};
use crate::bare::REMOVE_WORKER;
use crate::checks::{nothing_to_do, refused};
use crate::test::Counts;

const SECTION: &str = "etcd: {placement: dedicated, mode: host-service}\n";

pub(super) fn holds(cluster: &Cluster) -> Result<Counts> {
    destroy(cluster)?;
    cluster.bootstrap(&with(SECTION))?;
    cluster.kubectl(&["create", "configmap", "kept", "--from-literal=by=etcd"])?;
    cluster.add_worker_with("etcd").context("a host of etcd")?;
    moved(cluster)?;

    let (first, member) = (&cluster.bootstrap, &cluster.worker);
    // A highstate of both changes nothing else, and the key of etcd's CA is nowhere.
    first.run(&[CTL, "highstate"]).context("of both hosts")?;
    moved(cluster)?;
    for host in [first, member] {
        host.sh("! test -e /etc/kubernetes/pki/etcd/ca.key")?;
    }
    first.run(&[CTL, "backup", "create"]).context("a backup")?;
    first
        .run(&[CTL, "backup", "verify"])
        .context("the backup")?;
    // The objects would be lost with it.
    refused(first, &REMOVE_WORKER, &["it has the only member of etcd"])?;

    // Damage there is repaired as on any host, and the API is back.
    member.sh("systemctl disable --now etcd && rm /etc/systemd/system/etcd.service && systemctl daemon-reload")?;
    first
        .run(&[CTL, "highstate", WORKER])
        .context("without the unit")?;
    serves(cluster)?;
    moved(cluster)?;
    given_and_taken(cluster)?;
    moved(cluster)?;
    Ok(Counts::ONE)
}

/// An existing control plane gets a member, and gives up only that.
fn given_and_taken(cluster: &Cluster) -> Result<()> {
    let first = &cluster.bootstrap;
    let change = |roles: &'static str| [CTL, "node", "roles", BOOTSTRAP, roles];
    // The data of its former member must not be mistaken for the new one's.
    first.sh("cp -a /var/lib/etcd/member.removed-* /var/lib/etcd/member")?;
    first
        .run(&change("bootstrap,registry,etcd,control-plane"))
        .context("a member with the control plane")?;
    let has_two = || -> Result<()> {
        status(first, "2 members, none may fail")?;
        let own = first.control_plane_address();
        first
            .sh(&format!(
                "systemctl --quiet is-active etcd && test -e /etc/kubernetes/pki/etcd/ca.key && \
                 grep -e '--etcd-servers=' /etc/kubernetes/manifests/kube-apiserver.yaml | grep -q https://{own}:2379"
            ))
            .map(drop)
    };
    has_two()?;
    let aside = "test -d \"$(ls -d /var/lib/etcd/member.other-member-*)/wal\" && grep -q memberId /var/lib/halite/etcd-member.json";
    first.sh(aside).context("data of the former member")?;
    let without = change("bootstrap,registry,control-plane");
    let asked = ["it takes --force --cluster demo", "1 member is left"];
    refused(first, &without, &asked)?;
    has_two()?;
    let forced = [&without[..], &["--force", "--cluster", "demo"]].concat();
    first.run(&forced).context("without the member")?;
    first.sh(
        "test $(ls -d /var/lib/etcd/member.removed-* | wc -l) = 2 && test -e /etc/kubernetes/pki/etcd/ca.crt",
    )?;
    nothing_to_do(first)
}

/// The only member is on the second host, which has nothing else, and the first host uses it.
fn moved(cluster: &Cluster) -> Result<()> {
    let (first, member) = (&cluster.bootstrap, &cluster.worker);
    member.sh(
        "systemctl --quiet is-active etcd && systemctl --quiet is-enabled etcd && test \"$(pgrep -xc etcd)\" = 1 && \
         ! pgrep -x kubelet && ! test -e /etc/kubernetes/manifests && ! test -e /var/lib/kubelet/config.yaml",
    )?;
    first.sh(
        "! pgrep -x etcd && ! test -e /etc/systemd/system/etcd.service && ! test -e /var/lib/etcd/member && \
         ! test -e /var/lib/halite/etcd-member.json && ! test -e /etc/kubernetes/pki/etcd/server.key",
    )?;
    let endpoint = format!("https://{}:2379", member.control_plane_address());
    first.sh(&format!(
        "grep -q -e '--etcd-servers={endpoint}\"' /etc/kubernetes/manifests/kube-apiserver.yaml"
    ))?;
    serves(cluster)?;
    let kept = ["get", "configmap", "kept", "-o", "jsonpath={.data.by}"];
    ensure!(
        cluster.kubectl(&kept)? == "etcd",
        "the data were not transferred"
    );
    let configuration = cluster_configuration(cluster)?;
    ensure!(
        configuration.contains(&endpoint)
            && !configuration.contains(&first.control_plane_address()),
        "{configuration}"
    );
    let nodes = cluster.kubectl(&["get", "nodes", "-o", "name"])?;
    ensure!(nodes.trim() == format!("node/{BOOTSTRAP}"), "{nodes}");
    let status = status(first, "1 member, none may fail")?;
    ensure!(status.contains(WORKER), "{status}");
    let open = |host: &Host| host.run(&["firewall-cmd", "--info-policy=halite-host"]);
    let rules = open(first)?;
    ensure!(
        !rules.contains("2379") && !rules.contains("2380"),
        "{rules}"
    );
    let rules = open(member)?;
    ensure!(
        rules.contains("halite-etcd-clients") && !rules.contains("10250"),
        "{rules}"
    );
    Ok(())
}
