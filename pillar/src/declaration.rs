//! The operator's documents, as the other modules use them.

use std::collections::BTreeMap;
use std::ops::Deref;

use halite_document::DocumentSource;
use halite_names::NodeName;
use serde_json::{Map, Value};

use crate::cluster::Cluster;
use crate::node::Node;
use crate::role::Role;

/// A document with its text.
#[derive(Debug, Clone)]
pub struct Document<T> {
    /// The value.
    pub value: T,
    /// The text, with positions.
    pub source: DocumentSource,
}

impl<T> Deref for Document<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The operator's documents, read and validated.
#[derive(Debug, Clone)]
pub struct Declaration {
    /// The cluster document.
    pub cluster: Document<Cluster>,
    /// Node documents by name.
    pub nodes: BTreeMap<NodeName, Document<Node>>,
    /// `custom/pillar.yaml`, over which the `custom` of both documents is merged.
    pub custom: Map<String, Value>,
}

impl Declaration {
    /// The node with the role `bootstrap`.
    #[must_use]
    pub fn bootstrap_node(&self) -> Option<&Document<Node>> {
        self.nodes.values().find(|node| node.has(Role::Bootstrap))
    }

    /// The host that runs the site registry, if one is declared.
    #[must_use]
    pub fn registry_host(&self) -> Option<&Document<Node>> {
        let registry = &self.cluster.site_registry;
        match &registry.node {
            _ if !registry.enabled => None,
            Some(name) => self.nodes.get(name.as_str()),
            None => self.bootstrap_node(),
        }
    }
}
