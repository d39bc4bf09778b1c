//! The objects that the garbage collector removes with an object: every object that names it as its
//! owner, directly or through others.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::modules::KubernetesModules;
use super::sets::{ends, same};
use super::{ApiError, ObjectRef, Served};

/// A kind that is removed with its definition, and with it all its objects.
#[derive(Debug)]
pub(super) struct Defined {
    pub group: String,
    pub kind: String,
    pub definition: ObjectRef,
    /// `true` if it was served at some time, so that there may be objects.
    pub established: bool,
}

/// The objects to remove, for queries about their dependents; each owner is read once.
pub(super) struct Owners<'a> {
    cluster: &'a KubernetesModules,
    remove: &'a [ObjectRef],
    defined: &'a [Defined],
    known: BTreeMap<String, Owner>,
}

/// The state of an owner.
#[derive(Debug, Clone)]
enum Owner {
    /// The object does not exist, or a different one has its name.
    Gone,
    /// Its kind is not served: only its name is known.
    Unseen,
    There(Value),
}

/// An entry of `ownerReferences`. An owner is in the namespace of the owned object, or
/// cluster-scoped.
struct Named {
    reference: ObjectRef,
    uid: String,
}

impl<'a> Owners<'a> {
    pub fn new(
        cluster: &'a KubernetesModules,
        remove: &'a [ObjectRef],
        defined: &'a [Defined],
    ) -> Self {
        Self {
            cluster,
            remove,
            defined,
            known: BTreeMap::new(),
        }
    }

    /// The claims and volumes that are not removed directly but with an owner, by that owner.
    pub async fn data(&mut self) -> Result<BTreeMap<ObjectRef, Vec<String>>, ApiError> {
        let kinds = [("PersistentVolumeClaim", true), ("PersistentVolume", false)].map(
            |(kind, namespaced)| Served {
                api_version: "v1".into(),
                kind: kind.into(),
                namespaced,
            },
        );
        let mut taken: BTreeMap<ObjectRef, Vec<String>> = BTreeMap::new();
        for found in self.cluster.of_kinds(&kinds, "", "").await {
            for object in found? {
                let reference = ObjectRef::of(&object)?;
                if ends(&object) || self.remove.iter().any(|removed| same(removed, &reference)) {
                    continue;
                }
                if let Some(taker) = self.taker(&object).await? {
                    taken.entry(taker).or_default().push(reference.to_string());
                }
            }
        }
        Ok(taken)
    }

    /// The object to remove that owns an object, directly or through others.
    pub async fn taker(&mut self, object: &Value) -> Result<Option<ObjectRef>, ApiError> {
        let mut left = owners(object);
        let mut seen = BTreeSet::new();
        while let Some(named) = left.pop() {
            if !seen.insert(named.uid.clone()) {
                continue;
            }
            match self.read(&named).await? {
                Owner::Gone => {}
                Owner::Unseen => {
                    if let Some(taker) = self.going(&named.reference) {
                        return Ok(Some(taker));
                    }
                }
                Owner::There(owner) if is_scratch(object, &owner) => {}
                Owner::There(owner) => {
                    if let Some(taker) = self.going(&ObjectRef::of(&owner)?) {
                        return Ok(Some(taker));
                    }
                    left.extend(owners(&owner));
                }
            }
        }
        Ok(None)
    }

    /// The object to remove that removes this one: itself, or its definition.
    fn going(&self, reference: &ObjectRef) -> Option<ObjectRef> {
        let itself = self
            .remove
            .iter()
            .find(|removed| same(removed, reference))
            .cloned();
        itself.or_else(|| {
            let is_it = |of: &&Defined| of.group == reference.group() && of.kind == reference.kind;
            self.defined
                .iter()
                .find(is_it)
                .map(|of| of.definition.clone())
        })
    }

    async fn read(&mut self, named: &Named) -> Result<Owner, ApiError> {
        if let Some(known) = self.known.get(&named.uid) {
            return Ok(known.clone());
        }
        let cluster = self.cluster;
        let owner = match cluster
            .patiently(|| cluster.api.get(&named.reference))
            .await
        {
            Ok(Some(object)) if text(&object, "/metadata/uid") == named.uid => Owner::There(object),
            Ok(_) => Owner::Gone,
            Err(ApiError::NoSuchKind { .. }) => Owner::Unseen,
            Err(error) => return Err(error),
        };
        self.known.insert(named.uid.clone(), owner.clone());
        Ok(owner)
    }
}

fn owners(object: &Value) -> Vec<Named> {
    let entries = object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    let named = |entry: &Value| Named {
        reference: ObjectRef {
            api_version: text(entry, "/apiVersion"),
            kind: text(entry, "/kind"),
            namespace: text(object, "/metadata/namespace"),
            name: text(entry, "/name"),
        },
        uid: text(entry, "/uid"),
    };
    entries.into_iter().flatten().map(named).collect()
}

/// Returns whether a claim is a pod's ephemeral volume: its content is lost with every restart of
/// the pod, by design.
fn is_scratch(claim: &Value, owner: &Value) -> bool {
    let volumes = owner.pointer("/spec/volumes").and_then(Value::as_array);
    text(owner, "/kind") == "Pod"
        && volumes.into_iter().flatten().any(|volume| {
            let name = format!(
                "{}-{}",
                text(owner, "/metadata/name"),
                text(volume, "/name")
            );
            volume.get("ephemeral").is_some() && name == text(claim, "/metadata/name")
        })
}

fn text(object: &Value, pointer: &str) -> String {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}
