//! The checks of the state functions `kubernetes.*`: the live state, the desired state, and their
//! difference.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::{join, join_all};
use halite_errors::chain;
use halite_states::args::Args;
use halite_states::engine::{Checked, Failure};
use halite_states::low::Chunk;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::arguments::with_stored_data;
use super::modules::{KubernetesModules, fail, fail_at, provides};
use super::operation::Operation;
use super::{ApiError, ObjectRef, apply_order, compare, conflicts, node, sets};

/// Default timeout of `api_ready`, in seconds: enough for a cold start with etcd's election if the
/// images are present.
const READY_TIMEOUT: u64 = 300;
/// The number of objects, or kinds, that are queried concurrently.
pub(super) const AT_ONCE: usize = 8;

/// The result of the check of one object.
enum Found {
    Same,
    /// It stays as it is, although it lacks something of the declared one.
    Guest,
    Differs {
        diff: String,
        operation: Operation,
        /// `true` if the diff must not be displayed: the live object may hold a secret.
        hidden: bool,
        /// The fields that are taken from other managers.
        takes: Option<String>,
    },
}

impl KubernetesModules {
    pub(super) async fn check_documents(
        &self,
        chunk: &Chunk,
        documents: Vec<Value>,
    ) -> Result<Checked<Vec<Operation>>, Failure> {
        let whole = Args::new(chunk).flag("whole", false)?;
        let set = Args::new(chunk).text("set")?;
        let documents = documents.into_iter().map(with_stored_data).collect();
        let mut documents = apply_order::in_order(documents);
        if chunk.sensitive {
            documents.iter_mut().for_each(sets::mark_secret);
        }
        if let Some(set) = &set {
            self.keeps(chunk, set)?;
            for document in &mut documents {
                *document = sets::marked(document, set).map_err(fail)?;
            }
        }
        let documents = documents.as_slice();
        let mut checked: Checked<Vec<Operation>> = Checked::default();
        let mut after_apply = false;
        let mut all = Vec::with_capacity(documents.len());
        for document in documents {
            all.push((ObjectRef::of(document).map_err(fail)?, document));
        }
        let mut results = Vec::with_capacity(all.len());
        // Objects that contain others come first: while such an object is being removed, the server
        // accepts nothing into it.
        let waves =
            all.chunk_by(|(a, _), (b, _)| apply_order::wave_of(a) == apply_order::wave_of(b));
        for some in waves.flat_map(|wave| wave.chunks(AT_ONCE)) {
            let begin = Instant::now();
            let checks = some.iter().map(|(reference, wanted)| {
                self.check_one(reference, wanted, whole, set.as_deref(), documents)
            });
            results.extend(join_all(checks).await);
            // The next ones would wait as long. A test run waits for none.
            let has_waited = !self.test && begin.elapsed() >= self.patience.total;
            let ends = |error: &ApiError| {
                has_waited || (!self.test && matches!(error, ApiError::Unreachable { .. }))
            };
            if results
                .iter()
                .any(|result| result.as_ref().is_err_and(ends))
            {
                break;
            }
        }
        let unchecked = all.len() - results.len();
        let mut failures = Vec::new();
        let mut remarks = Vec::new();
        let mut is_silent = false;
        for ((reference, document), result) in all.iter().zip(results) {
            let found = match result {
                // Missing objects cannot be compared: all of them would be created.
                Err(ApiError::Unreachable { .. }) if self.test => {
                    after_apply = true;
                    Found::Differs {
                        diff: compare::diff(None, Some(document)),
                        operation: Operation::Apply((*document).clone()),
                        hidden: false,
                        takes: None,
                    }
                }
                // One failure for all of them.
                Err(ApiError::Unreachable { .. }) if is_silent => continue,
                Err(error) => {
                    is_silent |= matches!(error, ApiError::Unreachable { .. });
                    failures.push(fail_at(chunk, reference, error).text());
                    continue;
                }
                Ok(found) => found,
            };
            match found {
                Found::Same => {}
                Found::Guest => remarks.push(format!(
                    "{reference} stays as it is, because it existed before or belongs to another set: to manage it here, give it the label {}={}",
                    sets::SET,
                    set.as_deref().unwrap_or_default()
                )),
                Found::Differs {
                    diff,
                    operation,
                    hidden,
                    takes,
                } => {
                    let hidden = hidden || chunk.sensitive;
                    // The path of a field may contain a value.
                    let takes = takes.filter(|_| !hidden);
                    remarks.extend(takes.map(|takes| format!("{reference}: {takes}")));
                    let shown = if hidden {
                        "changes (not shown: it holds a secret)".into()
                    } else {
                        diff
                    };
                    checked
                        .changes
                        .insert(reference.to_string(), Value::from(shown));
                    checked.diff.push(operation);
                }
            }
        }
        if !failures.is_empty() {
            if unchecked > 0 {
                failures.push(format!("{unchecked} more were not checked"));
            }
            return Err(Failure::new(failures.join("\n")));
        }
        checked.comment = match (checked.diff.len(), documents.len()) {
            (0, 1) => "The object is up to date".into(),
            (0, all) => format!("All {all} objects are up to date"),
            (some, all) if after_apply => {
                format!(
                    "{some} of {all} objects would be applied; the Kubernetes API does not answer yet: known after apply"
                )
            }
            (some, all) => format!("{some} of {all} objects differ"),
        };
        for remark in remarks {
            checked.comment.push_str("; ");
            checked.comment.push_str(&remark);
        }
        if let Some(set) = set.filter(|_| !after_apply) {
            let named = |member: &sets::SetObject| {
                all.iter()
                    .any(|(wanted, _)| sets::same(wanted, &member.reference))
            };
            let stays = |member: &sets::SetObject| member.set != set || named(member);
            match self.surplus(stays).await {
                // Then nothing is known about the objects either.
                Err(ApiError::Unreachable { .. }) if self.test => {}
                other => {
                    let surplus = other.map_err(fail)?;
                    for remark in surplus.remarks(&format!("that `{set}` no longer names")) {
                        checked.comment.push_str("; ");
                        checked.comment.push_str(&remark);
                    }
                    self.to_remove(surplus, &mut checked).await?;
                }
            }
        }
        Ok(checked)
    }

    /// The fields that an apply takes from other managers, as a sentence. A drift that another
    /// manager causes comes back as long as both set the field. An error of the API is none of the
    /// state, whose apply was accepted.
    async fn taken_over(&self, found: Found) -> Found {
        match found {
            Found::Differs {
                diff,
                operation: Operation::Apply(object),
                hidden,
                ..
            } => {
                let conflicts = self.api.conflicts(&object).await.unwrap_or_default();
                Found::Differs {
                    diff,
                    operation: Operation::Apply(object),
                    hidden,
                    takes: conflicts::sentence(&conflicts),
                }
            }
            other => other,
        }
    }

    /// Compares one object; `beside` contains the objects of the same manifest, one of which may be
    /// the namespace or the definition of another. `set` is their set, if any.
    async fn check_one(
        &self,
        reference: &ObjectRef,
        wanted: &Value,
        whole: bool,
        set: Option<&str>,
        beside: &[Value],
    ) -> Result<Found, ApiError> {
        if let Some(predicted) = self.prediction(reference) {
            let existing = predicted.as_ref().map(sets::applied);
            if let Some(existing) = &existing
                && let Some(found) = self.of_another(reference, existing, wanted, set)?
            {
                return Ok(found);
            }
            let mut after = predicted.clone().unwrap_or(Value::Null);
            compare::merge(&mut after, wanted);
            return Ok(self.compared(predicted.as_ref(), &after, Operation::Apply(wanted.clone())));
        }
        if self.test && self.silent.load(Ordering::Relaxed) {
            return Err(ApiError::unreachable("", "did not answer before"));
        }
        let expected = |error: &ApiError| {
            (error.is_not_found() || matches!(error, ApiError::NoSuchKind { .. }))
                && (beside.iter().any(|object| provides(object, reference))
                    || self.comes_with_this_run(reference))
        };
        let get = self.patiently(|| self.api.get(reference));
        let (live, applied) = if whole {
            (get.await, None)
        } else {
            let dry_run = self.patiently(|| self.api.apply(wanted, true));
            let (live, applied) = join(get, dry_run).await;
            (live, Some(applied))
        };
        let live = match live {
            Err(error) if expected(&error) => None,
            other => other?,
        };
        if live.as_ref().is_some_and(sets::ends) {
            // A test run does not wait.
            if self.test {
                return Ok(self.compared(None, wanted, Operation::Apply(wanted.clone())));
            }
            self.ended(reference, Instant::now() + self.patience.total)
                .await?;
            return Box::pin(self.check_one(reference, wanted, whole, set, beside)).await;
        }
        let Some(live) = live else {
            // The dry run reveals refusals of the server; the diff shows the written content,
            // without the server's defaults.
            let applied = match applied {
                Some(applied) => applied,
                None => self.patiently(|| self.api.apply(wanted, true)).await,
            };
            match applied {
                Err(error) if !expected(&error) => return Err(error),
                _ => {}
            }
            return Ok(Found::Differs {
                diff: compare::diff(None, Some(wanted)),
                operation: Operation::Apply(wanted.clone()),
                hidden: false,
                takes: None,
            });
        };
        if let Some(found) = self.of_another(reference, &live, wanted, set)? {
            return Ok(found);
        }
        if compare::role_reference_differs(&live, wanted) {
            return Ok(self.compared(Some(&live), wanted, Operation::Recreate(wanted.clone())));
        }
        if let Some(applied) = applied {
            let found = self.compared(Some(&live), &applied?, Operation::Apply(wanted.clone()));
            return Ok(self.taken_over(found).await);
        }
        let replaced = compare::replaced(&live, wanted);
        if compare::same(&live, &replaced) {
            return Ok(Found::Same);
        }
        let after = self.patiently(|| self.api.replace(&replaced, true)).await?;
        Ok(self.compared(Some(&live), &after, Operation::Replace(wanted.clone())))
    }

    /// The result for an existing object that does not belong to the set; `None` if it does, or if
    /// the state names no set.
    fn of_another(
        &self,
        reference: &ObjectRef,
        existing: &Value,
        wanted: &Value,
        set: Option<&str>,
    ) -> Result<Option<Found>, ApiError> {
        let kept = |other: &str| self.is_declared(other) && !self.sets.has_lost(other, reference);
        match set.map(|set| sets::ownership(existing, set, kept)) {
            Some(sets::Ownership::Refused(why)) => Err(ApiError::Malformed(why)),
            Some(sets::Ownership::Theirs) if sets::lacks(existing, wanted) => {
                Ok(Some(Found::Guest))
            }
            Some(sets::Ownership::Theirs) => Ok(Some(Found::Same)),
            Some(sets::Ownership::Ours) | None => Ok(None),
        }
    }

    fn compared(&self, live: Option<&Value>, after: &Value, operation: Operation) -> Found {
        match live {
            Some(live) if compare::same(live, after) => Found::Same,
            live => Found::Differs {
                diff: compare::diff(live, Some(after)),
                operation,
                hidden: live.is_some_and(sets::holds_secret),
                takes: None,
            },
        }
    }

    pub(super) async fn check_absent(
        &self,
        chunk: &Chunk,
    ) -> Result<Checked<Vec<Operation>>, Failure> {
        let reference = ObjectRef {
            api_version: Args::new(chunk)
                .text("api_version")?
                .unwrap_or_else(|| "v1".into()),
            kind: Args::new(chunk).required("kind")?,
            namespace: Args::new(chunk).text("namespace")?.unwrap_or_default(),
            name: Args::new(chunk)
                .text("object")?
                .unwrap_or_else(|| chunk.name.clone()),
        };
        let live = match self.prediction(&reference) {
            Some(predicted) => predicted,
            None => match self.patiently(|| self.api.get(&reference)).await {
                // Without the kind, or in a test run without any API, there is nothing to remove.
                Err(ApiError::NoSuchKind { .. }) => None,
                Err(ApiError::Unreachable { .. }) if self.test => None,
                other => other.map_err(|error| fail_at(chunk, &reference, error))?,
            },
        };
        // An object that is already being deleted needs no second request.
        let live = live.filter(|object| !sets::ends(object));
        let Some(live) = live else {
            return Ok(Checked {
                comment: format!("{reference} is absent"),
                ..Checked::default()
            });
        };
        let shown = if chunk.sensitive || sets::holds_secret(&live) {
            "removed".into()
        } else {
            compare::diff(Some(&live), None)
        };
        Ok(Checked {
            changes: Map::from_iter([(reference.to_string(), Value::from(shown))]),
            comment: format!("{reference} will be removed"),
            diff: vec![Operation::Delete(reference)],
        })
    }

    /// `api_ready` is a check that waits: it changes nothing. A test run checks once.
    pub(super) async fn check_ready(
        &self,
        chunk: &Chunk,
    ) -> Result<Checked<Vec<Operation>>, Failure> {
        let seconds = Args::new(chunk).number("timeout")?.unwrap_or(READY_TIMEOUT);
        let deadline = Instant::now() + Duration::from_secs(seconds);
        loop {
            match self.api.ready().await {
                Ok(()) => {
                    self.silent.store(false, Ordering::Relaxed);
                    return Ok(Checked {
                        comment: "The Kubernetes API is ready".into(),
                        ..Checked::default()
                    });
                }
                Err(_) if self.test => {
                    self.silent.store(true, Ordering::Relaxed);
                    let comment = format!(
                        "The Kubernetes API does not answer yet; a run waits {seconds} s for it"
                    );
                    return Ok(Checked {
                        comment,
                        ..Checked::default()
                    });
                }
                Err(error) if Instant::now() >= deadline => {
                    self.silent.store(true, Ordering::Relaxed);
                    return Err(Failure::new(format!(
                        "{}; waited {seconds} s. Check the logs of the static pods under /var/log/pods on a control-plane node",
                        chain(&error)
                    )));
                }
                Err(_) => tokio::time::sleep(self.patience.pause).await,
            }
        }
    }

    pub(super) async fn check_node(
        &self,
        chunk: &Chunk,
    ) -> Result<Checked<Vec<Operation>>, Failure> {
        let map = |key: &str| {
            chunk
                .args
                .get(key)
                .and_then(Value::as_object)
                .cloned()
                .unwrap_or_default()
        };
        let wanted = node::NodeSettings {
            name: Args::new(chunk)
                .text("object")?
                .unwrap_or_else(|| chunk.name.clone()),
            labels: map("labels"),
            annotations: map("annotations"),
            taints: chunk.args.get("taints").and_then(Value::as_array).cloned(),
            record: Args::new(chunk).text("record")?,
        };
        let reference = node::reference(&wanted.name);
        let live = match self.prediction(&reference) {
            Some(predicted) => predicted,
            None => self.registered(chunk, &reference).await?,
        };
        let unknown = self.test && self.silent.load(Ordering::Relaxed);
        let awaited = self.test && self.expected.contains(&wanted.name);
        if live.is_none() && !awaited {
            let comment = format!("{reference} has not joined yet: nothing to set");
            return Ok(Checked {
                comment,
                ..Checked::default()
            });
        }
        // In a test run for a node that is about to register, everything is still to be set.
        let after = wanted.laid_over(live.as_ref().unwrap_or(&Value::Object(Map::new())));
        if live
            .as_ref()
            .is_some_and(|live| compare::same(live, &after))
        {
            return Ok(Checked {
                comment: format!("{reference} is up to date"),
                ..Checked::default()
            });
        }
        Ok(Checked {
            changes: Map::from_iter([(
                reference.to_string(),
                Value::from(compare::diff(live.as_ref(), Some(&after))),
            )]),
            comment: if unknown {
                format!(
                    "{reference} may differ; the Kubernetes API does not answer yet: known after apply"
                )
            } else {
                format!("{reference} differs")
            },
            diff: vec![Operation::Node(wanted)],
        })
    }

    /// The live node. A kubelet that was just started needs a moment to register its node, so for a
    /// host that has joined, this waits once in a run. Nothing can be set on a node that is only
    /// declared, or whose host is not at that point.
    async fn registered(
        &self,
        chunk: &Chunk,
        reference: &ObjectRef,
    ) -> Result<Option<Value>, Failure> {
        let wait = !self.test && self.expected.contains(&reference.name);
        let deadline = Instant::now() + self.patience.node;
        if self.test && self.silent.load(Ordering::Relaxed) {
            return Ok(None);
        }
        loop {
            match self.patiently(|| self.api.get(reference)).await {
                Err(ApiError::Unreachable { .. }) if self.test => return Ok(None),
                Ok(None) if wait && !self.waited.load(Ordering::Relaxed) => {
                    if Instant::now() >= deadline {
                        self.waited.store(true, Ordering::Relaxed);
                    }
                    tokio::time::sleep(self.patience.pause).await;
                }
                other => return other.map_err(|error| fail_at(chunk, reference, error)),
            }
        }
    }
}
