//! `firewalld.ipsets`: sets of addresses, compared in the permanent and in the running
//! configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use super::{Failure, Plan, fail};
use crate::host::Host;
use crate::host::effect::{Effect, FirewallChange, IpsetSettings};

/// firewalld's type of a set of single addresses.
const ADDRESSES: &str = "hash:ip";

pub(super) async fn ipsets(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let wanted = wanted(chunk)?;
    let mut changes = Map::new();
    let mut sets = BTreeMap::new();
    for (name, wanted) in wanted {
        let view = host.firewall_ipset(&name).await?;
        let mut change = Map::new();
        for (configuration, found) in [("permanent", &view.permanent), ("runtime", &view.runtime)] {
            let differs = differences(found.as_ref(), &wanted);
            if !differs.is_empty() {
                change.insert(configuration.into(), Value::Object(differs));
            }
        }
        if !change.is_empty() {
            changes.insert(name.clone(), Value::Object(change));
            sets.insert(name, wanted);
        }
    }
    if changes.is_empty() {
        return Ok(Plan::nothing("The sets are in the correct state"));
    }
    let names = sets.keys().cloned().collect::<Vec<_>>().join(", ");
    Ok(Plan::change(
        changes,
        vec![Effect::Firewall(FirewallChange::Ipsets { sets })],
        format!("firewalld sets {names} would be changed"),
        format!("firewalld sets {names} were changed"),
    ))
}

fn wanted(chunk: &Chunk) -> Result<BTreeMap<String, IpsetSettings>, Failure> {
    let Some(Value::Object(sets)) = Args::new(chunk).any("sets") else {
        return fail(format!(
            "{}: `sets` must be a mapping of names to lists of addresses",
            chunk.function()
        ));
    };
    let one = |(name, entries): (&String, &Value)| {
        let entries: Option<BTreeSet<String>> = entries.as_array().and_then(|entries| {
            let address = |entry: &Value| {
                let address: Ipv4Addr = entry.as_str()?.parse().ok()?;
                Some(address.to_string())
            };
            entries.iter().map(address).collect()
        });
        let Some(entries) = entries else {
            return fail(format!(
                "{}: `sets.{name}` must be a list of IPv4 addresses",
                chunk.function()
            ));
        };
        let settings = IpsetSettings {
            kind: ADDRESSES.to_owned(),
            options: BTreeMap::new(),
            entries: entries.into_iter().collect(),
        };
        Ok((name.clone(), settings))
    };
    sets.iter().map(one).collect()
}

fn differences(found: Option<&IpsetSettings>, wanted: &IpsetSettings) -> Map<String, Value> {
    let mut changes = Map::new();
    if found.is_none() {
        changes.insert("new".into(), json!(true));
    }
    let entries = |set: Option<&IpsetSettings>| -> BTreeSet<String> {
        set.map(|set| set.entries.iter().cloned().collect())
            .unwrap_or_default()
    };
    let (old, new) = (entries(found), entries(Some(wanted)));
    for (word, mut list) in [
        ("added", new.difference(&old).peekable()),
        ("removed", old.difference(&new).peekable()),
    ] {
        if list.peek().is_some() {
            changes.insert(word.into(), json!(list.collect::<Vec<_>>()));
        }
    }
    if let Some(found) = found {
        if found.kind != wanted.kind {
            changes.insert(
                "type".into(),
                json!({"old": found.kind, "new": wanted.kind}),
            );
        }
        if found.options != wanted.options {
            changes.insert(
                "options".into(),
                json!({"old": found.options, "new": wanted.options}),
            );
        }
    }
    changes
}
