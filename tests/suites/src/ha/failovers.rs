//! The hundred failovers of `--full`: five are in each run, as separate tests.

use halite_lab::cluster::Cluster;

use super::{losses, reboot};
use crate::test::{Case, Run};

/// The number of failovers in each run: API server, keepalived, power, reboot, proxies.
const EACH_RUN: usize = 5;
const ALL: usize = 100;

/// The kinds, in turn.
const KINDS: [(&str, Run<Cluster>); 4] = [
    ("killed API server", losses::of_the_api_server),
    ("killed keepalived", losses::of_keepalived),
    ("power cut", losses::of_power),
    ("reboot", reboot::of_the_holder),
];

/// The failovers beyond those of each run.
pub(super) fn numbered() -> Vec<Case<Cluster>> {
    let further = (EACH_RUN + 1..=ALL).zip(KINDS.iter().cycle());
    further
        .map(|(number, (kind, run))| Case::new(format!("ha: failover {number}, {kind}"), run))
        .collect()
}
