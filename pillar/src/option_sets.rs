//! The combinations of options that a cluster can have, for options with few values: the pod
//! network, a VIP or none, the roles of a host. The completeness check of a bundle renders the
//! state tree for all of them.

mod combinations;
mod covering;

use std::net::Ipv4Addr;

use combinations::Picked;
use halite_document::Problem;
use serde_json::{Map, Value, json};

use crate::declaration::Declaration;
use crate::etcd::Placement;
use crate::field_schemas::API_VERSION;
use crate::load::{Text, Texts, load};
use crate::node::Node;
use crate::options::{Allowed, CHOICES, Choice, OptionValue};
use crate::role::{BOOTSTRAP_ROLES, Role};
use crate::validate::Context;
use crate::view::MASTER;

pub use combinations::Coverage;

/// The network of the declared hosts (RFC 5737).
const NETWORK: &str = "192.0.2.0/24";

/// A cluster that can be declared.
#[derive(Debug, Clone)]
pub struct Set {
    /// The options that differ from their defaults, for display.
    pub name: String,
    /// The cluster and its hosts.
    pub declaration: Declaration,
    /// The hosts that differ from those of earlier sets.
    pub targets: Vec<Target>,
}

/// A host, or the master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// Its id.
    pub minion: String,
    /// A description for display.
    pub what: String,
}

/// Clusters with the allowed values, in which every pair of values of two options occurs. Each has
/// a host for every valid combination of roles of an additional host; the roles of the first host
/// are an option too.
///
/// # Errors
/// `allowed` names an unknown option or value, or leaves an option without a value; or validation
/// refuses a set because two options exclude each other, which this module does not take into
/// account.
pub fn sets(
    kubernetes: &str,
    allowed: &Allowed,
    coverage: Coverage,
) -> Result<Vec<Set>, Vec<Problem>> {
    let version = kubernetes.trim_start_matches('v');
    let choices = &restricted(&CHOICES.0, allowed)?;
    let stacked = other_roles(version, &[]);
    let mut ways = choices.iter().flat_map(|choice| &choice.ways);
    let dedicated = ways.find(|way| way.etcd_placement() == Some(Placement::Dedicated));
    let dedicated = dedicated.map_or_else(Vec::new, |way| other_roles(version, &[way]));
    let mut out = Vec::new();
    for roles in first_roles(version) {
        let usual = roles == BOOTSTRAP_ROLES;
        let combinations = if usual {
            coverage.with_every_pair(choices)
        } else {
            // Other roles of the first host count as one option that differs.
            coverage.with_every_value(choices)
        };
        for picked in combinations {
            // The other options have their first value, which must be written if the default is not
            // allowed.
            let rest = choices
                .iter()
                .enumerate()
                .filter(|(at, _)| picked.iter().all(|(taken, _)| taken != at));
            let rest = rest.filter_map(|(_, choice)| choice.ways.first());
            let ways: Vec<&OptionValue> = rest.chain(picked.iter().map(|(_, way)| *way)).collect();
            let placement = ways.iter().find_map(|way| way.etcd_placement());
            // No host is a member of an external etcd.
            let without_members = placement == Some(Placement::External);
            let own = |roles: &[Role]| -> Vec<Role> {
                let kept = |role: &Role| *role != Role::Etcd || !without_members;
                roles.iter().copied().filter(kept).collect()
            };
            let roles = own(&roles);
            let others = match placement {
                Some(Placement::Dedicated) => &dedicated,
                _ => &stacked,
            };
            let others: Vec<Vec<Role>> = others.iter().map(|roles| own(roles)).collect();
            let declaration = declare(version, &ways, &roles, &others)?;
            let mut targets = vec![
                Target {
                    minion: MASTER.to_owned(),
                    what: "the objects in the API".to_owned(),
                },
                Target {
                    minion: name(0),
                    what: on(&roles),
                },
            ];
            if usual {
                let further = others.iter().enumerate();
                targets.extend(further.map(|(at, roles)| Target {
                    minion: name(at + 1),
                    what: on(roles),
                }));
            }
            out.push(Set {
                name: describe(choices, &picked),
                declaration,
                targets,
            });
        }
    }
    Ok(out)
}

/// The options without the values that are not allowed.
fn restricted(choices: &[Choice], allowed: &Allowed) -> Result<Vec<Choice>, Vec<Problem>> {
    let mut choices = choices.to_vec();
    let mut problems = Vec::new();
    let known: Vec<String> = choices.iter().map(|choice| choice.path.clone()).collect();
    let mut wrong = |path: &str, message: String, hint: String| {
        problems.push(Problem::in_file("options", message).path(path).hint(hint));
    };
    for (path, values) in allowed {
        let Some(choice) = choices.iter_mut().find(|choice| choice.path == *path) else {
            wrong(
                path,
                format!("`{path}` is not an option"),
                format!("the options are {}", known.join(", ")),
            );
            continue;
        };
        let names: Vec<String> = choice.ways.iter().map(|way| way.name.clone()).collect();
        for value in values.iter().filter(|value| !names.contains(value)) {
            wrong(
                path,
                format!("`{path}` cannot be `{value}`"),
                format!("it is one of {}", names.join(", ")),
            );
        }
        choice.ways.retain(|way| values.contains(&way.name));
        if choice.ways.is_empty() && values.is_empty() {
            wrong(
                path,
                format!("`{path}` has no allowed value"),
                format!("name some of {}", names.join(", ")),
            );
        }
    }
    if problems.is_empty() {
        Ok(choices)
    } else {
        Err(problems)
    }
}

fn describe(choices: &[Choice], picked: &Picked) -> String {
    let name = |at: usize| choices.get(at).map_or("", |choice| choice.path.as_str());
    let texts: Vec<String> = picked
        .iter()
        .map(|(at, way)| format!("{}: {}", name(*at), way.name))
        .collect();
    if texts.is_empty() {
        "defaults".to_owned()
    } else {
        texts.join(", ")
    }
}

fn on(roles: &[Role]) -> String {
    let roles: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
    format!("a host that is {}", roles.join(", "))
}

/// The n-th host's name.
fn name(n: usize) -> String {
    format!("host-{}", n + 1)
}

/// All non-empty sets of roles.
fn subsets() -> impl Iterator<Item = Vec<Role>> {
    (1u32..1 << Role::ALL.len()).map(|bits| {
        let chosen = Role::ALL
            .iter()
            .enumerate()
            .filter(|(at, _)| bits & (1 << at) != 0);
        chosen.map(|(_, role)| *role).collect()
    })
}

/// The roles that the first host can have, the ones from `ctl bootstrap` first.
fn first_roles(version: &str) -> Vec<Vec<Role>> {
    let mut found = vec![BOOTSTRAP_ROLES.to_vec()];
    let same = |roles: &Vec<Role>| {
        BOOTSTRAP_ROLES.iter().all(|role| roles.contains(role))
            && roles.len() == BOOTSTRAP_ROLES.len()
    };
    let further = subsets().filter(|roles| roles.contains(&Role::Bootstrap) && !same(roles));
    found.extend(further.filter(|roles| declare(version, &[], roles, &[]).is_ok()));
    found
}

/// The roles that an additional host can have.
fn other_roles(version: &str, ways: &[&OptionValue]) -> Vec<Vec<Role>> {
    let valid = |roles: &Vec<Role>| {
        declare(version, ways, &BOOTSTRAP_ROLES, std::slice::from_ref(roles)).is_ok()
    };
    subsets()
        .filter(|roles| !roles.contains(&Role::Bootstrap))
        .filter(valid)
        .collect()
}

fn declare(
    version: &str,
    ways: &[&OptionValue],
    first: &[Role],
    others: &[Vec<Role>],
) -> Result<Declaration, Vec<Problem>> {
    let mut cluster = json!({
        "apiVersion": API_VERSION,
        "kind": "Cluster",
        "metadata": {"name": "every"},
        "networks": {"controlPlane": {"cidrs": [NETWORK]}},
        "kubernetes": {"version": version},
    });
    for (path, value) in ways.iter().flat_map(|way| &way.settings) {
        set(&mut cluster, path, value);
    }
    let hosts = std::iter::once(first)
        .chain(others.iter().map(Vec::as_slice))
        .enumerate();
    let node = |(at, roles): (usize, &[Role])| {
        let address = u8::try_from(at + 1)
            .ok()
            .map(|last| Ipv4Addr::new(192, 0, 2, last));
        let name = name(at);
        Text {
            text: Node::new(&name, address, roles).to_text(),
            file: format!("{name}.yaml"),
        }
    };
    // JSON is YAML.
    let cluster = Text {
        file: "cluster.yaml".to_owned(),
        text: cluster.to_string(),
    };
    load(
        &Texts {
            cluster,
            nodes: hosts.map(node).collect(),
            ..Texts::default()
        },
        &Context::default(),
    )
}

/// Puts a value at a dotted path.
fn set(document: &mut Value, path: &str, value: &Value) {
    let mut at = document;
    for key in path.split('.') {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[key];
    }
    *at = value.clone();
}

#[cfg(test)]
mod tests;
