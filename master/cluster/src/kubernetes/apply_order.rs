//! In which order the objects of a manifest are made and removed.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{ObjectRef, group};

/// The wave of a kind of a group; a lower one is made first. What others live in or are described
/// by comes first; what is between the API and a program of the same manifest comes last,
/// because it would refuse everything until that runs. A kind of another group is none of these,
/// whatever its name.
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

/// In the order in which they are made; within a wave as they were written.
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

/// The step in which custom resources go.
pub const CUSTOM: u8 = 1;

/// An object that is to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// Its name.
    pub reference: ObjectRef,
    /// What is of one step has gone before the next one begins.
    pub step: u8,
    /// It is on its way out already: it is only waited for.
    pub ends: bool,
}

impl Removal {
    /// Places an object; `custom` are the groups of custom resources. An APIService whose server
    /// has gone would keep namespaces from ending, and a custom resource whose controller has gone
    /// would keep its definition: its finalizers are that controller's.
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

/// In the order in which they are removed.
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
            // Custom resources that are called like something of Kubernetes' own.
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
