//! The data that would be lost or orphaned with the removal of objects, which is a reason to refuse
//! it.

use serde_json::Value;

use super::apply_order::Removal;
use super::modules::KubernetesModules;
use super::ownership::{Defined, Owners};
use super::sets::{ends, same};
use super::waits::condition;
use super::{ApiError, ObjectRef, Served};

/// Objects that exist in every namespace, or that controllers recreate: no reason to keep a
/// namespace.
const ALWAYS_THERE: [(&str, &str); 2] = [
    ("ConfigMap", "kube-root-ca.crt"),
    ("ServiceAccount", "default"),
];
const PASSING: [(&str, &str); 3] = [
    ("", "Endpoints"),
    ("discovery.k8s.io", "EndpointSlice"),
    ("coordination.k8s.io", "Lease"),
];
/// The maximum number of reasons that are named for each kind of loss.
const NAMED: usize = 5;

impl KubernetesModules {
    /// The data that would be lost or orphaned with these objects. Data of objects that are already
    /// being deleted is lost anyway.
    pub(super) async fn losses(&self, removals: &[Removal]) -> Result<Vec<String>, ApiError> {
        let mut losses = Vec::new();
        let references = |removals: &mut dyn Iterator<Item = &Removal>| {
            removals
                .map(|removal| removal.reference.clone())
                .collect::<Vec<_>>()
        };
        let judged = references(&mut removals.iter().filter(|removal| !removal.ends));
        if judged.is_empty() {
            return Ok(losses);
        }
        let remove = references(&mut removals.iter());
        let remove = remove.as_slice();
        let defined = self.defined_by(&judged).await?;
        let mut owners = Owners::new(self, &judged, &defined);
        let mut owned = owners.data().await?;
        for reference in &judged {
            let mut used_by = match (reference.group(), reference.kind.as_str()) {
                _ if is_data(reference) => vec!["the data in it".to_owned()],
                ("storage.k8s.io", "StorageClass") => self.volumes_of(&reference.name).await?,
                ("apiextensions.k8s.io", "CustomResourceDefinition") => {
                    let of_it = defined.iter().find(|of| of.definition == *reference);
                    match of_it {
                        Some(of_it) => self.objects_of(of_it, remove, &mut owners).await?,
                        None => Vec::new(),
                    }
                }
                ("", "Namespace") => self.inhabitants(&reference.name, remove).await?,
                _ => Vec::new(),
            };
            used_by.extend(owned.remove(reference).into_iter().flatten());
            if !used_by.is_empty() {
                losses.push(format!("{reference}: {}", some_of(&used_by)));
            }
        }
        Ok(losses)
    }

    /// The kinds that would cease to exist with the definitions among these objects.
    pub(super) async fn defined_by(&self, remove: &[ObjectRef]) -> Result<Vec<Defined>, ApiError> {
        let mut all = Vec::new();
        for reference in remove.iter().filter(|reference| reference.is_definition()) {
            let Some(definition) = self.patiently(|| self.api.get(reference)).await? else {
                continue;
            };
            let text = |pointer: &str| {
                definition
                    .pointer(pointer)
                    .and_then(Value::as_str)
                    .unwrap_or_default()
                    .to_owned()
            };
            all.push(Defined {
                group: text("/spec/group"),
                kind: text("/spec/names/kind"),
                definition: reference.clone(),
                established: condition(&definition, "Established").is_none_or(|(yes, _)| yes),
            });
        }
        Ok(all)
    }

    /// The claims of a storage class, and its volumes without such a claim.
    async fn volumes_of(&self, class: &str) -> Result<Vec<String>, ApiError> {
        let of_class = |object: &Value| {
            object
                .pointer("/spec/storageClassName")
                .and_then(Value::as_str)
                == Some(class)
        };
        let list = |kind: &'static str| self.patiently(move || self.api.list("v1", kind, "", ""));
        let claims = typed(
            list("PersistentVolumeClaim").await?,
            "PersistentVolumeClaim",
        );
        let volumes = typed(list("PersistentVolume").await?, "PersistentVolume");
        let text = |object: &Value, pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let claimed = |volume: &Value| {
            let claim = (
                text(volume, "/spec/claimRef/namespace"),
                text(volume, "/spec/claimRef/name"),
            );
            claims.iter().any(|c| {
                of_class(c) && (text(c, "/metadata/namespace"), text(c, "/metadata/name")) == claim
            })
        };
        let alone = volumes.iter().filter(|volume| !claimed(volume));
        let used = claims.iter().chain(alone).filter(|object| of_class(object));
        used.map(|object| ObjectRef::of(object).map(|reference| reference.to_string()))
            .collect()
    }

    /// The objects of a definition that would not be removed anyway.
    async fn objects_of(
        &self,
        of: &Defined,
        remove: &[ObjectRef],
        owners: &mut Owners<'_>,
    ) -> Result<Vec<String>, ApiError> {
        let members = self.members().await?;
        let is_it = |served: &&Served| served.kind == of.kind && served.group() == of.group;
        let kinds: Vec<Served> = members.kinds.iter().filter(is_it).cloned().collect();
        if kinds.is_empty() && of.established {
            return Ok(vec![format!(
                "the API does not serve {} of {}, so its objects cannot be listed",
                of.kind, of.group
            )]);
        }
        let mut objects = Vec::new();
        for (reference, object) in self.others(&kinds, "", remove).await? {
            // An object whose owner stays would be orphaned.
            if owners.taker(&object).await?.is_none() {
                objects.push(reference.to_string());
            }
        }
        Ok(objects)
    }

    /// The objects in a namespace that would not be removed anyway.
    async fn inhabitants(
        &self,
        namespace: &str,
        remove: &[ObjectRef],
    ) -> Result<Vec<String>, ApiError> {
        let members = self.members().await?;
        let passing = |kind: &Served| {
            kind.is_event() || PASSING.contains(&(kind.group(), kind.kind.as_str()))
        };
        let inside = |kind: &&Served| kind.namespaced && !passing(kind);
        let kinds: Vec<Served> = members.kinds.iter().filter(inside).cloned().collect();
        let others = self.others(&kinds, namespace, remove).await?;
        // An object with an owner is not counted separately; but data is, whichever controller
        // created the claim.
        let counts =
            |(reference, object): &&(ObjectRef, Value)| is_data(reference) || !has_owner(object);
        Ok(others
            .iter()
            .filter(counts)
            .map(|(reference, _)| reference.to_string())
            .collect())
    }

    async fn others(
        &self,
        kinds: &[Served],
        namespace: &str,
        remove: &[ObjectRef],
    ) -> Result<Vec<(ObjectRef, Value)>, ApiError> {
        let mut others = Vec::new();
        for found in self.of_kinds(kinds, namespace, "").await {
            for object in found? {
                let reference = ObjectRef::of(&object)?;
                let goes = ends(&object)
                    || (reference.group().is_empty()
                        && ALWAYS_THERE
                            .contains(&(reference.kind.as_str(), reference.name.as_str())))
                    || remove.iter().any(|removed| same(removed, &reference));
                if !goes {
                    others.push((reference, object));
                }
            }
        }
        Ok(others)
    }
}

fn has_owner(object: &Value) -> bool {
    let owners = object
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    owners.is_some_and(|owners| !owners.is_empty())
}

/// Returns whether an object contains data.
fn is_data(reference: &ObjectRef) -> bool {
    reference.group().is_empty()
        && matches!(
            reference.kind.as_str(),
            "PersistentVolume" | "PersistentVolumeClaim"
        )
}

/// Adds the type to the members of a list, which lack it.
fn typed(mut objects: Vec<Value>, kind: &str) -> Vec<Value> {
    for object in objects.iter_mut().filter_map(Value::as_object_mut) {
        object.insert("apiVersion".into(), Value::from("v1"));
        object.insert("kind".into(), Value::from(kind));
    }
    objects
}

fn some_of(names: &[String]) -> String {
    let shown = names
        .iter()
        .take(NAMED)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
