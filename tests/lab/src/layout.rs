//! Layouts of clusters: names, roles, networks and inotify cost of the hosts, and the order in
//! which they join.

use std::path::PathBuf;

use anyhow::{Context as _, Result};

use crate::capacity;
use crate::host::Spec;
use crate::net::Network;
use crate::role::Role;

/// One host of a layout.
#[derive(Debug)]
pub struct LayoutHost {
    /// Host name.
    pub name: &'static str,
    /// Host number in each of its networks.
    pub number: u8,
    /// Its control-plane network; every host is in the workload network too.
    pub network: Network,
    /// Its roles.
    pub roles: &'static [Role],
    /// Inotify instances that it takes once everything is installed.
    pub inotify: usize,
}

impl LayoutHost {
    /// The parameters of its host, with the directories that the operator carried to it, read-only.
    #[must_use]
    pub fn spec(&self, read_only: Vec<(PathBuf, PathBuf)>) -> Spec {
        Spec {
            name: self.name.to_owned(),
            number: self.number,
            second_network: self.network == Network::ControlPlane1,
            read_only,
            inotify: self.inotify,
            roles: self.roles.to_vec(),
            base: None,
        }
    }

    /// Returns whether the host has a control plane.
    #[must_use]
    pub fn is_control_plane(&self) -> bool {
        self.roles.contains(&Role::ControlPlane)
    }
}

/// The hosts of a cluster.
#[derive(Debug)]
pub struct Layout {
    /// Its name.
    pub name: &'static str,
    /// The hosts; the first is bootstrapped.
    pub hosts: &'static [LayoutHost],
    /// The hosts that join it, in groups of equal roles that are added with one command.
    pub joins: &'static [&'static [&'static str]],
}

const CONTROL_PLANE: &[Role] = &[Role::ControlPlane, Role::Etcd];

/// The two hosts of the demonstration and of most suites.
pub const TWO: Layout = Layout {
    name: "two",
    hosts: &[
        LayoutHost {
            name: "bootstrap-1",
            number: 11,
            network: Network::ControlPlane0,
            roles: CONTROL_PLANE,
            inotify: capacity::CONTROL_PLANE,
        },
        LayoutHost {
            name: "worker-1",
            number: 12,
            network: Network::ControlPlane1,
            roles: &[Role::Worker],
            inotify: capacity::WORKER,
        },
    ],
    joins: &[&["worker-1"]],
};

/// Three control planes in the network of the VIP, and a worker in the other one. The machine has
/// room for it only while no other cluster runs.
pub const HA: Layout = Layout {
    name: "ha",
    hosts: &[
        LayoutHost {
            name: "cp-1",
            number: 11,
            network: Network::ControlPlane0,
            roles: CONTROL_PLANE,
            inotify: capacity::CONTROL_PLANE,
        },
        LayoutHost {
            name: "cp-2",
            number: 12,
            network: Network::ControlPlane0,
            roles: CONTROL_PLANE,
            inotify: capacity::CONTROL_PLANE,
        },
        LayoutHost {
            name: "cp-3",
            number: 13,
            network: Network::ControlPlane0,
            roles: CONTROL_PLANE,
            inotify: capacity::CONTROL_PLANE,
        },
        LayoutHost {
            name: "worker-1",
            number: 14,
            network: Network::ControlPlane1,
            roles: &[Role::Worker],
            inotify: capacity::WORKER,
        },
    ],
    joins: &[&["cp-2", "cp-3"], &["worker-1"]],
};

/// A control plane and two workers in one network: the hosts of the tutorial.
pub const THREE: Layout = Layout {
    name: "three",
    hosts: &[
        LayoutHost {
            name: "cp-1",
            number: 11,
            network: Network::ControlPlane0,
            roles: CONTROL_PLANE,
            inotify: capacity::CONTROL_PLANE,
        },
        LayoutHost {
            name: "worker-1",
            number: 12,
            network: Network::ControlPlane0,
            roles: &[Role::Worker],
            inotify: capacity::WORKER,
        },
        LayoutHost {
            name: "worker-2",
            number: 13,
            network: Network::ControlPlane0,
            roles: &[Role::Worker],
            inotify: capacity::WORKER,
        },
    ],
    joins: &[&["worker-1", "worker-2"]],
};

/// A control plane and three workers, which are in the other network and join together.
pub const WORKERS: Layout = Layout {
    name: "workers",
    hosts: &[
        LayoutHost {
            name: "cp-1",
            number: 11,
            network: Network::ControlPlane0,
            roles: CONTROL_PLANE,
            inotify: capacity::CONTROL_PLANE,
        },
        LayoutHost {
            name: "worker-1",
            number: 12,
            network: Network::ControlPlane1,
            roles: &[Role::Worker],
            inotify: capacity::WORKER,
        },
        LayoutHost {
            name: "worker-2",
            number: 13,
            network: Network::ControlPlane1,
            roles: &[Role::Worker],
            inotify: capacity::WORKER,
        },
        LayoutHost {
            name: "worker-3",
            number: 14,
            network: Network::ControlPlane1,
            roles: &[Role::Worker],
            inotify: capacity::WORKER,
        },
    ],
    joins: &[&["worker-1", "worker-2", "worker-3"]],
};

/// All layouts.
pub const ALL: [&Layout; 4] = [&TWO, &HA, &THREE, &WORKERS];

impl Layout {
    /// The names of its hosts, in their order.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.hosts.iter().map(|member| member.name).collect()
    }

    /// One host by name.
    pub fn member(&self, name: &str) -> Result<&'static LayoutHost> {
        self.hosts
            .iter()
            .find(|member| member.name == name)
            .with_context(|| {
                format!(
                    "the layout {} has no host {name:?}; it has: {}",
                    self.name,
                    self.names().join(", ")
                )
            })
    }

    /// Inotify instances of all its hosts.
    #[must_use]
    pub fn inotify(&self) -> usize {
        self.hosts.iter().map(|member| member.inotify).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::resolver;

    #[test]
    fn no_two_hosts_of_a_layout_have_the_same_name_or_number() {
        for layout in ALL {
            let names: BTreeSet<_> = layout.names().into_iter().collect();
            let numbers: BTreeSet<_> = layout.hosts.iter().map(|member| member.number).collect();
            assert_eq!(names.len(), layout.hosts.len(), "{}", layout.name);
            assert_eq!(numbers.len(), layout.hosts.len(), "{}", layout.name);
            // The router, the VIP, and the stranger of the firewall suite.
            assert!(numbers.is_disjoint(&BTreeSet::from([1, 100, 200])));
        }
    }

    #[test]
    fn all_control_planes_share_the_network_of_the_vip() {
        for layout in ALL {
            assert!(layout.hosts[0].is_control_plane(), "{}", layout.name);
            for member in layout.hosts.iter().filter(|m| m.is_control_plane()) {
                assert_eq!(member.network, Network::ControlPlane0, "{}", member.name);
            }
        }
    }

    #[test]
    fn hosts_that_join_together_exist_and_have_equal_roles() {
        for layout in ALL {
            for group in layout.joins {
                let roles: Vec<_> = group
                    .iter()
                    .map(|name| layout.member(name).unwrap().roles)
                    .collect();
                assert!(roles.windows(2).all(|pair| pair[0] == pair[1]), "{group:?}");
                assert!(!group.contains(&layout.hosts[0].name));
            }
        }
    }

    #[test]
    fn the_resolver_expects_all_host_names() {
        for name in ALL.iter().flat_map(|layout| layout.names()) {
            assert!(resolver::expected(name), "{name}");
        }
    }

    #[test]
    fn the_sites_of_the_suites_keep_their_names_and_the_ha_site_has_four_hosts() {
        assert_eq!(TWO.names(), ["bootstrap-1", "worker-1"]);
        assert_eq!(HA.names(), ["cp-1", "cp-2", "cp-3", "worker-1"]);
        assert_eq!((TWO.inotify(), HA.inotify()), (51, 113));
        assert_eq!(WORKERS.inotify(), 91);
        let error = HA.member("cp-4").unwrap_err().to_string();
        assert!(error.ends_with("cp-1, cp-2, cp-3, worker-1"), "{error}");
    }

    #[test]
    fn the_parameters_of_a_host_follow_from_its_member() {
        let spec = HA.member("worker-1").unwrap().spec(Vec::new());
        assert!(spec.second_network && spec.number == 14);
        assert_eq!(spec.roles, [Role::Worker]);
        assert!(!HA.hosts[1].spec(Vec::new()).second_network);
    }
}
