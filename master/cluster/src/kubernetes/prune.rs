//! `kubernetes.owned`, and the surplus objects of a manifest that is a set: removes Halite's own
//! objects, and either all of them or none.
//!
//! A removal that would take data with it is refused before anything is removed (see
//! [`super::losses`]).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::future::join_all;
use halite_errors::chain;
use halite_states::engine::{Checked, Failure};
use halite_states::low::Chunk;
use serde_json::Value;

use super::apply_order::Removal;
use super::checks::AT_ONCE;
use super::modules::{KubernetesModules, fail};
use super::operation::Operation;
use super::sets::{Declared, Members, SET, SetObject};
use super::{ApiError, ObjectRef, Served, apply_order};

/// The objects of one or more sets that will be removed.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Surplus {
    /// The removals in order.
    pub remove: Vec<Removal>,
    /// Notes about objects that stay by their own policy, and about kinds that cannot be listed.
    remarks: Vec<String>,
}

impl KubernetesModules {
    /// Checks `owned`: no object of an unnamed set of Halite's exists.
    pub(super) async fn check_owned(
        &self,
        chunk: &Chunk,
    ) -> Result<Checked<Vec<Operation>>, Failure> {
        let names = |key: &str| {
            let names = chunk
                .args
                .get(key)
                .and_then(Value::as_array)
                .into_iter()
                .flatten();
            names.filter_map(Value::as_str).map(str::to_owned)
        };
        let declared = Declared {
            sets: names("sets").collect(),
            among: names("among").collect(),
        };
        self.declare(declared.clone());
        let surplus = match self.surplus(|member| declared.stays(&member.set)).await {
            Err(ApiError::Unreachable { .. }) if self.test => {
                let comment =
                    "The Kubernetes API does not answer yet: known after apply".to_owned();
                return Ok(Checked {
                    comment,
                    ..Checked::default()
                });
            }
            other => other.map_err(fail)?,
        };
        let mut comment = surplus.remarks("of other sets");
        if surplus.remove.is_empty() {
            comment.insert(0, "No objects of other sets exist".to_owned());
        }
        let mut checked = Checked {
            comment: comment.join("; "),
            ..Checked::default()
        };
        self.to_remove(surplus, &mut checked).await?;
        Ok(checked)
    }

    /// Adds removals to the result of a check.
    pub(super) async fn to_remove(
        &self,
        surplus: Surplus,
        checked: &mut Checked<Vec<Operation>>,
    ) -> Result<(), Failure> {
        let losses = self.losses(&surplus.remove).await.map_err(fail)?;
        if !losses.is_empty() {
            return Err(Failure::new(format!(
                "nothing was removed, because this would be lost or orphaned:\n  {}\nRemove it first, declare again the objects that it needs, or take those objects out of their set: kubectl label KIND NAME {SET}-",
                losses.join("\n  ")
            )));
        }
        for removal in surplus.remove {
            let what = if removal.ends {
                "still being removed"
            } else {
                "removed"
            };
            checked
                .changes
                .insert(removal.reference.to_string(), Value::from(what));
            checked.diff.push(Operation::Remove(removal));
        }
        Ok(())
    }

    /// The members that do not stay.
    pub(super) async fn surplus(
        &self,
        stays: impl Fn(&SetObject) -> bool,
    ) -> Result<Surplus, ApiError> {
        if self.test && self.silent.load(Ordering::Relaxed) {
            return Err(ApiError::unreachable("", "did not answer before"));
        }
        let members = self.members().await?;
        let mut surplus = Surplus {
            remarks: members.unseen.clone(),
            ..Surplus::default()
        };
        let mut going = Vec::new();
        for member in members.found.iter().filter(|member| !stays(member)) {
            let moves = self.sets.has_moved(&member.set, &member.reference);
            if moves || self.prediction(&member.reference) == Some(None) {
                continue;
            }
            match (member.stays, member.ends) {
                // An operator may delete it.
                (true, true) => {}
                (true, false) => surplus.remarks.push(format!(
                    "{} stays because of its resource policy",
                    member.reference
                )),
                (false, _) => going.push(member),
            }
        }
        if going.is_empty() {
            return Ok(surplus);
        }
        let custom = self.custom_groups().await?;
        // A namespace is removed with the last set that it contains.
        let lives_on = |place: &ObjectRef| {
            let inside = |member: &&SetObject| {
                place.is_namespace()
                    && member.reference.namespace == place.name
                    && !going.contains(member)
            };
            members.found.iter().find(inside)
        };
        for SetObject {
            reference, ends, ..
        } in &going
        {
            match lives_on(reference).filter(|_| !ends) {
                Some(member) => surplus.remarks.push(format!(
                    "{reference} stays: it contains the set `{}`",
                    member.set
                )),
                None => surplus
                    .remove
                    .push(Removal::new(reference.clone(), *ends, &custom)),
            }
        }
        apply_order::for_removal(&mut surplus.remove);
        Ok(surplus)
    }

    /// The groups of custom resources. A definition's name contains its group after the plural.
    async fn custom_groups(&self) -> Result<BTreeSet<String>, ApiError> {
        let definitions = Served {
            api_version: "apiextensions.k8s.io/v1".into(),
            kind: "CustomResourceDefinition".into(),
            namespaced: false,
        };
        let mut groups = BTreeSet::new();
        for found in self.of_kinds(&[definitions], "", "").await {
            for object in found? {
                let name = ObjectRef::of(&object)?.name;
                groups.extend(name.split_once('.').map(|(_, group)| group.to_owned()));
            }
        }
        Ok(groups)
    }

    /// All members of all sets; searched once, and again after any change.
    pub(super) async fn members(&self) -> Result<Arc<Members>, ApiError> {
        if let Some(known) = self.known_members() {
            return Ok(known);
        }
        let kinds = self.patiently(|| self.api.kinds()).await?;
        let mut members = Members::default();
        for (kind, found) in kinds.iter().zip(self.of_kinds(&kinds, "", SET).await) {
            match found {
                Ok(objects) => members
                    .found
                    .extend(objects.iter().filter_map(SetObject::of)),
                Err(error @ ApiError::Unreachable { .. }) => return Err(error),
                Err(error) => {
                    members.unseen.push(format!(
                        "cannot list {} of {}: {}",
                        kind.kind,
                        kind.api_version,
                        chain(&error)
                    ));
                }
            }
        }
        members.kinds = kinds;
        let members = Arc::new(members);
        self.learn_members(Some(Arc::clone(&members)));
        Ok(members)
    }

    /// The metadata of the objects of some kinds; empty for a kind that has disappeared in the
    /// meantime.
    pub(super) async fn of_kinds(
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
                        self.patiently(|| self.api.metadata(kind, namespace, labels))
                            .await
                    }
                    other => other,
                }
            });
            all.extend(join_all(asked).await);
        }
        all
    }
}

impl Surplus {
    /// Formats the remarks for the result of a state.
    pub(super) fn remarks(&self, which: &str) -> Vec<String> {
        let removed = match self.remove.len() {
            0 => None,
            1 => Some(format!("one object {which} will be removed")),
            count => Some(format!("{count} objects {which} will be removed")),
        };
        removed
            .into_iter()
            .chain(self.remarks.iter().cloned())
            .collect()
    }
}

#[cfg(test)]
#[path = "prune_tests.rs"]
mod tests;
