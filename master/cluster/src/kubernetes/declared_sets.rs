//! The operator's manifests of one low state with the objects that each names, so that an object
//! can move from one file to another without being deleted.
//!
//! Other sets follow each other by removal: the objects of a pod network and of the chart that
//! replaces it may have the same names and fields that cannot change.

use std::collections::BTreeMap;

use halite_states::low::Chunk;
use serde_json::Value;

use super::ObjectRef;
use super::arguments::flattened;
use super::sets::same;

/// The start of the names of these sets (`halite/addons/map.jinja`).
const PREFIX: &str = "manifest-";

/// The objects of the operator's manifests, by set.
#[derive(Debug, Default)]
pub(super) struct DeclaredSets(BTreeMap<String, Vec<ObjectRef>>);

impl DeclaredSets {
    /// Reads the sets of a low state.
    pub fn of(chunks: &[Chunk]) -> Self {
        let manifests = chunks
            .iter()
            .filter(|chunk| chunk.function() == "kubernetes.manifest");
        let named = |chunk: &Chunk| {
            let set = chunk.args.get("set")?.as_str()?.to_owned();
            let documents = chunk.args.get("documents").and_then(Value::as_array);
            let documents = flattened(documents.cloned().unwrap_or_default());
            let objects = documents
                .iter()
                .filter_map(|object| ObjectRef::of(object).ok());
            Some((set, objects.collect()))
        };
        let sets = manifests.filter_map(named);
        Self(sets.filter(|(set, _)| set.starts_with(PREFIX)).collect())
    }

    /// Returns whether an object of a set is now named by another set. The set itself may be gone.
    pub fn has_moved(&self, set: &str, object: &ObjectRef) -> bool {
        let mut others = self.0.iter().filter(|(name, _)| *name != set);
        set.starts_with(PREFIX)
            && others.any(|(_, objects)| objects.iter().any(|wanted| same(wanted, object)))
    }

    /// Returns whether a set is among them and does not name an object.
    pub fn has_lost(&self, set: &str, object: &ObjectRef) -> bool {
        let objects = self.0.get(set);
        objects.is_some_and(|objects| !objects.iter().any(|wanted| same(wanted, object)))
    }
}
