//! Kills: after any process dies in the middle of a command, running the same command again ends in
//! the same state.
//!
//! Each kill is a boundary of a command: a victim, and a moment. While a finished host is repaired,
//! the moment is the repair of one of the prepared damages; while a new host is added or
//! bootstrapped, it is one of the listed write boundaries. One run of the command is interrupted at
//! one boundary after the other.

mod adding;
mod bootstrapping;
pub(crate) mod commands;
pub(crate) mod jobs;
pub(crate) mod moments;
mod pending_triggers;
mod power;
mod registered;
mod repairing;
mod scene;
pub(crate) mod series;

use halite_lab::cluster::Cluster;

use crate::test::{Case, Test, cases};

pub(crate) use commands::{ended, spawn};
pub(crate) use power::while_off;
pub(crate) use registered::{master_answers, once};

const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "kills: the pending triggers of a killed minion fire in the next run",
        run: pending_triggers::done_later,
    },
    Test {
        name: "kills: a worker comes back from a power cut by itself",
        run: power::worker,
    },
    Test {
        name: "kills: the control plane comes back from a power cut by itself",
        run: power::bootstrap,
    },
];

// The tests that remove the worker for a while are last: after a failure the cluster is not in the
// state that the others expect.
pub(super) fn tests() -> Vec<Case<Cluster>> {
    let mut all = cases(TESTS);
    all.extend(repairing::tests());
    all.extend(adding::tests());
    all.extend(bootstrapping::tests());
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_test_has_a_name_of_its_own() {
        let all = tests();
        let names: BTreeSet<&str> = all.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), all.len());
    }
}
