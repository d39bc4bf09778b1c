//! `firewalld.*`: zones and policies, compared in the permanent and in the running configuration.

use std::collections::BTreeSet;

use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use super::{Failure, Plan};
use crate::host::effect::{Effect, FirewallChange, FirewallSettings};
use crate::host::{FirewallView, Host};

/// Prefix of Halite's own zones and policies; all others are foreign and are never touched.
const OWN: &str = "halite-";

fn settings(args: &Args<'_>, target: &str) -> Result<FirewallSettings, Failure> {
    Ok(FirewallSettings {
        description: args.text("description")?.unwrap_or_default(),
        target: args.text("target")?.unwrap_or_else(|| target.to_owned()),
        services: args.list("services")?,
        ports: args.list("ports")?,
        protocols: args.list("protocols")?,
        sources: args.list("sources")?,
        interfaces: args.list("interfaces")?,
        rich_rules: args.list("rich_rules")?,
        masquerade: args.flag("masquerade", false)?,
        forward: args.flag("forward", false)?,
        ingress_zones: args.list("ingress_zones")?,
        egress_zones: args.list("egress_zones")?,
        priority: None,
    })
}

pub(super) async fn zone(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let wanted = settings(&Args::new(chunk), "default")?;
    let view = host.firewall_zone(&chunk.name).await?;
    let change = FirewallChange::Zone {
        name: chunk.name.clone(),
        settings: wanted.clone(),
    };
    Ok(plan("zone", &chunk.name, &view, &wanted, change))
}

pub(super) async fn policy(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let mut wanted = settings(&args, "CONTINUE")?;
    wanted.priority = Some(args.number("priority")?.unwrap_or(-1));
    let view = host.firewall_policy(&chunk.name).await?;
    let change = FirewallChange::Policy {
        name: chunk.name.clone(),
        settings: wanted.clone(),
    };
    Ok(plan("policy", &chunk.name, &view, &wanted, change))
}

fn plan(
    what: &str,
    name: &str,
    view: &FirewallView,
    wanted: &FirewallSettings,
    change: FirewallChange,
) -> Plan {
    let mut changes = Map::new();
    for (configuration, found) in [("permanent", &view.permanent), ("runtime", &view.runtime)] {
        let differs = differences(found.as_ref(), wanted);
        // A description has no effect: the running firewall may have an old one.
        let only_words =
            configuration == "runtime" && differs.keys().eq(["description"]) && found.is_some();
        if !differs.is_empty() && !only_words {
            changes.insert(configuration.into(), Value::Object(differs));
        }
    }
    if changes.is_empty() {
        return Plan::nothing(format!("firewalld {what} {name} is in the correct state"));
    }
    Plan::change(
        changes,
        vec![Effect::Firewall(change)],
        format!("firewalld {what} {name} would be changed"),
        format!("firewalld {what} {name} was changed"),
    )
}

/// By setting: added and removed items (lists), or old and new value (others).
fn differences(found: Option<&FirewallSettings>, wanted: &FirewallSettings) -> Map<String, Value> {
    let mut changes = Map::new();
    let nothing = FirewallSettings::default();
    if found.is_none() {
        changes.insert("new".into(), json!(true));
    }
    let old = found.unwrap_or(&nothing);
    for (key, old, new) in [
        ("services", &old.services, &wanted.services),
        ("ports", &old.ports, &wanted.ports),
        ("protocols", &old.protocols, &wanted.protocols),
        ("sources", &old.sources, &wanted.sources),
        ("interfaces", &old.interfaces, &wanted.interfaces),
        ("rich_rules", &old.rich_rules, &wanted.rich_rules),
        ("ingress_zones", &old.ingress_zones, &wanted.ingress_zones),
        ("egress_zones", &old.egress_zones, &wanted.egress_zones),
    ] {
        let (old, new): (BTreeSet<String>, BTreeSet<String>) = (
            old.iter().map(|v| normal(v)).collect(),
            new.iter().map(|v| normal(v)).collect(),
        );
        let mut change = Map::new();
        for (word, list) in [
            ("added", new.difference(&old)),
            ("removed", old.difference(&new)),
        ] {
            let list: Vec<&String> = list.collect();
            if !list.is_empty() {
                change.insert(word.into(), json!(list));
            }
        }
        if !change.is_empty() {
            changes.insert(key.into(), Value::Object(change));
        }
    }
    for (key, old, new) in [
        (
            "description",
            json!(old.description),
            json!(wanted.description),
        ),
        ("target", json!(old.target), json!(wanted.target)),
        (
            "masquerade",
            json!(old.masquerade),
            json!(wanted.masquerade),
        ),
        ("forward", json!(old.forward), json!(wanted.forward)),
        ("priority", json!(old.priority), json!(wanted.priority)),
    ] {
        if old != new {
            changes.insert(key.into(), json!({"old": old, "new": new}));
        }
    }
    changes
}

/// A normalised item, so that two spellings of the same rule are equal: firewalld prints rich rules
/// with its own quotes and blanks.
fn normal(item: &str) -> String {
    item.replace(['"', '\''], "")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

pub(super) async fn owned(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let found = host.firewall_names().await?;
    let surplus = |found: Vec<String>, kept: &str| -> Result<Vec<String>, Failure> {
        let kept = args.list(kept)?;
        let ours = found
            .into_iter()
            .filter(|name| name.starts_with(OWN) && !kept.contains(name));
        Ok(ours.collect())
    };
    let (zones, policies, ipsets) = (
        surplus(found.zones, "zones")?,
        surplus(found.policies, "policies")?,
        surplus(found.ipsets, "ipsets")?,
    );
    let mut removed = Map::new();
    for (key, names) in [
        ("zones", &zones),
        ("policies", &policies),
        ("ipsets", &ipsets),
    ] {
        if !names.is_empty() {
            removed.insert(key.into(), json!(names));
        }
    }
    if removed.is_empty() {
        return Ok(Plan::nothing(
            "There are no other zones, policies and sets of ours",
        ));
    }
    // Policies first: they refer to zones, and both to sets.
    let policies = policies
        .into_iter()
        .map(|name| FirewallChange::RemovePolicy { name });
    let zones = zones
        .into_iter()
        .map(|name| FirewallChange::RemoveZone { name });
    let ipsets = ipsets
        .into_iter()
        .map(|name| FirewallChange::RemoveIpset { name });
    let effects = policies.chain(zones).chain(ipsets);
    Ok(Plan::change(
        Map::from_iter([("removed".to_owned(), Value::Object(removed))]),
        effects.map(Effect::Firewall).collect(),
        "Zones, policies and sets that are no longer wanted would be removed",
        "Zones, policies and sets that were no longer wanted were removed",
    ))
}
