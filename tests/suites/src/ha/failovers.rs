//! The hundred failovers of `--full`: five are in each run, as tests of their own.

use halite_lab::cluster::Cluster;

use super::{losses, reboot};
use crate::test::{Case, Run};

/// The number of those that each run has: API server, keepalived, power, reboot, proxies.
const EACH_RUN: usize = 5;
const ALL: usize = 100;

/// The kinds, in turns.
const KINDS: [(&str, Run<Cluster>); 4] = [
    ("killed API server", losses::of_the_api_server),
    ("killed keepalived", losses::of_keepalived),
    ("power cut", losses::of_power),
    ("reboot", reboot::of_the_holder),
];

/// Those beyond the ones of each run.
pub(super) fn numbered() -> Vec<Case<Cluster>> {
    let further = (EACH_RUN + 1..=ALL).zip(KINDS.iter().cycle());
    further
        .map(|(number, (kind, run))| Case::new(format!("ha: failover {number}, {kind}"), run))
        .collect()
}
