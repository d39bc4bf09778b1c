//! Damage that checks find themselves in the picture of the cluster.

use std::collections::BTreeSet;

use halite_api::HighstateResult;
use halite_cluster::pod_network::Fault;
use halite_core::board::{HostRenewal, Renewal};
use halite_core::names::minion;
use halite_etcd::{Alarm, AlarmKind};

use super::super::picture::Picture;
use super::{DAY, etcd, missed, node, overview, pods, seen, silent};

/// A damage, the name and state of the only check that finds it, its message, and a part of its
/// remedy.
pub(super) type Case = (
    fn(&mut Picture),
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

pub(super) const CASES: &[Case] = &[
    (
        |p| p.hosts[1].connected = false,
        "minions",
        "failure",
        "the minion on cp-2 is not connected",
        "is cp-2 on and reachable? `systemctl status halite-minion` there shows the rest, `systemctl start halite-minion`",
    ),
    (
        |p| (p.hosts[2].accepted, p.hosts[2].node) = (false, None),
        "enrolment",
        "warning",
        "cp-3 is declared and has not enrolled",
        "`ctl node add cp-3`",
    ),
    (
        |p| p.hosts[0].highstate = Some(HighstateResult::Failed),
        "highstate",
        "warning",
        "the last highstate of cp-1 failed",
        "`ctl highstate cp-1`",
    ),
    (
        |p| p.now = 310 * DAY * 1000,
        "certificates-ending",
        "warning",
        "a certificate on cp-1 ends in 55 days: /etc/kubernetes/pki/apiserver.crt",
        "`ctl highstate cp-1` renews it",
    ),
    (
        |p| {
            let own = seen(p).minions.get_mut("cp-2").unwrap();
            own.certificates[0].path = "/var/lib/halite/minion/identity.crt".to_owned();
            own.certificates[0].ends = 30 * DAY;
            p.now = 29 * DAY * 1000;
        },
        "certificates-ending",
        "warning",
        "a certificate on cp-2 ends in 1 day: /var/lib/halite/minion/identity.crt",
        "halite-minion renews it in its last third; `ctl logs cp-2 halite-minion` says why it has not",
    ),
    (
        |p| p.now = 365 * DAY * 1000,
        "certificates-valid",
        "failure",
        "a certificate on cp-1 has expired: /etc/kubernetes/pki/apiserver.crt",
        "`ctl highstate cp-1`",
    ),
    (
        |p| {
            p.renewals.push(HostRenewal {
                host: minion("cp-2"),
                ends: 365 * DAY * 1000,
                renewal: Renewal::Operator,
            });
        },
        "certificates-renewed",
        "warning",
        "certificates of cp-2 end on 1971-01-01; `certificates.renew` is `report`",
        "`ctl highstate cp-2` renews them now",
    ),
    (
        |p| {
            let own = seen(p).minions.get_mut("cp-2").unwrap();
            own.etcd_free = Some((256 << 20) - 1);
        },
        "etcd-disk",
        "failure",
        "only 255 MiB are free on the file system of /var/lib/etcd on cp-2: ",
        "on cp-2: a member that has ended starts again by itself",
    ),
    (
        |p| seen(p).etcd = Some(Err(silent("connection refused"))),
        "etcd-quorum",
        "failure",
        "no member of etcd answers: connection refused",
        "switch on the hosts",
    ),
    (
        |p| seen(p).etcd = Some(Ok(overview(&["cp-3"]))),
        "etcd-members",
        "failure",
        "the etcd member cp-3: ",
        "on cp-3; `ctl highstate cp-3`",
    ),
    (
        |p| {
            let member = etcd(p).members[1].member.id;
            let kind = AlarmKind::NoSpace;
            etcd(p).alarms.push(Alarm { member, kind });
        },
        "etcd-alarms",
        "failure",
        "the etcd member cp-2 has the alarm NOSPACE",
        "`ctl etcd defrag`",
    ),
    (
        |p| {
            let status = etcd(p).members[0].status.as_mut().unwrap();
            (status.db_size, status.db_quota) = (80, 100);
        },
        "etcd-space",
        "warning",
        "the database of the etcd member cp-1 has used 80 % of its quota",
        "`ctl etcd defrag cp-1`",
    ),
    (
        |p| seen(p).api_fault = Some(silent("no route")),
        "api",
        "failure",
        "the Kubernetes API does not answer: no route",
        "`ctr -n k8s.io containers ls`",
    ),
    (
        |p| seen(p).servers[1].1 = Some("connection refused".to_owned()),
        "api-servers",
        "failure",
        "the API server on cp-2 is not ready: connection refused",
        "on cp-2; `ctl highstate cp-2`",
    ),
    (
        |p| seen(p).components[2].fault = Some("it has no pod".to_owned()),
        "control-plane-pods",
        "failure",
        "kube-scheduler on cp-3 does not run: it has no pod",
        "`ctl highstate cp-3` puts its manifest back",
    ),
    (
        |p| {
            seen(p)
                .minions
                .get_mut("cp-2")
                .unwrap()
                .addresses
                .truncate(1)
        },
        "vip",
        "failure",
        "no host holds the virtual address 10.0.0.100",
        "keepalived",
    ),
    (
        |p| {
            let own = seen(p).minions.get_mut("cp-3").unwrap();
            own.addresses.push([10, 0, 0, 100].into());
        },
        "vip",
        "failure",
        "cp-2 and cp-3 hold the virtual address 10.0.0.100 at the same time",
        "keepalived",
    ),
    (
        |p| p.hosts[1].node = Some(node(false, &["Ready=False (x: y)"])),
        "nodes",
        "failure",
        "cp-2 is not Ready: Ready=False (x: y)",
        "`kubectl describe node cp-2`",
    ),
    (
        |p| p.hosts[1].node = Some(node(true, &["DiskPressure=True"])),
        "nodes",
        "failure",
        "cp-2 accepts no pods: DiskPressure=True",
        "`kubectl describe node cp-2`",
    ),
    (
        |p| p.hosts[1].node = None,
        "nodes",
        "failure",
        "cp-2 has not registered with the Kubernetes API",
        "journalctl -u kubelet",
    ),
    (
        |p| {
            seen(p).daemons.push(Fault {
                host: "cp-2".to_owned(),
                message: "kube-proxy-x does not run on cp-2: it is not ready".to_owned(),
                remedy: "`kubectl -n kube-system describe pod kube-proxy-x`".to_owned(),
            });
        },
        "node-daemons",
        "failure",
        "kube-proxy-x does not run on cp-2",
        "describe pod kube-proxy-x",
    ),
    (
        |p| pods(p, "cp-3").setup.as_mut().unwrap().forwards = false,
        "pod-network-setup",
        "failure",
        "cp-3 forwards no packets of pods",
        "`ctl highstate cp-3` sets it",
    ),
    (
        |p| {
            seen(p).strangers.push(Fault {
                host: "cp-3".to_owned(),
                message: "a pod of the cluster's DNS on cp-3 has the address 10.244.0.2".to_owned(),
                remedy: "`ctl node reboot cp-3`".to_owned(),
            });
        },
        "pod-network-setup",
        "failure",
        "a pod of the cluster's DNS on cp-3",
        "`ctl node reboot cp-3`",
    ),
    (
        |p| pods(p, "cp-3").faults.push(missed()),
        "pod-network",
        "failure",
        "pods of cp-3 do not reach those of cp-1 at 10.233.7.2:53: no answer within 2 s",
        "allow UDP port 8472 between cp-3 and cp-1",
    ),
    (
        |p| seen(p).dns = Some(BTreeSet::new()),
        "dns",
        "failure",
        "no replica of the cluster's DNS is ready",
        "k8s-app=kube-dns",
    ),
    (
        |p| seen(p).dns = Some(["cp-2".to_owned()].into()),
        "dns-spread",
        "warning",
        "all replicas of the cluster's DNS are on cp-2",
        "delete pod $(",
    ),
];
