//! The reports that minions send with their grains, for the problems in `ctl status`.

use std::collections::BTreeMap;

use halite_proto::ids::MinionId;
use halite_store::Facts;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The reports of one kind, by host; hosts without a grain of this name are left out.
pub(super) fn of_kind<'a, T: DeserializeOwned>(
    facts: &'a BTreeMap<MinionId, Facts>,
    grain: &'a str,
) -> impl Iterator<Item = (&'a MinionId, T)> {
    facts.iter().filter_map(move |(host, facts)| {
        let mut grains: Value = serde_json::from_str(&facts.grains_json).ok()?;
        let report = grains.get_mut(grain)?.take();
        Some((host, serde_json::from_value(report).ok()?))
    })
}

/// The facts of a host with these grains.
#[cfg(test)]
pub(super) fn facts(host: &str, grains: &Value) -> (MinionId, Facts) {
    let facts = Facts {
        minion: halite_core::names::minion(host),
        grains_json: grains.to_string(),
        version: String::new(),
        last_seen: 0,
    };
    (halite_core::names::minion(host), facts)
}
