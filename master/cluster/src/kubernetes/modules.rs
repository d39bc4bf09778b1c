//! The state functions `kubernetes.*` (and the trivial `test.*`) of the `master` target.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use halite_errors::chain;
use halite_states::engine::{Applied, Checked, Failure, Modules};
use halite_states::low::Chunk;
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::apply_order::CUSTOM;
use super::arguments::{check_test, flattened};
use super::declared_sets::DeclaredSets;
use super::operation::Operation;
use super::sets::{Declared, Members};
use super::{Api, ApiError, ObjectRef};

/// The waiting times of a run.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// The time for which a state retries when the API stops answering (its static pod was just
    /// changed).
    pub total: Duration,
    /// The time for which a run waits for a kubelet to register its node.
    pub node: Duration,
    /// The pause between two attempts.
    pub pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            total: Duration::from_secs(60),
            node: Duration::from_secs(30),
            pause: Duration::from_millis(250),
        }
    }
}

/// Runs the states of Kubernetes objects over an [`Api`].
pub struct KubernetesModules {
    pub(super) api: Arc<dyn Api>,
    pub(super) test: bool,
    pub(super) patience: Patience,
    /// In test mode, the objects that later checks see; `None` for an object that would be removed.
    predicted: Mutex<BTreeMap<ObjectRef, Option<Value>>>,
    /// Groups and kinds of the definitions that this run applied: the server needs a moment until
    /// it serves them.
    defined: Mutex<BTreeSet<(String, String)>>,
    /// The objects of all sets, after the first search.
    members: Mutex<Option<Arc<Members>>>,
    /// The declared sets, once a `kubernetes.owned` state has named them.
    declared: Mutex<Option<Declared>>,
    /// The id of the state that manages each set.
    keepers: Mutex<BTreeMap<String, String>>,
    /// The sets of the whole run.
    pub(super) sets: DeclaredSets,
    /// `true` if the API did not answer within its patience: later states do not wait for it again.
    pub(super) silent: AtomicBool,
    /// Nodes whose hosts have joined.
    pub(super) expected: BTreeSet<String>,
    /// `true` after a wait for a node in vain.
    pub(super) waited: AtomicBool,
}

impl KubernetesModules {
    /// With `test` nothing is applied, so nothing waits either.
    #[must_use]
    pub fn new(api: Arc<dyn Api>, test: bool, patience: Patience) -> Self {
        Self {
            api,
            test,
            patience,
            predicted: Mutex::default(),
            defined: Mutex::default(),
            members: Mutex::default(),
            declared: Mutex::default(),
            keepers: Mutex::default(),
            sets: DeclaredSets::default(),
            silent: AtomicBool::new(false),
            expected: BTreeSet::new(),
            waited: AtomicBool::new(false),
        }
    }

    /// Names the nodes whose hosts have joined, so that a wait for their registration makes sense.
    #[must_use]
    pub fn expecting(mut self, nodes: impl IntoIterator<Item = String>) -> Self {
        self.expected.extend(nodes);
        self
    }

    /// Names the states of the run, so that objects can move between their sets.
    #[must_use]
    pub fn running(mut self, chunks: &[Chunk]) -> Self {
        self.sets = DeclaredSets::of(chunks);
        self
    }

    pub(super) fn prediction(&self, reference: &ObjectRef) -> Option<Option<Value>> {
        self.predicted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(reference)
            .cloned()
    }

    fn foresee(&self, reference: ObjectRef, object: Option<Value>) {
        self.predicted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(reference, object);
    }

    pub(super) fn known_members(&self) -> Option<Arc<Members>> {
        self.members
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn learn_members(&self, members: Option<Arc<Members>>) {
        *self.members.lock().unwrap_or_else(PoisonError::into_inner) = members;
    }

    pub(super) fn declare(&self, declared: Declared) {
        *self.declared.lock().unwrap_or_else(PoisonError::into_inner) = Some(declared);
    }

    /// Returns whether a set is declared. A set that this run cannot judge counts as declared.
    pub(super) fn is_declared(&self, set: &str) -> bool {
        let declared = self.declared.lock().unwrap_or_else(PoisonError::into_inner);
        declared.as_ref().is_none_or(|declared| declared.stays(set))
    }

    /// Records that a state manages a set. Two states would remove each other's objects.
    pub(super) fn keeps(&self, chunk: &Chunk, set: &str) -> Result<(), Failure> {
        let mut keepers = self.keepers.lock().unwrap_or_else(PoisonError::into_inner);
        let keeper = keepers.entry(set.to_owned()).or_insert_with(|| chunk.tag());
        if *keeper == chunk.tag() {
            return Ok(());
        }
        Err(Failure::new(format!(
            "{keeper} already manages the set `{set}`, and each would remove the other's objects: give one of them another name"
        )))
    }

    /// Returns whether this run would create an object that explains why the API does not know the
    /// kind or namespace yet.
    pub(super) fn comes_with_this_run(&self, reference: &ObjectRef) -> bool {
        let predicted = self
            .predicted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        predicted
            .values()
            .flatten()
            .any(|object| provides(object, reference))
    }

    /// Returns whether an error may be transient.
    fn may_pass(&self, error: &ApiError) -> bool {
        match error {
            ApiError::NoSuchKind { api_version, kind } => {
                let group = api_version.split('/').next().unwrap_or_default().to_owned();
                let defined = self.defined.lock().unwrap_or_else(PoisonError::into_inner);
                defined.contains(&(group, kind.clone()))
            }
            other => other.is_transient(),
        }
    }

    /// Retries transient errors until the patience is used up. A test run has none: it must not
    /// wait.
    pub(super) async fn patiently<T, F, R>(&self, call: F) -> Result<T, ApiError>
    where
        F: Fn() -> R,
        R: Future<Output = Result<T, ApiError>>,
    {
        let hopeless = self.test || self.silent.load(Ordering::Relaxed);
        let patience = if hopeless {
            Duration::ZERO
        } else {
            self.patience.total
        };
        let deadline = Instant::now() + patience;
        loop {
            match call().await {
                Err(error) if self.may_pass(&error) && Instant::now() < deadline => {
                    tokio::time::sleep(self.patience.pause).await;
                }
                Err(error) => {
                    if matches!(error, ApiError::Unreachable { .. }) {
                        self.silent.store(true, Ordering::Relaxed);
                    }
                    return Err(error);
                }
                Ok(value) => {
                    self.silent.store(false, Ordering::Relaxed);
                    return Ok(value);
                }
            }
        }
    }
}

impl Modules for KubernetesModules {
    type Diff = Vec<Operation>;

    async fn check(&self, chunk: &Chunk) -> Result<Checked<Self::Diff>, Failure> {
        match (chunk.state.as_str(), chunk.fun.as_str()) {
            ("kubernetes", "manifest") => {
                let documents = chunk
                    .args
                    .get("documents")
                    .and_then(Value::as_array)
                    .cloned()
                    .unwrap_or_default();
                self.check_documents(chunk, flattened(documents)).await
            }
            ("kubernetes", "object") => {
                let manifest = chunk.args.get("manifest").cloned().unwrap_or_default();
                self.check_documents(chunk, flattened(vec![manifest])).await
            }
            ("kubernetes", "owned") => self.check_owned(chunk).await,
            ("kubernetes", "absent") => self.check_absent(chunk).await,
            ("kubernetes", "api_ready") => self.check_ready(chunk).await,
            ("kubernetes", "node") => self.check_node(chunk).await,
            ("test", fun) => check_test(chunk, fun),
            _ => Err(Failure::new(format!(
                "{} runs on hosts, not on the target `master`, whose states are Kubernetes objects: move it to an SLS of a host",
                chunk.function()
            ))),
        }
    }

    async fn apply(&self, chunk: &Chunk, diff: &Self::Diff) -> Result<Applied, Failure> {
        let mut definitions = Vec::new();
        let mut removed = Vec::new();
        let mut step = 0;
        for operation in diff {
            let defines = operation.defines();
            if defines.is_none() {
                self.established(&mut definitions).await?;
            }
            if let Operation::Remove(removal) = operation {
                if removal.step != step {
                    self.gone(&removed).await?;
                    removed.clear();
                    if step <= CUSTOM && removal.step > CUSTOM {
                        self.released(&definitions_that_go(diff)).await?;
                    }
                    step = removal.step;
                }
                removed.push(removal.reference.clone());
            }
            self.learn_members(None);
            self.patiently(|| operation.run(self.api.as_ref()))
                .await
                .map_err(|e| fail(shown(chunk, e)))?;
            if let (Some(kind), Operation::Apply(object)) = (defines, operation) {
                self.defined
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .insert(kind);
                definitions.push(ObjectRef::of(object).map_err(fail)?);
            }
        }
        self.established(&mut definitions).await?;
        self.gone(&removed).await?;
        let comment = match (chunk.state.as_str(), diff.len()) {
            ("test", _) | (_, 0) => String::new(),
            (_, 1) => "One object changed".into(),
            (_, count) => format!("{count} objects changed"),
        };
        Ok(Applied {
            changes: Map::new(),
            comment,
        })
    }

    async fn predict(&self, _chunk: &Chunk, diff: &Self::Diff) {
        for operation in diff {
            match operation {
                Operation::Apply(object)
                | Operation::Replace(object)
                | Operation::Recreate(object) => {
                    if let Ok(reference) = ObjectRef::of(object) {
                        self.foresee(reference, Some(object.clone()));
                    }
                }
                Operation::Delete(reference) => self.foresee(reference.clone(), None),
                Operation::Remove(removal) => self.foresee(removal.reference.clone(), None),
                // Labels and taints of others stay, and a second state for the node adds to the
                // first; the live node is the better base for its check.
                Operation::Node(_) => {}
            }
        }
    }

    async fn watch(&self, _chunk: &Chunk) -> Option<Result<Checked<Self::Diff>, Failure>> {
        None
    }

    async fn condition(&self, chunk: &Chunk, _condition: &Value) -> Result<bool, Failure> {
        Err(Failure::new(format!(
            "{}: unless, onlyif and check_cmd run commands on a host; the target `master` has none",
            chunk.id
        )))
    }

    async fn exists(&self, _path: &str) -> bool {
        false
    }
}

fn definitions_that_go(diff: &[Operation]) -> Vec<ObjectRef> {
    let reference = |operation: &Operation| match operation {
        Operation::Remove(removal) if removal.reference.is_definition() => {
            Some(removal.reference.clone())
        }
        _ => None,
    };
    diff.iter().filter_map(reference).collect()
}

pub(super) fn fail(error: ApiError) -> Failure {
    Failure::new(chain(&error))
}

pub(super) fn fail_at(chunk: &Chunk, reference: &ObjectRef, error: ApiError) -> Failure {
    Failure::new(format!("{reference}: {}", chain(&shown(chunk, error))))
}

/// Reduces a refusal for an object with a secret to its kind, because the server quotes the refused
/// content.
fn shown(chunk: &Chunk, error: ApiError) -> ApiError {
    match error {
        ApiError::Refused { code, reason, .. } if chunk.sensitive => ApiError::Refused {
            code,
            message: format!(
                "{reason}; the server's message is hidden, because the object contains a secret"
            ),
            reason,
        },
        other => other,
    }
}

/// Returns whether an object is the namespace or the definition of another.
pub(super) fn provides(object: &Value, reference: &ObjectRef) -> bool {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let Ok(own) = ObjectRef::of(object) else {
        return false;
    };
    (own.is_namespace() && own.name == reference.namespace)
        || (own.is_definition()
            && text("/spec/names/kind") == reference.kind
            && reference.group() == text("/spec/group"))
}

#[cfg(test)]
#[path = "modules_tests.rs"]
mod tests;
