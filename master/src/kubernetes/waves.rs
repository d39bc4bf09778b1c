//! In which order the objects of a manifest are made and removed.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Reference;

/// The wave of a kind; a lower one is made first. What others live in or are described by comes first; what stands
/// between the API and a program of the same manifest comes last, because it would refuse everything until that runs.
#[must_use]
pub fn wave(kind: &str) -> u8 {
    match kind {
        "Namespace" => 0,
        "CustomResourceDefinition" => 1,
        "APIService" | "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => 3,
        _ => 2,
    }
}

/// In the order in which they are made; within a wave as they were written.
#[must_use]
pub fn in_order(mut documents: Vec<Value>) -> Vec<Value> {
    documents.sort_by_key(|document| wave(document.get("kind").and_then(Value::as_str).unwrap_or_default()));
    documents
}

/// The step in which custom resources go.
pub const CUSTOM: u8 = 1;

/// An object that is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Its name.
    pub reference: Reference,
    /// What is of one step has gone before the next one begins.
    pub step: u8,
    /// It is on its way out already: it is only waited for.
    pub ends: bool,
}

impl Removal {
    /// Places an object; `custom` are the groups of custom resources. An APIService whose server has gone would keep
    /// namespaces from ending, and a custom resource whose controller has gone would keep its definition: its
    /// finalizers are that controller's.
    #[must_use]
    pub fn new(reference: Reference, ends: bool, custom: &BTreeSet<String>) -> Self {
        let step = match wave(&reference.kind) {
            3 => 0,
            2 if custom.contains(reference.group()) => CUSTOM,
            wave => 4 - wave,
        };
        Self { reference, step, ends }
    }
}

/// In the order in which they are removed.
pub fn for_removal(removals: &mut [Removal]) {
    removals.sort_by(|a, b| a.step.cmp(&b.step).then_with(|| a.reference.cmp(&b.reference)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_others_need_is_made_first_and_removed_last() {
        let kinds = ["APIService", "Deployment", "CustomResourceDefinition", "Role", "Widget", "Namespace"];
        let made = in_order(kinds.map(|kind| json!({"kind": kind})).to_vec());
        let made: Vec<&str> = made.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        assert_eq!(
            made,
            ["Namespace", "CustomResourceDefinition", "Deployment", "Role", "Widget", "APIService"]
        );
        let custom = BTreeSet::from(["x.io".to_owned()]);
        let mut removed = kinds.map(|kind| {
            let api_version = if kind == "Widget" { "x.io/v1" } else { "v1" }.into();
            let reference =
                Reference { api_version, kind: kind.into(), namespace: String::new(), name: "a".into() };
            Removal::new(reference, false, &custom)
        });
        for_removal(&mut removed);
        let removed: Vec<(u8, &str)> = removed.iter().map(|r| (r.step, r.reference.kind.as_str())).collect();
        let order = [
            (0, "APIService"),
            (1, "Widget"),
            (2, "Deployment"),
            (2, "Role"),
            (3, "CustomResourceDefinition"),
            (4, "Namespace"),
        ];
        assert_eq!(removed, order);
    }
}
