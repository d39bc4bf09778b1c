//! In which order the objects of a manifest are made and removed.

use serde_json::Value;

use super::Reference;

/// The wave of a kind; a lower one is made first. What others live in or are described by comes first; what stands
/// between the API and a program of the same manifest comes last, because it would refuse everything until that runs.
/// Removal goes the other way: an APIService whose server has gone would keep namespaces from ending.
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

/// In the order in which they are removed.
pub fn for_removal(references: &mut [Reference]) {
    references.sort_by(|a, b| wave(&b.kind).cmp(&wave(&a.kind)).then_with(|| a.cmp(b)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_others_need_is_made_first_and_removed_last() {
        let kinds = ["APIService", "Deployment", "CustomResourceDefinition", "Role", "Namespace"];
        let made = in_order(kinds.map(|kind| json!({"kind": kind})).to_vec());
        let made: Vec<&str> = made.iter().map(|object| object["kind"].as_str().unwrap()).collect();
        assert_eq!(made, ["Namespace", "CustomResourceDefinition", "Deployment", "Role", "APIService"]);
        let mut removed = kinds.map(|kind| Reference {
            api_version: "v1".into(),
            kind: kind.into(),
            namespace: String::new(),
            name: "a".into(),
        });
        for_removal(&mut removed);
        let removed: Vec<&str> = removed.iter().map(|reference| reference.kind.as_str()).collect();
        assert_eq!(removed, ["APIService", "Deployment", "Role", "CustomResourceDefinition", "Namespace"]);
    }
}
