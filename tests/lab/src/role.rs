//! Roles of a host in its cluster, with the names that `ctl node add --roles` takes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A role of a host in its cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// API server, controller-manager and scheduler.
    ControlPlane,
    /// A member of etcd.
    Etcd,
    /// Runs workloads.
    Worker,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ControlPlane => "control-plane",
            Self::Etcd => "etcd",
            Self::Worker => "worker",
        })
    }
}

/// Roles as `ctl node add --roles` takes them.
#[must_use]
pub fn list(roles: &[Role]) -> String {
    roles
        .iter()
        .map(Role::to_string)
        .collect::<Vec<_>>()
        .join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_written_as_ctl_takes_them() {
        assert_eq!(
            list(&[Role::ControlPlane, Role::Etcd]),
            "control-plane,etcd"
        );
        for role in [Role::ControlPlane, Role::Etcd, Role::Worker] {
            let stored = serde_json::to_value(role).unwrap();
            assert_eq!(stored, role.to_string());
        }
    }
}
