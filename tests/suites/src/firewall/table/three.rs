//! The tables of three hosts of the site of three control planes: the first one, which has the
//! master; the second one, a standby; and the worker.

use anyhow::{Result, bail};

use super::{CONTROL_PLANE, PODS, Row, Table};

/// Both addresses of the other control planes, as the first and the second one see them.
const BESIDE_FIRST: &[&str] = &["10.10.0.12", "10.10.0.13", "10.20.0.12", "10.20.0.13"];
const BESIDE_SECOND: &[&str] = &["10.10.0.11", "10.10.0.13", "10.20.0.11", "10.20.0.13"];
/// Both addresses of the first one.
const FIRST: &[&str] = &["10.10.0.11", "10.20.0.11"];
/// Both addresses of the worker.
const WORKER: &[&str] = &["10.10.1.14", "10.20.0.14"];

/// The control-plane address of each of them.
const AT_FIRST: &[&str] = &["10.10.0.11"];
const AT_SECOND: &[&str] = &["10.10.0.12"];
const AT_WORKER: &[&str] = &["10.10.1.14"];

/// The addresses of the API: the host's own, and the VIP.
const API_OF_FIRST: &[&str] = &["10.10.0.11", "10.10.0.100"];
const API_OF_SECOND: &[&str] = &["10.10.0.12", "10.10.0.100"];

/// The port of the master, at which a standby reports which master it follows.
const MASTER: u16 = 4550;

/// The openings of the first one, which has the master and serves the bundles.
const ON_FIRST: &[Row] = &[
    ("tcp", MASTER..=4551, CONTROL_PLANE, AT_FIRST),
    // control-plane: the API server, also for pods, and of the workload plane for nodes
    ("tcp", 6443..=6443, CONTROL_PLANE, API_OF_FIRST),
    ("tcp", 6443..=6443, BESIDE_FIRST, API_OF_FIRST),
    ("tcp", 6443..=6443, WORKER, API_OF_FIRST),
    ("tcp", 6443..=6443, &[PODS], API_OF_FIRST),
    // etcd: the other members, which are its clients too
    ("tcp", 2379..=2380, &["10.10.0.12", "10.10.0.13"], AT_FIRST),
    // every node: the kubelet, from both addresses of the other control planes
    ("tcp", 10250..=10250, BESIDE_FIRST, AT_FIRST),
    // every node: flannel's VXLAN, from both addresses of the others
    ("udp", 8472..=8472, BESIDE_FIRST, &[]),
    ("udp", 8472..=8472, WORKER, &[]),
];

/// The openings of the second one, which is a standby and serves no bundles.
const ON_SECOND: &[Row] = &[
    ("tcp", MASTER..=MASTER, CONTROL_PLANE, AT_SECOND),
    // control-plane, as on the first one
    ("tcp", 6443..=6443, CONTROL_PLANE, API_OF_SECOND),
    ("tcp", 6443..=6443, BESIDE_SECOND, API_OF_SECOND),
    ("tcp", 6443..=6443, WORKER, API_OF_SECOND),
    ("tcp", 6443..=6443, &[PODS], API_OF_SECOND),
    // etcd
    ("tcp", 2379..=2380, &["10.10.0.11", "10.10.0.13"], AT_SECOND),
    // every node
    ("tcp", 10250..=10250, BESIDE_SECOND, AT_SECOND),
    ("udp", 8472..=8472, BESIDE_SECOND, &[]),
    ("udp", 8472..=8472, WORKER, &[]),
];

/// The openings of the worker.
const ON_WORKER: &[Row] = &[
    // every node, from both addresses of all control planes
    ("tcp", 10250..=10250, FIRST, AT_WORKER),
    ("tcp", 10250..=10250, BESIDE_FIRST, AT_WORKER),
    ("udp", 8472..=8472, FIRST, &[]),
    ("udp", 8472..=8472, BESIDE_FIRST, &[]),
];

impl Table {
    /// The table of a host of the site of three control planes, without a NodePort.
    pub fn of_three(host: &str) -> Result<Self> {
        match host {
            "cp-1" => Self::of_rows(ON_FIRST, None),
            "cp-2" => Self::of_rows(ON_SECOND, None),
            "worker-1" => Self::of_rows(ON_WORKER, None),
            other => bail!("the tables of three control planes have no host {other}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Arrival, SSH};
    use super::*;

    fn arrival(from: &str, to: &str) -> Arrival {
        Arrival {
            from: from.parse().unwrap(),
            to: to.parse().unwrap(),
            from_pod: false,
            from_pod_of_another: false,
        }
    }

    fn tcp(host: &str, from: &str, to: &str) -> Vec<u16> {
        let table = Table::of_three(host).unwrap();
        table.tcp(arrival(from, to)).into_iter().collect()
    }

    fn udp(host: &str, from: &str, to: &str) -> Vec<u16> {
        let table = Table::of_three(host).unwrap();
        table.udp(arrival(from, to)).into_iter().collect()
    }

    #[test]
    fn members_of_etcd_see_each_other_and_no_other_host_sees_them() {
        let plane = "10.10.0.11";
        let first = |from: &str| tcp("cp-1", from, plane);
        assert_eq!(
            first("10.10.0.12"),
            [SSH, 2379, 2380, 4550, 4551, 6443, 10250]
        );
        assert_eq!(first("10.10.1.14"), [SSH, 4550, 4551, 6443]);
        assert_eq!(first("10.10.0.200"), [SSH, 4550, 4551, 6443]);
        assert_eq!(first("10.20.0.200"), [SSH]);
        assert_eq!(tcp("cp-1", "10.10.0.200", "10.10.0.100"), [SSH, 6443]);
        assert_eq!(tcp("cp-1", "10.20.0.14", "10.20.0.11"), [SSH]);
        assert_eq!(udp("cp-1", "10.20.0.14", "10.20.0.11"), [8472]);
        assert!(udp("cp-1", "10.20.0.200", "10.20.0.11").is_empty());
    }

    #[test]
    fn a_standby_opens_the_port_of_the_master_and_no_bundle_server() {
        let plane = "10.10.0.12";
        let second = |from: &str| tcp("cp-2", from, plane);
        assert_eq!(second("10.10.0.11"), [SSH, 2379, 2380, 4550, 6443, 10250]);
        assert_eq!(second("10.10.1.14"), [SSH, 4550, 6443]);
        assert_eq!(second("10.10.0.200"), [SSH, 4550, 6443]);
        assert_eq!(second("10.20.0.200"), [SSH]);
        assert_eq!(udp("cp-2", "10.20.0.14", "10.20.0.12"), [8472]);
    }

    #[test]
    fn control_planes_alone_see_the_kubelet_of_the_worker() {
        for from in ["10.10.0.11", "10.10.0.12", "10.20.0.13"] {
            assert_eq!(tcp("worker-1", from, "10.10.1.14"), [SSH, 10250]);
            assert_eq!(udp("worker-1", from, "10.10.1.14"), [8472]);
        }
        assert_eq!(tcp("worker-1", "10.20.0.11", "10.20.0.14"), [SSH]);
        assert_eq!(tcp("worker-1", "10.10.0.200", "10.10.1.14"), [SSH]);
        assert!(udp("worker-1", "10.20.0.200", "10.20.0.14").is_empty());
    }
}
