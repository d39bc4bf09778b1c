//! The `master` target: Kubernetes objects are states that the master itself runs, so that minions
//! need no Kubernetes client and `ctl highstate` repairs objects like files (docs/decisions, "the
//! master is a target too").
//!
//! [`modules::KubernetesModules`] implements the state functions over the narrow [`Api`];
//! [`client::KubeApi`] is the real one. [`compare`] computes differences from JSON alone.

pub mod access;
mod addresses;
mod apply_order;
mod arguments;
mod budgets;
mod checks;
pub mod client;
pub mod compare;
mod conflicts;
mod connection;
mod data_loss;
mod declared_sets;
pub mod deprecated;
pub mod drain;
mod drain_pods;
#[cfg(test)]
mod drain_tests;
mod drain_unready;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used, clippy::expect_used, reason = "for tests")]
pub mod fake;
pub mod modules;
mod no_answer;
pub mod node;
pub mod obstacles;
pub mod old_pods;
#[cfg(test)]
mod old_pods_tests;
pub mod operation;
mod ownership;
mod pod_facts;
mod prune;
pub mod rebalance;
#[cfg(test)]
mod rebalance_tests;
pub mod rewrite;
mod rollout;
mod sets;
pub mod volumes;
mod waits;

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;

/// The field manager of everything that Halite applies.
pub const FIELD_MANAGER: &str = "halite";

/// A boxed answer of the API.
pub type ApiFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, ApiError>> + Send + 'a>>;

/// An error of the API.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ApiError {
    /// The API does not answer, or answers that it is not ready yet.
    #[error("the Kubernetes API at {endpoint} does not answer")]
    Unreachable {
        /// The address that was tried, or several.
        endpoint: String,
        /// `true` if the request may have reached a server, because the connection was made.
        sent: bool,
        /// The system's or the server's reason.
        source: Cause,
    },
    /// The server does not know the kind: a custom resource definition is missing, or not yet
    /// established.
    #[error(
        "the Kubernetes API does not know the kind {kind} in {api_version}: is its CustomResourceDefinition applied before it?"
    )]
    NoSuchKind {
        /// `apiVersion` of the object.
        api_version: String,
        /// `kind` of the object.
        kind: String,
    },
    /// The server refused the request with its own `message`.
    #[error("the Kubernetes API refuses: {message} ({code}){}", advice(message))]
    Refused {
        /// HTTP status.
        code: u16,
        /// Kubernetes' machine-readable reason, for example `Invalid`.
        reason: String,
        /// Kubernetes' message.
        message: String,
    },
    /// The object in the state is malformed.
    #[error("{0}")]
    Malformed(String),
    /// Input or an answer cannot be used.
    #[error("{failed}")]
    Unusable {
        /// The failed action.
        failed: String,
        /// The error of the library.
        source: Cause,
    },
}

/// The cause of an error, which several requests can share.
pub type Cause = Arc<dyn Error + Send + Sync>;

/// The remedy for a message of the server that lacks one.
fn advice(message: &str) -> &'static str {
    // etcd's ErrNoSpace: its quota is used up (2 GiB by default), and it accepts no writes until
    // that is repaired.
    if message.contains("database space exceeded") {
        return ": etcd has no space left and accepts no writes: `ctl etcd defrag` compacts the history, releases free pages and clears the \
                alarm; set a larger `quota-backend-bytes` in etcd.extraArgs of the cluster document";
    }
    ""
}

impl ApiError {
    /// Creates the error of an API that does not answer.
    pub fn unreachable(
        endpoint: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Unreachable {
            endpoint: endpoint.into(),
            sent: true,
            source: source.into().into(),
        }
    }

    /// Creates the error of a failed connection.
    pub(crate) fn not_connected(
        endpoint: impl Into<String>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self::Unreachable {
            endpoint: endpoint.into(),
            sent: false,
            source: source.into().into(),
        }
    }

    /// Creates the error of something that cannot be used, for `map_err`.
    pub(crate) fn unusable<E>(failed: impl Into<String>) -> impl FnOnce(E) -> Self
    where
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        let failed = failed.into();
        move |source| Self::Unusable {
            failed,
            source: source.into().into(),
        }
    }

    /// Returns whether a retry may succeed soon.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable { .. } => true,
            // A merge failure is an untyped error of the server, and so a 500, like a change of
            // etcd's leader.
            Self::Refused {
                code: 500, message, ..
            } => !message.contains("typed patch object"),
            Self::Refused { code, .. } => matches!(code, 429 | 502 | 503 | 504),
            Self::NoSuchKind { .. } | Self::Malformed(_) | Self::Unusable { .. } => false,
        }
    }

    /// Returns whether the server answered that the object, or its namespace, does not exist.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::Refused { code: 404, .. })
    }
}

/// The name of one object in the API.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectRef {
    /// `group/version`, or `v1`.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl ObjectRef {
    /// Reads the name of an object.
    ///
    /// # Errors
    /// `apiVersion`, `kind` or `metadata.name` is missing.
    pub fn of(object: &Value) -> Result<Self, ApiError> {
        let field = |pointer: &str| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let reference = Self {
            api_version: field("/apiVersion"),
            kind: field("/kind"),
            namespace: field("/metadata/namespace"),
            name: field("/metadata/name"),
        };
        for (value, what) in [
            (&reference.api_version, "apiVersion"),
            (&reference.kind, "kind"),
            (&reference.name, "metadata.name"),
        ] {
            if value.is_empty() {
                return Err(ApiError::Malformed(format!(
                    "a Kubernetes object without `{what}`: add it ({reference})"
                )));
            }
        }
        Ok(reference)
    }

    /// The API group; empty for the core.
    #[must_use]
    pub fn group(&self) -> &str {
        group(&self.api_version)
    }

    /// Returns whether it names a namespace. Other groups may have kinds of the same name.
    #[must_use]
    pub fn is_namespace(&self) -> bool {
        (self.group(), self.kind.as_str()) == ("", "Namespace")
    }

    /// Returns whether it names the definition of a custom resource.
    #[must_use]
    pub fn is_definition(&self) -> bool {
        (self.group(), self.kind.as_str()) == ("apiextensions.k8s.io", "CustomResourceDefinition")
    }
}

fn group(api_version: &str) -> &str {
    api_version.split_once('/').map_or("", |(group, _)| group)
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// A kind that the API serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// `group/version`, or `v1`; of several versions the most stable one.
    pub api_version: String,
    /// The kind.
    pub kind: String,
    /// `true` if its objects are namespaced.
    pub namespaced: bool,
}

impl Served {
    /// The API group; empty for the core.
    #[must_use]
    pub fn group(&self) -> &str {
        group(&self.api_version)
    }

    /// Returns whether its objects are Kubernetes' events, which only report.
    #[must_use]
    pub fn is_event(&self) -> bool {
        self.kind == "Event" && matches!(self.group(), "" | "events.k8s.io")
    }
}

/// A field that another manager set to another value than the declared one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldConflict {
    /// The manager, for example `kubectl-edit`.
    pub manager: String,
    /// The path of the field, for example `.spec.replicas`.
    pub field: String,
}

/// The part of the Kubernetes API that the states need; objects are JSON.
pub trait Api: Send + Sync {
    /// Reads one object; `None` if it or its namespace does not exist.
    fn get<'a>(&'a self, reference: &'a ObjectRef) -> ApiFuture<'a, Option<Value>>;

    /// Applies an object as [`FIELD_MANAGER`] (server-side apply), taking over fields of others.
    /// Returns the resulting object, or with `dry_run` the object that would result.
    fn apply<'a>(&'a self, object: &'a Value, dry_run: bool) -> ApiFuture<'a, Value>;

    /// The fields of an object that [`Api::apply`] would take over from other managers.
    fn conflicts<'a>(&'a self, object: &'a Value) -> ApiFuture<'a, Vec<FieldConflict>>;

    /// Replaces an existing object (PUT).
    fn replace<'a>(&'a self, object: &'a Value, dry_run: bool) -> ApiFuture<'a, Value>;

    /// Deletes an object, and its dependents in the background; returns `false` if it did not
    /// exist.
    fn delete<'a>(&'a self, reference: &'a ObjectRef) -> ApiFuture<'a, bool>;

    /// Requests a graceful end of a pod, as its budgets allow (eviction API). `uid` identifies the
    /// intended pod; `grace` replaces the pod's own grace period, in seconds.
    fn evict<'a>(
        &'a self,
        pod: &'a ObjectRef,
        uid: &'a str,
        grace: Option<u64>,
    ) -> ApiFuture<'a, ()>;

    /// `GET /readyz`.
    fn ready(&self) -> ApiFuture<'_, ()>;

    /// The samples of one metric in `GET /metrics`, a line each, in Prometheus' text format. Each
    /// API server has its own.
    fn metric<'a>(&'a self, name: &'a str) -> ApiFuture<'a, Vec<String>>;

    /// All objects of a kind in a namespace (all namespaces if empty), filtered by a field selector
    /// (none if empty).
    fn list<'a>(
        &'a self,
        api_version: &'a str,
        kind: &'a str,
        namespace: &'a str,
        fields: &'a str,
    ) -> ApiFuture<'a, Vec<Value>>;

    /// Every kind whose objects can be listed and deleted, except events and kinds of another
    /// server (the aggregation layer): objects that Halite applies are never stored there.
    fn kinds(&self) -> ApiFuture<'_, Vec<Served>>;

    /// The metadata of all objects of a kind in a namespace (all namespaces if empty), filtered by
    /// a label selector (none if empty). Each has `apiVersion`, `kind` and `metadata`.
    fn metadata<'a>(
        &'a self,
        kind: &'a Served,
        namespace: &'a str,
        labels: &'a str,
    ) -> ApiFuture<'a, Vec<Value>>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_etcd_without_space_says_what_to_do() {
        let refused = |message: &str| fake::refused(500, "InternalError", message).to_string();
        let text = refused("etcdserver: mvcc: database space exceeded");
        assert!(
            text.contains("ctl etcd defrag") && text.contains("quota-backend-bytes"),
            "{text}"
        );
        assert_eq!(refused("no"), "the Kubernetes API refuses: no (500)");
    }
}
