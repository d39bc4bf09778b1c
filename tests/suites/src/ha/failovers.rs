//! The hundred failovers of `--full`: five have tests of their own, and the others are numbered.

use halite_lab::cluster::Cluster;

use super::{losses, reboot};
use crate::test::{Case, Run};

/// The number of failovers with tests of their own: API server, keepalived, power, reboot, proxies.
const OWN_TESTS: usize = 5;
const ALL: usize = 100;

/// The kinds, in turn.
const KINDS: [(&str, Run<Cluster>); 4] = [
    ("killed API server", losses::of_the_api_server),
    ("killed keepalived", losses::of_keepalived),
    ("power cut", losses::of_power),
    ("reboot", reboot::of_the_holder),
];

/// The failovers without tests of their own.
pub(super) fn numbered() -> Vec<Case<Cluster>> {
    let further = (OWN_TESTS + 1..=ALL).zip(KINDS.iter().cycle());
    further
        .map(|(number, (kind, run))| Case::new(format!("ha: failover {number}, {kind}"), run))
        .collect()
}
