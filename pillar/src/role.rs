//! The roles of a host.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A role of a host. A host can have several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// The first host: stores the bundle and runs the master.
    Bootstrap,
    /// A member of etcd.
    Etcd,
    /// API server, controller manager and scheduler.
    ControlPlane,
    /// Runs workloads.
    Worker,
    /// Runs the cluster's own services.
    Infra,
    /// Takes traffic from outside.
    Frontend,
    /// Serves packages and images.
    Registry,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 7] = [
        Self::Bootstrap,
        Self::Etcd,
        Self::ControlPlane,
        Self::Worker,
        Self::Infra,
        Self::Frontend,
        Self::Registry,
    ];

    /// The role with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }

    /// The name in documents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Bootstrap => "bootstrap",
            Self::Etcd => "etcd",
            Self::ControlPlane => "control-plane",
            Self::Worker => "worker",
            Self::Infra => "infra",
            Self::Frontend => "frontend",
            Self::Registry => "registry",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The roles of the first host of this version's clusters.
pub const BOOTSTRAP_ROLES: [Role; 4] = [
    Role::Bootstrap,
    Role::Registry,
    Role::Etcd,
    Role::ControlPlane,
];
