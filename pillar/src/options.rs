//! The options of a cluster with few values: the pod network, a VIP or none.
//!
//! The options come from the schema of the cluster document: every field with an `enum` and every
//! boolean is one, so that a new option is included automatically. A test has the list of all other
//! fields.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::LazyLock;

use halite_document::source::join;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::etcd::Placement;
use crate::schema;

/// The VIP of the declared clusters (RFC 5737).
const VIP: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 100);

/// The allowed values of each option, by field of the cluster document. An option that is not
/// listed may have any value.
pub type Allowed = BTreeMap<String, Vec<String>>;

/// An option: a field of the cluster document, or several that belong together, and its possible
/// values. The first is the default.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    pub path: String,
    pub ways: Vec<OptionValue>,
}

/// A value of an option, and the fields that declare it: dotted paths and their values.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OptionValue {
    pub name: String,
    pub settings: Vec<(String, Value)>,
}

impl OptionValue {
    /// The declared placement of etcd's members, if it is not the default.
    pub(crate) fn etcd_placement(&self) -> Option<Placement> {
        let mut settings = self.settings.iter();
        let (_, value) = settings.find(|(path, _)| path == PLACEMENT_PATH)?;
        Placement::named(value.as_str()?)
    }
}

/// The field that is combined with others into one option.
const VIP_PATH: &str = "apiServer.vip";
const KEEPALIVED_PATH: &str = "apiServer.keepalived";
const LOCAL_PROXY_PATH: &str = "apiServer.localProxy";

/// Options that affect no image and no package of a bundle.
const WITHOUT_ARTIFACTS: [&str; 6] = [
    "certificates.renew",
    "controlPlane.taint",
    "profile",
    "apiServer.admission.podSecurity.enforce",
    "apiServer.admission.podSecurity.audit",
    "apiServer.admission.podSecurity.warn",
];

/// The fields of etcd that are one option: an external etcd has no mode.
const ETCD_PATH: &str = "etcd";
const PLACEMENT_PATH: &str = "etcd.placement";
const MODE_PATH: &str = "etcd.mode";
/// A recorded placement follows from the declared one.
const RECORDED_PLACEMENT_PATH: &str = "resolved.etcd";

const DEDICATED_ETCD: &str = "dedicated";
const EXTERNAL_ETCD: &str = "external";
/// A certificate whose key does not exist, and a block in the form of a key.
const EXAMPLE_CERTIFICATE: &str = include_str!("example-ca.pem");
const EXAMPLE_KEY: &str = "-----BEGIN PRIVATE KEY-----\nbm9uZQ==\n-----END PRIVATE KEY-----\n";

/// Options that are valid only together with other fields: a registry needs a user, a managed clock
/// needs a server.
const REGISTRY_PATH: &str = "siteRegistry.enabled";
const TIME_PATH: &str = "host.manageTime";

/// The options, and the paths of all other fields.
pub(crate) static CHOICES: LazyLock<(Vec<Choice>, Vec<String>)> = LazyLock::new(|| {
    let (mut choices, mut free) = (Vec::new(), Vec::new());
    find(schema::cluster(), "", &mut choices, &mut free);
    // `keepalived` matters only with a VIP, so it is part of that option. The proxy is in each of
    // them: `auto` depends on the number of control planes, and hosts with one have no proxy, so
    // each set has both.
    let parts = [
        KEEPALIVED_PATH,
        LOCAL_PROXY_PATH,
        PLACEMENT_PATH,
        MODE_PATH,
        RECORDED_PLACEMENT_PATH,
    ];
    choices.retain(|choice| !parts.contains(&choice.path.as_str()));
    free.retain(|path| path != VIP_PATH);
    choices.retain(|choice| !WITHOUT_ARTIFACTS.contains(&choice.path.as_str()));
    free.extend(WITHOUT_ARTIFACTS.map(str::to_owned));
    free.push(RECORDED_PLACEMENT_PATH.to_owned());
    let vip = (VIP_PATH.to_owned(), json!(VIP));
    let external = (KEEPALIVED_PATH.to_owned(), json!(false));
    let proxy = (LOCAL_PROXY_PATH.to_owned(), json!("always"));
    let ways = [
        ("none", vec![proxy.clone()]),
        ("keepalived", vec![vip.clone(), proxy.clone()]),
        ("external", vec![vip, external, proxy]),
    ];
    let ways = ways.map(|(name, settings)| OptionValue {
        name: name.to_owned(),
        settings,
    });
    choices.push(Choice {
        path: VIP_PATH.to_owned(),
        ways: ways.into(),
    });
    choices.push(Choice {
        path: ETCD_PATH.to_owned(),
        ways: etcd().into(),
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

/// The ways in which a cluster can have etcd.
fn etcd() -> [OptionValue; 4] {
    let way = |name: &str, settings: &[(&str, Value)]| OptionValue {
        name: name.to_owned(),
        settings: (settings.iter())
            .map(|(path, value)| ((*path).to_owned(), value.clone()))
            .collect(),
    };
    let external = json!({
        "endpoints": ["https://etcd.example.com:2379"],
        "ca": EXAMPLE_CERTIFICATE,
        "clientSecret": "etcd",
    });
    [
        way("static-pod", &[]),
        way("host-service", &[(MODE_PATH, json!("host-service"))]),
        way(
            DEDICATED_ETCD,
            &[
                (PLACEMENT_PATH, json!("dedicated")),
                (MODE_PATH, json!("host-service")),
            ],
        ),
        way(
            EXTERNAL_ETCD,
            &[
                (PLACEMENT_PATH, json!("external")),
                ("etcd.external", external),
                (
                    "secrets.etcd.value",
                    json!(format!("{EXAMPLE_CERTIFICATE}{EXAMPLE_KEY}")),
                ),
            ],
        ),
    ]
}

/// Collects the options of a schema, and the paths of all other fields.
pub(crate) fn find(schema: &Value, path: &str, choices: &mut Vec<Choice>, free: &mut Vec<String>) {
    if let Some(properties) = schema.get("properties").and_then(Value::as_object) {
        for (key, below) in properties {
            find(below, &join(path, key), choices, free);
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
    let further = further.map(|value| OptionValue {
        name: text(value),
        settings: vec![(path.to_owned(), value.clone())],
    });
    let ways = std::iter::once(OptionValue {
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
/// is not an option.
#[must_use]
pub fn chosen(cluster: &Cluster, path: &str) -> String {
    match (path, cluster.api_server.vip) {
        (VIP_PATH, None) => "none".to_owned(),
        (VIP_PATH, Some(_)) if cluster.api_server.keeps_vip() => "keepalived".to_owned(),
        (VIP_PATH, Some(_)) => "external".to_owned(),
        (ETCD_PATH, _) => match cluster.etcd.placement {
            Placement::Stacked => chosen(cluster, MODE_PATH),
            Placement::Dedicated => DEDICATED_ETCD.to_owned(),
            Placement::External => EXTERNAL_ETCD.to_owned(),
        },
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

/// The options of a cluster document whose value is not allowed: field, value, and the allowed
/// values.
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
