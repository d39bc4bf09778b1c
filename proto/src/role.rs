//! Roles of operators. The master's store has the role of each operator; the table in
//! [`crate::authz`] has the least role of each method.

use std::fmt;

/// The role of an operator. Each role includes the permissions of the previous ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// Reads: status, jobs, keys, pillar with references in place of secrets, the audit log.
    Viewer,
    /// Applies declared states. Reads no secret, and changes no key, token, node or operator.
    Deployer,
    /// Does everything.
    Admin,
}

impl Role {
    /// All roles, the least first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Deployer, Self::Admin];

    /// The name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Deployer => "deployer",
            Self::Admin => "admin",
        }
    }

    /// The role with this name; `None` if it does not exist.
    #[must_use]
    pub fn find(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_found_by_name_and_grow() {
        for role in Role::ALL {
            assert_eq!(Role::find(role.as_str()), Some(role));
        }
        for name in ["", "Admin", "root", "admin "] {
            assert_eq!(Role::find(name), None, "{name:?}");
        }
        assert!(Role::ALL.is_sorted());
    }
}
