//! Defaults that the schemas do not have: from the first host, the bundle and the example document.

use std::net::Ipv4Addr;

use halite_document::fields;
use halite_pillar::suggest::{TakenNetwork, conflict, connected, free, taken};
use halite_pillar::{example, release};
use halite_secrets::yaml;
use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::draft::{Draft, DraftDocument};
use super::first_host::FirstHost;

/// The names of suggestions in the schemas.
#[cfg(test)]
pub const NAMES: [&str; 5] = [
    "name",
    "host-networks",
    "free-network",
    "kubernetes-version",
    "host-address",
];

/// The default answer to a question.
#[derive(Debug, Default, PartialEq)]
pub struct SuggestedAnswer {
    /// The answer; `None` if there is no default.
    pub value: Option<Value>,
    /// The reason why it is not the default of the schema.
    pub reason: Option<String>,
}

/// The default answer: the answer so far, or else a suggestion, or else the default of the schema.
pub fn suggested(draft: &Draft, host: &FirstHost, at: usize) -> SuggestedAnswer {
    let question = &draft.questions[at];
    let field = &question.field;
    if let Some(value) = draft.answer(at) {
        return SuggestedAnswer {
            value: Some(value.clone()),
            reason: None,
        };
    }
    let is_first_host = question.document == DraftDocument::FirstHost;
    let known = match field.suggestion() {
        Some("name") if is_first_host => host.name.clone().map(Value::from),
        // A further network is the exception.
        Some("host-networks") if field.is_required => {
            let mut networks = addresses(draft).filter_map(|one| one.network);
            networks.next().map(|network| json!([network.to_string()]))
        }
        Some("free-network") => return free_network(draft, at),
        Some("kubernetes-version") => kubernetes(draft),
        Some("host-address") => host_address(draft).map(|address| json!(address.to_string())),
        _ => None,
    };
    SuggestedAnswer {
        value: known.or_else(|| field.default()),
        reason: None,
    }
}

fn addresses(draft: &Draft) -> impl Iterator<Item = halite_pillar::suggest::ConnectedAddress> {
    draft.host.iter().flat_map(connected)
}

/// The networks in an answer.
fn networks(value: Option<&Value>) -> Vec<Ipv4Net> {
    let texts: Vec<&Value> = match value {
        Some(Value::Array(items)) => items.iter().collect(),
        Some(text) => vec![text],
        None => Vec::new(),
    };
    let parsed = texts
        .into_iter()
        .filter_map(|text| text.as_str()?.parse().ok());
    parsed.collect()
}

/// The default network, or another one of its size if the first host or an earlier answer uses it.
fn free_network(draft: &Draft, at: usize) -> SuggestedAnswer {
    let field = &draft.questions[at].field;
    let Some(preferred) = networks(field.default().as_ref()).first().copied() else {
        return SuggestedAnswer::default();
    };
    let mut used: Vec<TakenNetwork> = draft.host.iter().flat_map(taken).collect();
    for (earlier, question) in draft.questions[..at].iter().enumerate() {
        let is_network = question
            .field
            .suggestion()
            .is_some_and(|name| name.ends_with("network") || name.ends_with("networks"));
        if is_network {
            let found = networks(draft.answer(earlier)).into_iter();
            used.extend(found.map(|network| TakenNetwork {
                network,
                used_by: format!("{} ({network})", question.id),
            }));
        }
    }
    let reason = conflict(preferred, &used)
        .map(|other| format!("The default {preferred} overlaps {}.", other.used_by));
    SuggestedAnswer {
        value: free(preferred, &used).map(|network| json!(network.to_string())),
        reason,
    }
}

/// The minor version of the bundle's Kubernetes, or else that of the example document.
fn kubernetes(draft: &Draft) -> Option<Value> {
    if let Some(bundle) = &draft.bundle {
        return Some(json!(release::minor(&bundle.kubernetes)));
    }
    let example = yaml::parse("example", example::CLUSTER).ok()?;
    Some(fields::at(&example.to_json(), "kubernetes.version")?.clone())
}

/// The host's first address in a control-plane network, in the order of the networks.
fn host_address(draft: &Draft) -> Option<Ipv4Addr> {
    let vip = draft.answer_to("apiServer.vip").and_then(Value::as_str);
    let vip: Option<Ipv4Addr> = vip.and_then(|vip| vip.parse().ok());
    let planes = networks(draft.answer_to("networks.controlPlane.cidrs"));
    let mut found = planes.iter().flat_map(|plane| {
        let own = addresses(draft).map(|one| one.address);
        own.filter(move |address| plane.contains(address) && Some(*address) != vip)
    });
    found.next()
}
