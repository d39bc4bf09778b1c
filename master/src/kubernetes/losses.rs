//! What would be lost, or cut off, with objects that are to be removed: reasons not to.

use serde_json::Value;

use super::modules::Cluster;
use super::sets::same;
use super::{ApiError, Reference, Served};

/// What is in every namespace, or made and remade by controllers: no reason to keep one.
const ALWAYS_THERE: [(&str, &str); 2] = [("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")];
const PASSING: [&str; 4] = ["Endpoints", "EndpointSlice", "Event", "Lease"];
/// So many reasons are named at most, of each kind of loss.
const NAMED: usize = 5;

impl Cluster {
    /// What would be lost, or cut off, with these objects.
    pub(super) async fn losses(&self, remove: &[Reference]) -> Result<Vec<String>, ApiError> {
        let mut losses = Vec::new();
        for reference in remove {
            let used_by = match reference.kind.as_str() {
                "PersistentVolume" | "PersistentVolumeClaim" => vec!["the data in it".to_owned()],
                "StorageClass" => self.volumes_of(&reference.name).await?,
                "CustomResourceDefinition" => self.objects_of(reference, remove).await?,
                "Namespace" => self.inhabitants(&reference.name, remove).await?,
                _ => Vec::new(),
            };
            if !used_by.is_empty() {
                losses.push(format!("{reference}: {}", some_of(&used_by)));
            }
        }
        Ok(losses)
    }

    /// Claims of a storage class, and volumes of it that no such claim stands for.
    async fn volumes_of(&self, class: &str) -> Result<Vec<String>, ApiError> {
        let of_class =
            |object: &Value| object.pointer("/spec/storageClassName").and_then(Value::as_str) == Some(class);
        let list = |kind: &'static str| self.patiently(move || self.api.list("v1", kind, "", ""));
        let claims = typed(list("PersistentVolumeClaim").await?, "PersistentVolumeClaim");
        let volumes = typed(list("PersistentVolume").await?, "PersistentVolume");
        let text = |object: &Value, pointer: &str| {
            object.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        let claimed = |volume: &Value| {
            let claim = (text(volume, "/spec/claimRef/namespace"), text(volume, "/spec/claimRef/name"));
            claims
                .iter()
                .any(|c| of_class(c) && (text(c, "/metadata/namespace"), text(c, "/metadata/name")) == claim)
        };
        let alone = volumes.iter().filter(|volume| !claimed(volume));
        let used = claims.iter().chain(alone).filter(|object| of_class(object));
        used.map(|object| Reference::of(object).map(|reference| reference.to_string())).collect()
    }

    /// Objects of a definition that do not go with it anyway.
    async fn objects_of(
        &self,
        definition: &Reference,
        remove: &[Reference],
    ) -> Result<Vec<String>, ApiError> {
        let Some(definition) = self.patiently(|| self.api.get(definition)).await? else {
            return Ok(Vec::new());
        };
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (group, kind) = (text("/spec/group"), text("/spec/names/kind"));
        let members = self.members().await?;
        let is_it =
            |served: &&Served| served.kind == kind && served.api_version.split('/').next() == Some(group);
        let kinds: Vec<Served> = members.kinds.iter().filter(is_it).cloned().collect();
        self.others(&kinds, "", remove).await
    }

    /// What lives in a namespace and does not go anyway.
    async fn inhabitants(&self, namespace: &str, remove: &[Reference]) -> Result<Vec<String>, ApiError> {
        let members = self.members().await?;
        let inside = |kind: &&Served| kind.namespaced && !PASSING.contains(&kind.kind.as_str());
        let kinds: Vec<Served> = members.kinds.iter().filter(inside).cloned().collect();
        self.others(&kinds, namespace, remove).await
    }

    async fn others(
        &self,
        kinds: &[Served],
        namespace: &str,
        remove: &[Reference],
    ) -> Result<Vec<String>, ApiError> {
        let mut others = Vec::new();
        for found in self.of_kinds(kinds, namespace, "").await {
            for object in found? {
                let reference = Reference::of(&object)?;
                let metadata = |field: &str| object.pointer(&format!("/metadata/{field}"));
                let goes = metadata("deletionTimestamp").is_some_and(|time| !time.is_null())
                    || metadata("ownerReferences")
                        .and_then(Value::as_array)
                        .is_some_and(|owners| !owners.is_empty())
                    || ALWAYS_THERE.contains(&(reference.kind.as_str(), reference.name.as_str()))
                    || remove.iter().any(|removed| same(removed, &reference));
                if !goes {
                    others.push(reference.to_string());
                }
            }
        }
        Ok(others)
    }
}

/// Members of a list do not say themselves what they are.
fn typed(mut objects: Vec<Value>, kind: &str) -> Vec<Value> {
    for object in objects.iter_mut().filter_map(Value::as_object_mut) {
        object.insert("apiVersion".into(), Value::from("v1"));
        object.insert("kind".into(), Value::from(kind));
    }
    objects
}

fn some_of(names: &[String]) -> String {
    let shown = names.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
