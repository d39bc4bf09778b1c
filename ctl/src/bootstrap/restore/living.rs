//! The parts of a cluster that still run on hosts other than the restored one.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use halite_pillar::node::Node;
use halite_pillar::role::Role;
use halite_pillar::view::{API_PORT, MASTER_PORT};

/// The port on which members of etcd reach each other.
const PEER_PORT: u16 = 2380;
/// Time for a host in the same network to answer.
const ANSWER: Duration = Duration::from_secs(1);

/// A part of the cluster on another host, with the port at which it answers while it runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LivingPart {
    what: &'static str,
    host: String,
    address: Ipv4Addr,
    port: u16,
}

impl fmt::Display for LivingPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            host,
            address,
            port,
        } = self;
        write!(f, "the {what} on {host} answers at {address}:{port}")
    }
}

/// The parts that these hosts may run: members of etcd wherever etcd is placed, control planes, and
/// the master or a standby that may have taken its place: both have data newer than the backup.
pub(super) fn possible(hosts: &[&Node]) -> Vec<LivingPart> {
    let mut parts = Vec::new();
    for node in hosts {
        let Some(address) = node.control_plane() else {
            continue;
        };
        let mut add = |what, port| {
            parts.push(LivingPart {
                what,
                host: node.metadata.name.to_string(),
                address,
                port,
            });
        };
        if node.has(Role::Etcd) {
            add("member of etcd", PEER_PORT);
        }
        if node.has(Role::ControlPlane) {
            add("API server", API_PORT);
            add("master or standby", MASTER_PORT);
        }
    }
    parts
}

/// The parts that answer. All are tried in parallel, because a host that is off takes the whole
/// timeout.
pub(super) fn living(
    parts: Vec<LivingPart>,
    answers: impl Fn(Ipv4Addr, u16) -> bool + Sync,
) -> Vec<LivingPart> {
    let answers = &answers;
    std::thread::scope(|scope| {
        let asked: Vec<_> = parts
            .into_iter()
            .map(|part| scope.spawn(move || answers(part.address, part.port).then_some(part)))
            .collect();
        let answered = asked.into_iter().filter_map(|asks| asks.join().ok());
        answered.flatten().collect()
    })
}

/// Returns whether a host accepts connections at a port.
pub(super) fn answers(address: Ipv4Addr, port: u16) -> bool {
    TcpStream::connect_timeout(&SocketAddr::from((address, port)), ANSWER).is_ok()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn host(name: &str, last: u8, roles: &[Role]) -> Node {
        Node::new(name, Some([10, 0, 0, last].into()), roles)
    }

    fn texts(parts: &[LivingPart]) -> Vec<String> {
        parts.iter().map(ToString::to_string).collect()
    }

    /// With an external etcd, or with etcd on dedicated hosts, a control plane is not a member.
    #[test]
    fn control_planes_and_members_are_asked_wherever_etcd_is() {
        let plane = host("cp-2", 2, &[Role::ControlPlane]);
        let stacked = host("cp-3", 3, &[Role::ControlPlane, Role::Etcd]);
        let member = host("etcd-1", 4, &[Role::Etcd]);
        let worker = host("worker-1", 5, &[Role::Worker]);
        let unknown = Node::new("cp-9", None, &[Role::ControlPlane]);
        let asked = possible(&[&plane, &stacked, &member, &worker, &unknown]);
        assert_eq!(
            texts(&asked),
            [
                "the API server on cp-2 answers at 10.0.0.2:6443",
                "the master or standby on cp-2 answers at 10.0.0.2:4550",
                "the member of etcd on cp-3 answers at 10.0.0.3:2380",
                "the API server on cp-3 answers at 10.0.0.3:6443",
                "the master or standby on cp-3 answers at 10.0.0.3:4550",
                "the member of etcd on etcd-1 answers at 10.0.0.4:2380",
            ]
        );
    }

    #[test]
    fn each_part_that_answers_is_named() {
        let plane = host("cp-2", 2, &[Role::ControlPlane]);
        let parts = possible(&[&plane]);
        let alive = living(parts.clone(), |_, port| port == API_PORT);
        assert_eq!(alive, parts[..1]);
        assert_eq!(living(parts.clone(), |_, _| false), []);
        assert_eq!(living(parts.clone(), |_, _| true), parts);
    }

    #[test]
    fn a_port_that_is_open_answers() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        assert!(answers(Ipv4Addr::LOCALHOST, port));
        drop(listener);
        assert!(!answers(Ipv4Addr::LOCALHOST, port));
    }
}
