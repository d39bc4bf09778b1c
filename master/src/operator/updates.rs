//! Rolled-back updates of minions, in `ctl status`. Minions report them with their grains.

use std::collections::BTreeMap;

use halite_host_reports::update::{GRAIN, Reverted};
use halite_proto::ids::MinionId;
use halite_store::Facts;

use super::reports;

/// The problems of hosts that run the previous minion.
pub(super) fn problems(facts: &BTreeMap<MinionId, Facts>) -> Vec<String> {
    reports::of_kind(facts, GRAIN)
        .map(|(host, reverted): (_, Reverted)| problem(host, &reverted))
        .collect()
}

fn problem(host: &MinionId, reverted: &Reverted) -> String {
    let program: String = reverted.program.chars().take(12).collect();
    format!(
        "the update of halite-minion on {host} was rolled back: the program with the SHA-256 {program}… did not reach the master \
         within {} s (its unit was `{}`), so the previous one runs again; `journalctl -u halite-minion` on {host} shows why. \
         `ctl highstate {host}` retries it",
        reverted.seconds, reverted.unit
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::reports::facts;
    use super::*;

    #[test]
    fn an_update_that_was_taken_back_is_a_problem() {
        let update = json!({"minion_update": {"time": 1, "program": "0123456789abcdef", "seconds": 60, "unit": "activating"}});
        let known = BTreeMap::from([facts("a", &json!({})), facts("b", &update)]);
        let problems = problems(&known);
        assert_eq!(problems.len(), 1, "{problems:?}");
        for part in [
            "on b was rolled back",
            "0123456789ab…",
            "within 60 s",
            "`activating`",
        ] {
            assert!(problems[0].contains(part), "{problems:?}");
        }
    }
}
