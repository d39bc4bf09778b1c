//! Results that the master compiles for a minion without sending them.

use std::collections::BTreeMap;

use halite_proto::ids::MinionId;
use halite_states::low::{LowState, Position};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::document::document;

/// The pillar of a minion, with references in the place of secrets (`ctl pillar`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MinionPillar {
    /// The minion.
    #[schemars(with = "String")]
    pub minion: MinionId,
    /// The pillar, with the names that templates use.
    pub pillar: Map<String, Value>,
}

document!(MinionPillar);

/// The grains of minions, as last sent by them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grains {
    /// The grains, by minion.
    #[schemars(with = "BTreeMap<String, Map<String, Value>>")]
    pub grains: BTreeMap<MinionId, Map<String, Value>>,
}

document!(Grains);

/// The SLS that `top.sls` assigns to a minion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TopStates {
    /// The minion.
    #[schemars(with = "String")]
    pub minion: MinionId,
    /// The SLS, in their order.
    pub sls: Vec<String>,
}

document!(TopStates);

/// The low state of a minion (`ctl render --low`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenderedLow {
    /// The low state: `format`, `minion` and `chunks`, with Salt's names.
    #[schemars(with = "Map<String, Value>")]
    pub low: LowState,
}

document!(RenderedLow);

/// The files and Kubernetes objects that the states of a minion declare (`ctl render`).
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenderedFiles {
    /// The files and objects, in the order of the states.
    pub files: Vec<RenderedFile>,
}

document!(RenderedFiles);

/// A file or a Kubernetes object that a state declares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenderedFile {
    /// The path of the file, or kind, namespace and name of the object.
    pub name: String,
    /// The state function, for example `file.managed`.
    pub state: String,
    /// The id of the state.
    pub id: String,
    /// The SLS that declares it.
    pub sls: String,
    /// The place of the state in the tree: `file`, `line` and `column`.
    #[schemars(with = "Map<String, Value>")]
    pub source: Position,
    /// The files of the tree that were read for it.
    pub files: Vec<String>,
    /// The paths of the pillar that were read for it.
    pub pillar: Vec<String>,
    /// `true` if it contains a secret; its content then has references.
    pub sensitive: bool,
    /// The mode. Absent if the state declares none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Value>,
    /// The owner. Absent if the state declares none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<Value>,
    /// The group. Absent if the state declares none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<Value>,
    /// The text of the file, or the object; `sha256:` and the digest for a large file. Absent if
    /// the state declares none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
}
