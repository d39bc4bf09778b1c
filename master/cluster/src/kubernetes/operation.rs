//! The operations on the API that a check passes to an apply, each safe to repeat.

use serde_json::Value;

use super::apply_order::Removal;
use super::{Api, ApiError, ObjectRef, compare, node};

/// The number of retries of an update that lost a race against another writer.
const CONFLICTS: u32 = 5;

/// One change to the API.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Server-side apply.
    Apply(Value),
    /// Replace the whole content, foreign fields included (`whole: true`).
    Replace(Value),
    /// Delete and create again, because a changed field is immutable (`roleRef`).
    Recreate(Value),
    /// Delete.
    Delete(ObjectRef),
    /// Delete an object that a set no longer has, or wait for one that is already being deleted;
    /// the run waits until it is gone.
    Remove(Removal),
    /// Labels, annotations and taints of a node.
    Node(node::NodeSettings),
}

impl Operation {
    /// Runs the operation. Another controller may write between the read and the update; then the
    /// server answers 409, and the object is read again.
    ///
    /// # Errors
    /// The API failed.
    pub async fn run(&self, api: &dyn Api) -> Result<(), ApiError> {
        for _ in 1..CONFLICTS {
            match self.once(api).await {
                Err(ApiError::Refused { code: 409, .. }) => {}
                other => return other,
            }
        }
        self.once(api).await
    }

    /// The group and kind that it defines, if it applies a CustomResourceDefinition.
    #[must_use]
    pub fn defines(&self) -> Option<(String, String)> {
        let Self::Apply(object) = self else {
            return None;
        };
        let text = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .map(str::to_owned)
        };
        let is_definition = ObjectRef::of(object).is_ok_and(|reference| reference.is_definition());
        is_definition
            .then(|| Some((text("/spec/group")?, text("/spec/names/kind")?)))
            .flatten()
    }

    async fn once(&self, api: &dyn Api) -> Result<(), ApiError> {
        match self {
            Self::Apply(object) => api.apply(object, false).await.map(|_| ()),
            Self::Replace(wanted) => match api.get(&ObjectRef::of(wanted)?).await? {
                Some(live) => api
                    .replace(&compare::replaced(&live, wanted), false)
                    .await
                    .map(|_| ()),
                None => api.apply(wanted, false).await.map(|_| ()),
            },
            Self::Recreate(wanted) => {
                api.delete(&ObjectRef::of(wanted)?).await?;
                api.apply(wanted, false).await.map(|_| ())
            }
            Self::Delete(reference) => api.delete(reference).await.map(|_| ()),
            // A second request would override the first one's rules for dependents.
            Self::Remove(removal) if removal.ends => Ok(()),
            Self::Remove(removal) => api.delete(&removal.reference).await.map(|_| ()),
            Self::Node(wanted) => match api.get(&node::reference(&wanted.name)).await? {
                Some(live) => api
                    .replace(&wanted.laid_over(&live), false)
                    .await
                    .map(|_| ()),
                None => Err(node::missing(&wanted.name)),
            },
        }
    }
}
