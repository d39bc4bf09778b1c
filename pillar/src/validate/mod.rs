//! Validation: checks of meaning, after the reader has checked that every value is well-formed.
//!
//! The checks are independent, and each reports its own problems. A problem that follows from a
//! value which was already reported as unusable is not reported again.

mod addons;
mod api;
mod backup;
mod components;
mod dns;
mod etcd;
mod external;
mod hardening;
mod masters;
mod metrics;
mod networks;
mod nodes;
mod notify;
mod registry;
mod releases;
mod warnings;

use std::collections::BTreeMap;

use halite_document::Problem;

use crate::bundle_facts::BundleFacts;
use crate::declaration::{Declaration, Document};
use crate::host_facts::HostFacts;
use crate::node::Node;

pub use warnings::warnings;

/// Facts beyond the documents. Checks that need a missing fact are skipped.
#[derive(Debug, Clone, Copy, Default)]
pub struct Context<'a> {
    /// The bundle that the cluster is made from.
    pub bundle: Option<&'a BundleFacts>,
    /// The host on which this runs, if it is one of the cluster's.
    pub host: Option<&'a HostFacts>,
}

/// Validates a declaration, and returns all problems.
#[must_use]
pub fn validate(declaration: &Declaration, context: &Context<'_>) -> Vec<Problem> {
    let mut check = Check {
        declaration,
        context,
        problems: Vec::new(),
    };
    networks::check(&mut check);
    api::check(&mut check);
    hardening::check(&mut check);
    components::check(&mut check);
    dns::check(&mut check);
    addons::check(&mut check);
    registry::check(&mut check);
    backup::check(&mut check);
    notify::check(&mut check);
    etcd::check(&mut check);
    external::check(&mut check);
    nodes::check(&mut check);
    masters::check(&mut check);
    metrics::check(&mut check);
    releases::check(&mut check);
    check.problems
}

/// Reports names that two documents declare. It runs before the documents are put into a map by
/// name.
pub(crate) fn duplicate_names(nodes: &[Document<Node>]) -> Vec<Problem> {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    let mut problems = Vec::new();
    for node in nodes
        .iter()
        .filter(|node| node.source.is_sound("metadata.name"))
    {
        match first.get(node.metadata.name.as_str()) {
            Some(file) => problems.push(
                node.source
                    .problem(
                        "metadata.name",
                        format!("{file} already declares a node `{}`", node.metadata.name),
                    )
                    .hint("give one of them another name, or remove the file"),
            ),
            None => {
                first.insert(&node.metadata.name, &node.source.file);
            }
        }
    }
    problems
}

/// The state of one validation.
pub(crate) struct Check<'a> {
    pub declaration: &'a Declaration,
    pub context: &'a Context<'a>,
    problems: Vec<Problem>,
}

impl Check<'_> {
    /// Reports a problem of the cluster document, unless its value is unusable anyway.
    fn cluster(&mut self, path: &str, message: impl Into<String>, hint: impl Into<String>) {
        let source = &self.declaration.cluster.source;
        if source.is_sound(path) {
            self.problems.push(source.problem(path, message).hint(hint));
        }
    }

    /// Reports a problem of the cluster document without its line, which may contain a secret.
    fn unseen(&mut self, path: &str, message: impl Into<String>, hint: impl Into<String>) {
        let source = &self.declaration.cluster.source;
        if source.is_sound(path) {
            self.problems.push(
                Problem::at(&source.position(path), message)
                    .path(path)
                    .hint(hint),
            );
        }
    }

    /// Reports a problem of a node document, unless its value is unusable anyway.
    fn node(
        &mut self,
        node: &Document<Node>,
        path: &str,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) {
        if node.source.is_sound(path) {
            self.problems
                .push(node.source.problem(path, message).hint(hint));
        }
    }

    /// Returns whether a value of the cluster document is usable.
    fn sound(&self, path: &str) -> bool {
        self.declaration.cluster.source.is_sound(path)
    }
}
