//! Leftovers and changes of other programs on a host: a former pod network, `/etc/hosts` at boot, a
//! reload of firewalld; the volumes that leave with a host; and a host that is added over SSH.

mod boot;
mod claims;
mod host_ports;
mod leftovers;
mod over_ssh;

use halite_lab::cluster::Cluster;

use crate::test::Test;

/// Tests of `--full`. Each leaves the cluster unchanged.
pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "hosts: host ports of running pods survive a new zone and a reload of firewalld, and are removed with their pod",
        run: host_ports::stay,
    },
    Test {
        name: "hosts: the names of the cluster are restored after a boot that has rewritten /etc/hosts",
        run: boot::names_are_back,
    },
    Test {
        name: "hosts: a claim whose volume leaves with its host is named, and its host stays without --force",
        run: claims::are_named,
    },
    Test {
        name: "hosts: leftovers of another pod network are refused, and the commands of the report remove them",
        run: leftovers::are_refused,
    },
    Test {
        name: "hosts: a host of a list is added over SSH once its key is known",
        run: over_ssh::is_added,
    },
];
