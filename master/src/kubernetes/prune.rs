//! `kubernetes.owned`, and what a manifest that is a set no longer names: removing what is ours, and only as a whole.
//!
//! What would take data with it is refused before anything is removed: volumes, classes that volumes are of, definitions
//! that others made objects of, namespaces in which others live.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures_util::future::join_all;
use halite_states::engine::{Checked, Failure};
use halite_states::low::Chunk;
use serde_json::Value;

use super::checks::AT_ONCE;
use super::modules::{Cluster, fail};
use super::operation::Operation;
use super::sets::{Member, SET, same};
use super::{ApiError, Reference, Served, waves};

/// What is in every namespace, or made and remade by controllers: no reason to keep one.
const ALWAYS_THERE: [(&str, &str); 2] = [("ConfigMap", "kube-root-ca.crt"), ("ServiceAccount", "default")];
const PASSING: [&str; 4] = ["Endpoints", "EndpointSlice", "Event", "Lease"];
/// So many reasons are named at most, of each kind of loss.
const NAMED: usize = 5;

/// Everything of any set, as it was found.
#[derive(Debug, Default)]
pub(super) struct Members {
    found: Vec<Member>,
    kinds: Vec<Served>,
    /// Kinds that could not be listed, with the reason.
    unseen: Vec<String>,
}

/// What of one or more sets is to go.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Surplus {
    /// In the order of removal.
    pub remove: Vec<Reference>,
    /// What stays because it says so, and kinds that could not be looked at.
    remarks: Vec<String>,
}

impl Cluster {
    /// `owned`: no object of a set that is not named.
    pub(super) async fn check_owned(&self, chunk: &Chunk) -> Result<Checked<Vec<Operation>>, Failure> {
        let sets: BTreeSet<&str> = chunk
            .args
            .get("sets")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let surplus = match self.surplus(|member| sets.contains(member.set.as_str())).await {
            Err(ApiError::Unreachable { .. }) if self.test => {
                let comment = "The Kubernetes API does not answer yet: known after apply".to_owned();
                return Ok(Checked { comment, ..Checked::default() });
            }
            other => other.map_err(fail)?,
        };
        let mut comment = surplus.remarks("of other sets");
        if surplus.remove.is_empty() {
            comment.insert(0, "Nothing of other sets is there".to_owned());
        }
        let mut checked = Checked { comment: comment.join("; "), ..Checked::default() };
        self.to_remove(surplus, &mut checked).await?;
        Ok(checked)
    }

    /// Adds removals to what a check found.
    pub(super) async fn to_remove(
        &self,
        surplus: Surplus,
        checked: &mut Checked<Vec<Operation>>,
    ) -> Result<(), Failure> {
        let losses = self.losses(&surplus.remove).await.map_err(fail)?;
        if !losses.is_empty() {
            return Err(Failure(format!(
                "nothing was removed, because this would be lost or cut off with it:\n  {}\nRemove it first, or declare again what it needs",
                losses.join("\n  ")
            )));
        }
        for reference in surplus.remove {
            checked.changes.insert(reference.to_string(), Value::from("removed"));
            checked.diff.push(Operation::Remove(reference));
        }
        Ok(())
    }

    /// The members that are not to stay.
    pub(super) async fn surplus(&self, stays: impl Fn(&Member) -> bool) -> Result<Surplus, ApiError> {
        if self.test && self.silent.load(Ordering::Relaxed) {
            return Err(ApiError::Unreachable {
                endpoint: String::new(),
                reason: "did not answer before".into(),
            });
        }
        let members = self.members().await?;
        let mut surplus = Surplus { remarks: members.unseen.clone(), ..Surplus::default() };
        for member in members.found.iter().filter(|member| !stays(member)) {
            if self.prediction(&member.reference) == Some(None) {
                continue;
            }
            if member.stays {
                surplus.remarks.push(format!("{} stays: its resource policy says so", member.reference));
            } else {
                surplus.remove.push(member.reference.clone());
            }
        }
        waves::for_removal(&mut surplus.remove);
        Ok(surplus)
    }

    /// All members of all sets; looked for once, and again after anything was changed.
    async fn members(&self) -> Result<Arc<Members>, ApiError> {
        if let Some(known) = self.known_members() {
            return Ok(known);
        }
        let kinds = self.patiently(|| self.api.kinds()).await?;
        let mut members = Members::default();
        for (kind, found) in kinds.iter().zip(self.of_kinds(&kinds, "", SET).await) {
            match found {
                Ok(objects) => members.found.extend(objects.iter().filter_map(Member::of)),
                Err(error @ ApiError::Unreachable { .. }) => return Err(error),
                Err(error) => {
                    members.unseen.push(format!(
                        "{} of {} could not be looked at: {error}",
                        kind.kind, kind.api_version
                    ));
                }
            }
        }
        members.kinds = kinds;
        let members = Arc::new(members);
        self.learn_members(Some(Arc::clone(&members)));
        Ok(members)
    }

    /// The metadata of the objects of some kinds; none of a kind that has gone meanwhile.
    async fn of_kinds(
        &self,
        kinds: &[Served],
        namespace: &str,
        labels: &str,
    ) -> Vec<Result<Vec<Value>, ApiError>> {
        let mut all = Vec::with_capacity(kinds.len());
        for some in kinds.chunks(AT_ONCE) {
            let asked = some.iter().map(|kind| async move {
                match self.api.metadata(kind, namespace, labels).await {
                    Err(ApiError::NoSuchKind { .. }) => Ok(Vec::new()),
                    Err(error) if error.is_not_found() => Ok(Vec::new()),
                    Err(ApiError::Unreachable { .. }) => {
                        self.patiently(|| self.api.metadata(kind, namespace, labels)).await
                    }
                    other => other,
                }
            });
            all.extend(join_all(asked).await);
        }
        all
    }

    /// What would be lost, or cut off, with these objects.
    async fn losses(&self, remove: &[Reference]) -> Result<Vec<String>, ApiError> {
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

    /// Waits until the API serves the kinds of definitions that were just applied, so that what follows can be of them;
    /// takes them off the list.
    pub(super) async fn established(&self, definitions: &mut Vec<Reference>) -> Result<(), Failure> {
        let deadline = Instant::now() + self.patience.total;
        for reference in definitions.drain(..) {
            loop {
                let object =
                    self.patiently(|| self.api.get(&reference)).await.map_err(fail)?.unwrap_or_default();
                if condition(&object, "Established").is_some_and(|(yes, _)| yes) {
                    break;
                }
                let refused = condition(&object, "NamesAccepted").filter(|(yes, _)| !yes);
                if refused.is_some() || Instant::now() >= deadline {
                    let why = refused.or_else(|| condition(&object, "Established")).map(|(_, why)| why);
                    return Err(Failure(format!(
                        "{reference}: the API does not serve it: {}",
                        why.unwrap_or_else(|| format!(
                            "no answer within {} s",
                            self.patience.total.as_secs()
                        ))
                    )));
                }
                tokio::time::sleep(self.patience.pause).await;
            }
        }
        Ok(())
    }

    /// Waits until removed objects have gone: whoever switches a set on again next must not meet them.
    pub(super) async fn gone(&self, removed: &[Reference]) -> Result<(), Failure> {
        let deadline = Instant::now() + self.patience.total;
        for reference in removed {
            while let Some(object) =
                self.patiently(|| self.api.get(reference)).await.or_else(gone_kind).map_err(fail)?
            {
                if Instant::now() >= deadline {
                    let holders =
                        object.pointer("/metadata/finalizers").or_else(|| object.pointer("/spec/finalizers"));
                    return Err(Failure(format!(
                        "{reference} is still being removed after {} s; its finalizers: {}. What they wait for has to end, then run this again",
                        self.patience.total.as_secs(),
                        holders.unwrap_or(&Value::Null)
                    )));
                }
                tokio::time::sleep(self.patience.pause).await;
            }
        }
        Ok(())
    }
}

/// An object whose kind has gone is gone too.
fn gone_kind(error: ApiError) -> Result<Option<Value>, ApiError> {
    if matches!(error, ApiError::NoSuchKind { .. }) { Ok(None) } else { Err(error) }
}

impl Surplus {
    /// For the answer of a state.
    pub(super) fn remarks(&self, which: &str) -> Vec<String> {
        let removed = match self.remove.len() {
            0 => None,
            1 => Some(format!("one object {which} is to be removed")),
            count => Some(format!("{count} objects {which} are to be removed")),
        };
        removed.into_iter().chain(self.remarks.iter().cloned()).collect()
    }
}

/// Whether a condition is true, and what its server says of it; `None` while it says nothing.
fn condition(object: &Value, name: &str) -> Option<(bool, String)> {
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array)?;
    let found = conditions.iter().find(|one| one.get("type").and_then(Value::as_str) == Some(name))?;
    let text = |key: &str| found.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    Some((text("status") == "True", text("message")))
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

#[cfg(test)]
#[path = "prune_tests.rs"]
mod tests;
