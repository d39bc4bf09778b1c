//! The waits of a run: until definitions are served, and until objects are gone.

use halite_errors::chain;
use halite_states::engine::Failure;
use serde_json::Value;
use tokio::time::Instant;

use super::modules::{KubernetesModules, fail};
use super::sets::ends;
use super::{ApiError, ObjectRef};

impl KubernetesModules {
    /// Waits until the API serves the kinds of definitions that were just applied, so that later
    /// objects can use them; empties the list.
    pub(super) async fn established(
        &self,
        definitions: &mut Vec<ObjectRef>,
    ) -> Result<(), Failure> {
        let deadline = Instant::now() + self.patience.total;
        for reference in definitions.drain(..) {
            loop {
                let object = self
                    .patiently(|| self.api.get(&reference))
                    .await
                    .map_err(fail)?
                    .unwrap_or_default();
                if condition(&object, "Established").is_some_and(|(yes, _)| yes) {
                    break;
                }
                let refused = condition(&object, "NamesAccepted").filter(|(yes, _)| !yes);
                if refused.is_some() || Instant::now() >= deadline {
                    let why = refused
                        .or_else(|| condition(&object, "Established"))
                        .map(|(_, why)| why);
                    return Err(Failure::new(format!(
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

    /// Waits until removed objects are gone: a set that is switched on again next must not meet
    /// them.
    pub(super) async fn gone(&self, removed: &[ObjectRef]) -> Result<(), Failure> {
        let deadline = Instant::now() + self.patience.total;
        for reference in removed {
            let ended = self.ended(reference, deadline).await;
            ended.map_err(|error| Failure::new(format!("{reference}: {}", chain(&error))))?;
        }
        Ok(())
    }

    /// Waits until an object that is already being deleted is gone. An object that is not being
    /// deleted was created again by someone else.
    pub(super) async fn ended(
        &self,
        reference: &ObjectRef,
        deadline: Instant,
    ) -> Result<(), ApiError> {
        while let Some(object) = self
            .patiently(|| self.api.get(reference))
            .await
            .or_else(gone_kind)?
            .filter(ends)
        {
            if Instant::now() >= deadline {
                return Err(self.held(&object));
            }
            tokio::time::sleep(self.patience.pause).await;
        }
        Ok(())
    }

    /// Waits until no objects of definitions that will be removed are left: a custom resource's
    /// dependents end after it, and the controller that must release them is removed next.
    pub(super) async fn released(&self, definitions: &[ObjectRef]) -> Result<(), Failure> {
        if definitions.is_empty() {
            return Ok(());
        }
        let defined = self.defined_by(definitions).await.map_err(fail)?;
        let mut kinds = self.patiently(|| self.api.kinds()).await.map_err(fail)?;
        kinds.retain(|served| {
            defined
                .iter()
                .any(|of| of.group == served.group() && of.kind == served.kind)
        });
        let deadline = Instant::now() + self.patience.total;
        loop {
            let mut left = Vec::new();
            for found in self.of_kinds(&kinds, "", "").await {
                left.extend(found.map_err(fail)?);
            }
            let Some(object) = left.first() else {
                return Ok(());
            };
            if Instant::now() >= deadline {
                let reference = ObjectRef::of(object).map_err(fail)?;
                return Err(Failure::new(format!("{reference}: {}", self.held(object))));
            }
            tokio::time::sleep(self.patience.pause).await;
        }
    }

    /// Describes the finalizers that hold an object.
    fn held(&self, object: &Value) -> ApiError {
        let holders = object
            .pointer("/metadata/finalizers")
            .or_else(|| object.pointer("/spec/finalizers"));
        ApiError::Malformed(format!(
            "it is still being removed after {} s; its finalizers: {}. Resolve what they wait for, then run this again",
            self.patience.total.as_secs(),
            holders.unwrap_or(&Value::Null)
        ))
    }
}

/// Treats an object whose kind is gone as gone.
fn gone_kind(error: ApiError) -> Result<Option<Value>, ApiError> {
    if matches!(error, ApiError::NoSuchKind { .. }) {
        Ok(None)
    } else {
        Err(error)
    }
}

/// Returns the status of a condition, and its message; `None` if the condition is absent.
pub(super) fn condition(object: &Value, name: &str) -> Option<(bool, String)> {
    let conditions = object
        .pointer("/status/conditions")
        .and_then(Value::as_array)?;
    let found = conditions
        .iter()
        .find(|one| one.get("type").and_then(Value::as_str) == Some(name))?;
    let text = |key: &str| {
        found
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    Some((text("status") == "True", text("message")))
}
