//! The combinations of options that a cluster can have, for options with few values: the pod
//! network, a VIP or none, the roles of a host. The completeness check of a bundle renders the
//! state tree for all of them.
//!
//! The options come from the schema of the cluster document: every field with an `enum` and every
//! boolean is one, so that a new option is included automatically. A test has the list of all other
//! fields.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::LazyLock;

use halite_document::Problem;
use serde_json::{Map, Value, json};

use crate::cluster::{API_VERSION, Cluster};
use crate::load::{Declaration, Text, Texts, load};
use crate::node::{BOOTSTRAP_ROLES, Node, Role};
use crate::schema;
use crate::validate::Context;
use crate::view::MASTER;

/// The maximum number of options of a set that differ from their defaults; in one further set all
/// of them differ. No part of the state tree depends on more than two options at once.
const DEPTH: usize = 2;

/// The network of the declared hosts (RFC 5737).
const NETWORK: &str = "192.0.2.0/24";
const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 100);

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

/// The allowed values of each option, by field of the cluster document. An option that is not
/// listed may have any value.
pub type Allowed = BTreeMap<String, Vec<String>>;

/// An option: a field of the cluster document, or several that belong together, and its possible
/// values. The first is the default.
#[derive(Debug, Clone, PartialEq)]
struct Choice {
    path: String,
    ways: Vec<Way>,
}

/// A value of an option, and the fields that declare it: dotted paths and their values.
#[derive(Debug, Clone, PartialEq)]
struct Way {
    name: String,
    settings: Vec<(String, Value)>,
}

/// Values for some of the options, each with the index of its option.
type Picked<'a> = Vec<(usize, &'a Way)>;

/// The field that is combined with another into one option.
const VIP_PATH: &str = "apiServer.vip";
const KEEPALIVED_PATH: &str = "apiServer.keepalived";

/// Options that are valid only with further fields: a registry needs a user, a managed clock needs
/// a server.
const REGISTRY_PATH: &str = "siteRegistry.enabled";
const TIME_PATH: &str = "host.manageTime";

/// The options, and the paths of all fields that are none.
static CHOICES: LazyLock<(Vec<Choice>, Vec<String>)> = LazyLock::new(|| {
    let (mut choices, mut free) = (Vec::new(), Vec::new());
    find(schema::cluster(), "", &mut choices, &mut free);
    // `keepalived` matters only with a VIP, so it is part of that option.
    choices.retain(|choice| choice.path != KEEPALIVED_PATH);
    free.retain(|path| path != VIP_PATH);
    let vip = (VIP_PATH.to_owned(), json!(VIP));
    let external = (KEEPALIVED_PATH.to_owned(), json!(false));
    let ways = [
        ("none", Vec::new()),
        ("keepalived", vec![vip.clone()]),
        ("external", vec![vip, external]),
    ];
    let ways = ways.map(|(name, settings)| Way {
        name: name.to_owned(),
        settings,
    });
    choices.push(Choice {
        path: VIP_PATH.to_owned(),
        ways: ways.into(),
    });
    let registry = choices
        .iter_mut()
        .filter(|choice| choice.path == REGISTRY_PATH);
    for way in registry.flat_map(|choice| choice.ways.iter_mut().skip(1)) {
        way.settings
            .push(("siteRegistry.users".to_owned(), json!({"user": "password"})));
        way.settings
            .push(("siteRegistry.pullAs".to_owned(), json!("user")));
        way.settings
            .push(("secrets.password.value".to_owned(), json!("of a user")));
    }
    let time = choices.iter_mut().filter(|choice| choice.path == TIME_PATH);
    for way in time.flat_map(|choice| choice.ways.iter_mut().skip(1)) {
        way.settings
            .push(("time.servers".to_owned(), json!(["ntp.example.com"])));
    }
    (choices, free)
});

fn find(schema: &Value, path: &str, choices: &mut Vec<Choice>, free: &mut Vec<String>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for (key, below) in properties {
            find(below, &crate::source::join(path, key), choices, free);
        }
        return;
    }
    let kinds = schema.get("type");
    let boolean = kinds.is_some_and(|kinds| {
        kinds == "boolean"
            || kinds
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|kind| kind == "boolean"))
    });
    let values = match schema.get("enum").and_then(Value::as_array) {
        Some(values) => values.clone(),
        None if boolean => vec![json!(true), json!(false)],
        None => {
            if schema.get("const").is_none() {
                free.push(path.to_owned());
            }
            return;
        }
    };
    let default = schema.get("default").unwrap_or(&Value::Null);
    let further = values.iter().filter(|value| *value != default);
    let further = further.map(|value| Way {
        name: text(value),
        settings: vec![(path.to_owned(), value.clone())],
    });
    let ways = std::iter::once(Way {
        name: text(default),
        settings: Vec::new(),
    })
    .chain(further);
    choices.push(Choice {
        path: path.to_owned(),
        ways: ways.collect(),
    });
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}

/// The options of the cluster document: dotted path and possible values, the default first.
pub fn choices() -> impl Iterator<Item = (&'static str, Vec<&'static str>)> {
    CHOICES.0.iter().map(|choice| {
        (
            choice.path.as_str(),
            choice.ways.iter().map(|way| way.name.as_str()).collect(),
        )
    })
}

/// The dotted paths of all other fields, whose values are the operator's own.
pub fn others() -> impl Iterator<Item = &'static str> {
    CHOICES.1.iter().map(String::as_str)
}

/// The value that a cluster document has for an option, as in [`choices()`]; `null` for a path that
/// is no option.
#[must_use]
pub fn chosen(cluster: &Cluster, path: &str) -> String {
    match (path, cluster.api_server.vip) {
        (VIP_PATH, None) => "none".to_owned(),
        (VIP_PATH, Some(_)) if cluster.api_server.keeps_vip() => "keepalived".to_owned(),
        (VIP_PATH, Some(_)) => "external".to_owned(),
        _ => {
            let document = serde_json::to_value(cluster).unwrap_or_default();
            text(
                document
                    .pointer(&format!("/{}", path.replace('.', "/")))
                    .unwrap_or(&Value::Null),
            )
        }
    }
}

/// The options of a cluster document that have a value which is not allowed: field, value, and the
/// allowed values.
#[must_use]
pub fn refused<'a>(
    cluster: &Cluster,
    allowed: &'a Allowed,
) -> Vec<(&'a str, String, &'a [String])> {
    let each = allowed
        .iter()
        .map(|(path, values)| (path.as_str(), chosen(cluster, path), values.as_slice()));
    each.filter(|(_, chosen, values)| !values.contains(chosen))
        .collect()
}

/// Clusters with the allowed values: all in which at most two options differ from their defaults,
/// and one in which all differ. Each has a host for every valid combination of roles of a further
/// host; the roles of the first host are an option too.
///
/// # Errors
/// `allowed` names an unknown option or value, or leaves an option without a value; or validation
/// refuses a set because two options exclude each other, which this module would have to take into
/// account.
pub fn sets(kubernetes: &str, allowed: &Allowed) -> Result<Vec<Set>, Vec<Problem>> {
    let version = kubernetes.trim_start_matches('v');
    let choices = &restricted(&CHOICES.0, allowed)?;
    let others = other_roles(version);
    let mut out = Vec::new();
    for roles in first_roles(version) {
        let usual = roles == BOOTSTRAP_ROLES;
        // Other roles of the first host count as one option that differs.
        for picked in picks(choices, if usual { DEPTH } else { DEPTH - 1 }) {
            // The other options have their first value, which has to be written if the default is
            // not allowed.
            let rest = choices
                .iter()
                .enumerate()
                .filter(|(at, _)| picked.iter().all(|(taken, _)| taken != at));
            let rest = rest.filter_map(|(_, choice)| choice.ways.first());
            let ways: Vec<&Way> = rest.chain(picked.iter().map(|(_, way)| *way)).collect();
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
                format!("`{path}` is no choice"),
                format!("there are {}", known.join(", ")),
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

/// All combinations in which at most `depth` options differ from the default, and the one in which
/// all do.
fn picks(choices: &[Choice], depth: usize) -> Vec<Picked<'_>> {
    let mut out: Vec<Picked> = vec![Vec::new()];
    let mut level: Vec<Picked> = vec![Vec::new()];
    for _ in 0..depth {
        let mut next = Vec::new();
        for picked in &level {
            let from = picked.last().map_or(0, |(at, _)| at + 1);
            for (at, choice) in choices.iter().enumerate().skip(from) {
                for way in choice.ways.iter().skip(1) {
                    let mut more = picked.clone();
                    more.push((at, way));
                    next.push(more);
                }
            }
        }
        out.extend(next.iter().cloned());
        level = next;
    }
    let all: Picked = choices
        .iter()
        .enumerate()
        .filter_map(|(at, choice)| Some((at, choice.ways.get(1)?)))
        .collect();
    if all.len() > depth {
        out.push(all);
    }
    out
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

/// The roles that the first host can have; first those that `ctl bootstrap` gives it.
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

/// The roles that a further host can have.
fn other_roles(version: &str) -> Vec<Vec<Role>> {
    let valid = |roles: &Vec<Role>| {
        declare(version, &[], &BOOTSTRAP_ROLES, std::slice::from_ref(roles)).is_ok()
    };
    subsets()
        .filter(|roles| !roles.contains(&Role::Bootstrap))
        .filter(valid)
        .collect()
}

fn declare(
    version: &str,
    ways: &[&Way],
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
            custom: None,
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
