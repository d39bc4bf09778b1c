//! The order in which the objects of a manifest are created and removed.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{ObjectRef, group};

/// The wave of a kind of a group; lower waves are created first. Objects that contain or define
/// others come first. Objects between the API and a program of the same manifest come last, because
/// they would refuse everything until that program runs. A kind of another group belongs to
/// neither, whatever its name.
fn wave(group: &str, kind: &str) -> u8 {
    match (group, kind) {
        ("", "Namespace") => 0,
        ("apiextensions.k8s.io", "CustomResourceDefinition") => 1,
        ("apiregistration.k8s.io", "APIService")
        | (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
        ) => 3,
        _ => 2,
    }
}

/// The wave of an object.
#[must_use]
pub fn wave_of(reference: &ObjectRef) -> u8 {
    wave(reference.group(), &reference.kind)
}

/// Sorts objects for creation; within a wave they keep their written order.
#[must_use]
pub fn in_order(mut documents: Vec<Value>) -> Vec<Value> {
    let text = |document: &Value, field| {
        document
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    documents.sort_by_key(|document| {
        wave(
            group(&text(document, "apiVersion")),
            &text(document, "kind"),
        )
    });
    documents
}

/// The step in which custom resources are removed.
pub const CUSTOM: u8 = 1;

/// An object that will be removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Its name.
    pub reference: ObjectRef,
    /// The step; all objects of a step are gone before the next one starts.
    pub step: u8,
    /// `true` if it is already being deleted, so that only its end is awaited.
    pub ends: bool,
}

impl Removal {
    /// Assigns the step of an object; `custom` contains the groups of custom resources. An
    /// APIService without its server would prevent namespaces from ending, and a custom resource
    /// without its controller would keep its definition, because that controller owns its
    /// finalizers.
    #[must_use]
    pub fn new(reference: ObjectRef, ends: bool, custom: &BTreeSet<String>) -> Self {
        let step = match wave_of(&reference) {
            3 => 0,
            2 if custom.contains(reference.group()) => CUSTOM,
            wave => 4 - wave,
        };
        Self {
            reference,
            step,
            ends,
        }
    }
}

/// Sorts objects for removal.
pub fn for_removal(removals: &mut [Removal]) {
    removals.sort_by(|a, b| {
        a.step
            .cmp(&b.step)
            .then_with(|| a.reference.cmp(&b.reference))
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_others_need_is_made_first_and_removed_last() {
        let objects = [
            ("apiregistration.k8s.io/v1", "APIService"),
            (
                "admissionregistration.k8s.io/v1",
                "ValidatingWebhookConfiguration",
            ),
            ("apps/v1", "Deployment"),
            ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
            ("v1", "Role"),
            ("x.io/v1", "Widget"),
            // Custom resources with names of Kubernetes' own kinds.
            ("x.io/v1", "APIService"),
            ("x.io/v1", "CustomResourceDefinition"),
            ("x.io/v1", "Namespace"),
            ("v1", "Namespace"),
        ];
        let made = objects.map(|(version, kind)| json!({"apiVersion": version, "kind": kind}));
        let made = in_order(made.to_vec());
        let of = |object: &Value| {
            format!(
                "{} {}",
                object["apiVersion"].as_str().unwrap(),
                object["kind"].as_str().unwrap()
            )
        };
        assert_eq!(
            made.iter().map(of).collect::<Vec<_>>(),
            [
                "v1 Namespace",
                "apiextensions.k8s.io/v1 CustomResourceDefinition",
                "apps/v1 Deployment",
                "v1 Role",
                "x.io/v1 Widget",
                "x.io/v1 APIService",
                "x.io/v1 CustomResourceDefinition",
                "x.io/v1 Namespace",
                "apiregistration.k8s.io/v1 APIService",
                "admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration",
            ]
        );
        let custom = BTreeSet::from(["x.io".to_owned()]);
        let mut removed = objects.map(|(api_version, kind)| {
            let (api_version, kind) = (api_version.into(), kind.into());
            let reference = ObjectRef {
                api_version,
                kind,
                namespace: String::new(),
                name: "a".into(),
            };
            Removal::new(reference, false, &custom)
        });
        for_removal(&mut removed);
        let removed: Vec<String> = removed
            .iter()
            .map(|r| {
                format!(
                    "{} {} {}",
                    r.step, r.reference.api_version, r.reference.kind
                )
            })
            .collect();
        let order = [
            "0 admissionregistration.k8s.io/v1 ValidatingWebhookConfiguration",
            "0 apiregistration.k8s.io/v1 APIService",
            "1 x.io/v1 APIService",
            "1 x.io/v1 CustomResourceDefinition",
            "1 x.io/v1 Namespace",
            "1 x.io/v1 Widget",
            "2 apps/v1 Deployment",
            "2 v1 Role",
            "3 apiextensions.k8s.io/v1 CustomResourceDefinition",
            "4 v1 Namespace",
        ];
        assert_eq!(removed, order);
    }
}
