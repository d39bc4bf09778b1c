//! Updates of minions that were taken back, in `ctl status`. Minions send what they find with their
//! grains.

use std::collections::BTreeMap;

use halite_host_reports::update::{GRAIN, Reverted};
use halite_proto::ids::MinionId;
use serde_json::Value;

use crate::store::Facts;

/// The problems of hosts that run the minion of before.
pub(super) fn problems(facts: &BTreeMap<MinionId, Facts>) -> Vec<String> {
    let reverted = facts.iter().filter_map(|(host, facts)| {
        let grains: Value = serde_json::from_str(&facts.grains_json).ok()?;
        let reverted: Reverted = serde_json::from_value(grains[GRAIN].clone()).ok()?;
        Some(problem(host, &reverted))
    });
    reverted.collect()
}

fn problem(host: &MinionId, reverted: &Reverted) -> String {
    let program: String = reverted.program.chars().take(12).collect();
    format!(
        "the update of halite-minion on {host} was taken back: the program with the SHA-256 {program}… did not reach the master \
         within {} s (its unit was `{}`), so that the one before runs again; `journalctl -u halite-minion` on {host} says why. \
         `ctl highstate {host}` tries it again",
        reverted.seconds, reverted.unit
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::names::minion;

    #[test]
    fn an_update_that_was_taken_back_is_a_problem() {
        let facts = |host: &str, grains: &Value| {
            let facts = Facts {
                minion: minion(host),
                grains_json: grains.to_string(),
                version: String::new(),
                last_seen: 0,
            };
            (minion(host), facts)
        };
        let update = json!({"minion_update": {"time": 1, "program": "0123456789abcdef", "seconds": 60, "unit": "activating"}});
        let known = BTreeMap::from([facts("a", &json!({})), facts("b", &update)]);
        let problems = problems(&known);
        assert_eq!(problems.len(), 1, "{problems:?}");
        for part in [
            "on b was taken back",
            "0123456789ab…",
            "within 60 s",
            "`activating`",
        ] {
            assert!(problems[0].contains(part), "{problems:?}");
        }
    }
}
