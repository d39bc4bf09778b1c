//! A host on which nothing of Halite, or nothing of a control plane, is left.

use std::time::Duration;

use anyhow::{Context as _, Result};
use halite_lab::cluster::{CTL, Cluster, WORKER};
use halite_lab::host::Host;
use halite_lab::wait;

/// Limit for the unit that is removed last: the minion finishes its work first.
const GONE: Duration = Duration::from_secs(240);

/// Files that are removed last. Backups stay unless data is wiped: the timer may have made one on
/// any host of etcd.
const LAST: &str = "! test -e /usr/local/bin/halite-minion && ! ls -A /var/lib/halite 2>/dev/null | grep -vx backup && \
                    ! test -e /etc/halite && ! test -e /etc/systemd/system/halite-leave.service";

/// Limit for the kubelet to stop the pods of a control plane, and for an API server with open
/// watches to stop, which takes half a minute.
const ENDED: Duration = Duration::from_secs(120);

/// The programs of a control plane and of a member of etcd, and their ports.
const PROGRAMS_OF_PLANE: &str = "! pgrep -x 'kube-apiserver|kube-controller|kube-scheduler|etcd|keepalived' && \
                                 ! ss -Hltn | grep -E ':(6443|2379|2380|2381|4550|10257|10259) '";

/// The checks of a host without a control plane and a member of etcd, once their programs have
/// stopped.
const NO_PLANE: &[&str] = &[
    "! ls -A /etc/kubernetes/manifests | grep .",
    "! find /etc/kubernetes /etc/halite -name '*.key' ! -path '/etc/halite/minion/*' | grep -E 'ca.key|sa.key|etcd|operator|apiserver'",
    "! ls /etc/kubernetes | grep -E 'admin.conf|manager.conf|scheduler.conf'",
    "! test -e /var/lib/etcd/member && ! test -e /var/lib/halite/etcd-member.json && ls -d /var/lib/etcd/member.removed-*",
    "! test -e /root/.kube/config && ! test -e /etc/halite/operator && ! test -e /etc/halite/masters",
    "! test -e /var/lib/halite/master && ! test -e /etc/halite/cluster.yaml && ! test -e /etc/halite/nodes && ! systemctl --quiet is-active halite-master",
    "! test -e /etc/keepalived/check-apiserver && ! systemctl --quiet is-enabled keepalived",
];

/// Programs of the packages that Halite installs, except tools for the operator.
const PROGRAMS: &str = "containerd runc kubelet kubeadm kubectl keepalived haproxy nginx registry";

/// The command that removes the worker of the lab's cluster without a question.
pub(crate) const REMOVE_WORKER: [&str; 7] = [
    CTL,
    "node",
    "remove",
    WORKER,
    "--force",
    "--cluster",
    "demo",
];

/// Removes the worker from the lab's cluster, and waits until its host is bare.
pub(crate) fn remove_worker(cluster: &Cluster) -> Result<()> {
    cluster.bootstrap.run(&REMOVE_WORKER)?;
    wait_until_bare(&cluster.worker)
}

/// Waits until the last of Halite has been removed from a host.
pub(crate) fn wait_until_bare(host: &Host) -> Result<()> {
    let what = format!("the last of Halite to be gone from {}", host.spec.name);
    wait::until(&what, GONE, || host.sh(LAST).map(drop))
}

/// Fails if something of Halite is left on a host; `names` is a pattern of the cluster's other
/// names.
pub(crate) fn is_bare(host: &Host, names: &str) -> Result<()> {
    let names = format!("! grep -E '{names}' /etc/hosts");
    let bare = [
        LAST,
        "! test -e /etc/kubernetes",
        "! test -e /srv/halite",
        "! test -e /var/lib/kubelet/config.yaml",
        "! systemctl --quiet is-active kubelet containerd halite-minion halite-master",
        "! pgrep -x kubelet && ! pgrep -f '[c]ontainerd-shim' && ! pgrep -f '[/]usr/local/bin/halite'",
        "! ip link show cni0 2>/dev/null",
        "! firewall-cmd --permanent --get-policies | grep halite",
        "! firewall-cmd --get-ipsets | grep halite",
        "! nft list ruleset | grep -E 'halite|kube-proxy|cni_hostport|flannel-ipv|KUBE-|FLANNEL|CNI-'",
        "! ls /etc/sysctl.d /etc/modules-load.d | grep halite",
        "! grep -rs 'Written by Halite' /etc/keepalived /etc/haproxy",
        "! test -e /etc/keepalived/check-apiserver && ! test -e /etc/haproxy/kubernetes-ca.crt",
        "! find /etc/apt /etc/nginx /etc/systemd/system /usr/local -name '*halite*' | grep .",
        "! test -e /usr/local/bin/ctl && ! test -e /usr/local/share/man/man1/ctl.1",
        &names,
    ];
    for check in bare {
        host.sh(check)
            .with_context(|| format!("on {}: {check}", host.spec.name))?;
    }
    Ok(())
}

/// Fails if something of a control plane or of a member of etcd is left on a host, except for data
/// that was set aside; its kubelet reaches the API by its name. Waits for the programs to stop,
/// which no command does.
pub(crate) fn has_no_control_plane(host: &Host) -> Result<()> {
    let what = format!("the control plane of {} to stop", host.spec.name);
    wait::until(&what, ENDED, || host.sh(PROGRAMS_OF_PLANE).map(drop))?;
    let own = "grep -q 'server: https://api.demo.internal:6443$' /etc/kubernetes/kubelet.conf";
    for check in NO_PLANE.iter().chain(&[own]) {
        host.sh(check)
            .with_context(|| format!("on {}: {check}", host.spec.name))?;
    }
    Ok(())
}

/// Fails if etcd's data or a backup is left on a host that left with `--wipe-data`.
pub(crate) fn has_no_data(host: &Host) -> Result<()> {
    let check = "! test -e /var/lib/etcd/member && ! test -e /var/lib/halite";
    host.sh(check)
        .with_context(|| format!("on {}: {check}", host.spec.name))?;
    Ok(())
}

/// Fails if packages that Halite installed, or data, are left on a host that left with `--packages
/// --wipe-data`.
pub(crate) fn has_no_packages_or_data(host: &Host) -> Result<()> {
    let check = format!("for program in {PROGRAMS}; do ! command -v $program || exit 1; done");
    host.sh(&check)
        .with_context(|| format!("on {}: {check}", host.spec.name))?;
    has_no_data(host)
}
