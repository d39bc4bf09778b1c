//! `firewalld.*`: zones and policies, compared in the permanent and in the running configuration.

use std::collections::{BTreeMap, BTreeSet};

use halite_errors::chain;
use halite_states::args::Args;
use halite_states::firewall::{self, FirewallSyntaxError};
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use super::{Failure, Plan, failure};
use crate::host::effect::{Effect, FirewallChange, FirewallSettings};
use crate::host::{FirewallView, Host};

/// Prefix of Halite's own zones and policies; all others are foreign and are never touched.
const OWN: &str = "halite-";

fn settings(args: &Args<'_>, target: &str) -> Result<FirewallSettings, Failure> {
    let refused = |error: FirewallSyntaxError| failure(chain(&error));
    let sources = args.list("sources")?;
    let sources = sources.iter().map(|source| firewall::source(source));
    let mut rules = BTreeMap::new();
    for rule in args.list("rich_rules")? {
        rules
            .entry(firewall::rich_rule(&rule).map_err(refused)?)
            .or_insert(rule);
    }
    Ok(FirewallSettings {
        description: args.text("description")?.unwrap_or_default(),
        target: args.text("target")?.unwrap_or_else(|| target.to_owned()),
        services: args.list("services")?,
        ports: firewall::ports(&args.list("ports")?).map_err(refused)?,
        protocols: args.list("protocols")?,
        sources: sources.collect::<Result<_, _>>().map_err(refused)?,
        interfaces: args.list("interfaces")?,
        rich_rules: rules.into_values().collect(),
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
        let (old, new) = (normal(key, old), normal(key, new));
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

/// The items of a setting in one spelling: firewalld stores rich rules in its own form. Items that
/// it would not take stay as they are.
fn normal(key: &str, items: &[String]) -> BTreeSet<String> {
    let one = |item: &String| match key {
        "sources" => firewall::source(item).unwrap_or_else(|_| item.clone()),
        "rich_rules" => firewall::rich_rule(item).unwrap_or_else(|_| item.clone()),
        _ => item.clone(),
    };
    match firewall::ports(items) {
        Ok(ports) if key == "ports" => ports.into_iter().collect(),
        _ => items.iter().map(one).collect(),
    }
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
