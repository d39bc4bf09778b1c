//! The answer to a request that is not fulfilled, with a kind for programs and a text for people.

use halite_document::Problem;
use halite_errors::chain;
use halite_names::NodeNameError;
use halite_proto::identity::IdentityError;
use halite_proto::ids::JobIdError;
use halite_store::StoreError;

/// The kind of a refusal; it decides the gRPC status and the exit code of `ctl`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusalKind {
    /// The request itself is wrong, whatever the state of the cluster.
    Invalid,
    /// The named object does not exist.
    NotFound,
    /// The caller may not do this.
    Denied,
    /// The request contradicts the current state: the object already exists or is busy, or
    /// `--force` is missing.
    Conflict,
    /// The same request may succeed later.
    Unavailable,
    /// The master itself failed.
    Internal,
}

/// A refused request with the problem, its place and the remedy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind, for programs.
    pub kind: RefusalKind,
    /// The text, for people. Never contains a secret.
    pub message: String,
}

impl Refusal {
    /// Creates a refusal of this kind.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// Creates a refusal of kind [`RefusalKind::Invalid`].
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Invalid, message)
    }

    /// Creates a refusal of kind [`RefusalKind::NotFound`].
    pub fn not_found(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::NotFound, message)
    }

    /// Creates a refusal of kind [`RefusalKind::Denied`].
    pub fn denied(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Denied, message)
    }

    /// Creates a refusal of kind [`RefusalKind::Conflict`].
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Conflict, message)
    }

    /// Creates a refusal of kind [`RefusalKind::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::Internal, message)
    }

    /// Creates one refusal with all problems of the operator's documents or of the state tree, one
    /// on each line.
    #[must_use]
    pub fn from_problems(problems: &[Problem]) -> Self {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Self::invalid(texts.join("\n"))
    }
}

impl From<StoreError> for Refusal {
    fn from(error: StoreError) -> Self {
        Self::internal(chain(&error))
    }
}

impl From<NodeNameError> for Refusal {
    fn from(error: NodeNameError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<IdentityError> for Refusal {
    fn from(error: IdentityError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<JobIdError> for Refusal {
    fn from(error: JobIdError) -> Self {
        Self::invalid(error.to_string())
    }
}
