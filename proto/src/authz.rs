//! The authorisation table: for each method, the kind of caller that may call it, and for operators
//! the least role. A method that is not in the table is refused.

use crate::identity::IdentityKind;
use crate::role::Role;

/// The callers that may call a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// Only callers without an identity: first contact.
    WithoutIdentity,
    /// Only identities of this kind. The method itself decides what an id may request, always by
    /// the id in the certificate.
    Only(IdentityKind),
    /// Only operators with this role or a higher one. The method itself may require more.
    Operator(Role),
}

/// The table. It contains every method of the proto file exactly once.
pub const TABLE: &[(&str, Caller)] = &[
    ("/halite.v1.Enrolment/Enrol", Caller::WithoutIdentity),
    (
        "/halite.v1.Minion/Connect",
        Caller::Only(IdentityKind::Minion),
    ),
    ("/halite.v1.Minion/Sign", Caller::Only(IdentityKind::Minion)),
    (
        "/halite.v1.Minion/Fetch",
        Caller::Only(IdentityKind::Minion),
    ),
    (
        "/halite.v1.Minion/Renew",
        Caller::Only(IdentityKind::Minion),
    ),
    (
        "/halite.v1.Minion/TakeTurn",
        Caller::Only(IdentityKind::Minion),
    ),
    // Only the minions of declared standbys: the master checks this in addition.
    (
        "/halite.v1.Standby/Follow",
        Caller::Only(IdentityKind::Minion),
    ),
    (
        "/halite.v1.Standby/Compare",
        Caller::Only(IdentityKind::Minion),
    ),
    ("/halite.v1.Operator/Status", Caller::Operator(Role::Viewer)),
    ("/halite.v1.Operator/Show", Caller::Operator(Role::Viewer)),
    // The master requires a role for each function: see `Function::role` there.
    ("/halite.v1.Operator/Run", Caller::Operator(Role::Viewer)),
    (
        "/halite.v1.Operator/Orchestrate",
        Caller::Operator(Role::Deployer),
    ),
    (
        "/halite.v1.Operator/ListJobs",
        Caller::Operator(Role::Viewer),
    ),
    (
        "/halite.v1.Operator/ShowJob",
        Caller::Operator(Role::Viewer),
    ),
    // The master withholds the parts of a job that the role may not see.
    ("/halite.v1.Operator/Watch", Caller::Operator(Role::Viewer)),
    (
        "/halite.v1.Operator/CancelJob",
        Caller::Operator(Role::Deployer),
    ),
    (
        "/halite.v1.Operator/CancelRun",
        Caller::Operator(Role::Deployer),
    ),
    (
        "/halite.v1.Operator/ListKeys",
        Caller::Operator(Role::Viewer),
    ),
    (
        "/halite.v1.Operator/ChangeKey",
        Caller::Operator(Role::Admin),
    ),
    (
        "/halite.v1.Operator/CreateToken",
        Caller::Operator(Role::Admin),
    ),
    (
        "/halite.v1.Operator/ListTokens",
        Caller::Operator(Role::Viewer),
    ),
    (
        "/halite.v1.Operator/RevokeToken",
        Caller::Operator(Role::Admin),
    ),
    ("/halite.v1.Operator/AddNode", Caller::Operator(Role::Admin)),
    (
        "/halite.v1.Operator/CreateOperator",
        Caller::Operator(Role::Admin),
    ),
    // Only for the caller's own name and key.
    (
        "/halite.v1.Operator/RenewOperator",
        Caller::Operator(Role::Viewer),
    ),
    (
        "/halite.v1.Operator/ListOperators",
        Caller::Operator(Role::Viewer),
    ),
    (
        "/halite.v1.Operator/RevokeOperator",
        Caller::Operator(Role::Admin),
    ),
    (
        "/halite.v1.Operator/ReadAudit",
        Caller::Operator(Role::Viewer),
    ),
    (
        "/halite.v1.Operator/ListSinks",
        Caller::Operator(Role::Viewer),
    ),
    // It sends requests to servers of the site, which wake people.
    (
        "/halite.v1.Operator/TestSinks",
        Caller::Operator(Role::Deployer),
    ),
    // It contains the keys of the CAs.
    ("/halite.v1.Operator/Backup", Caller::Operator(Role::Admin)),
    // Its certificate makes the holder an administrator of Kubernetes.
    (
        "/halite.v1.Operator/Kubeconfig",
        Caller::Operator(Role::Admin),
    ),
    // The next rotation makes all certificates with this CA.
    (
        "/halite.v1.Operator/RequestCa",
        Caller::Operator(Role::Admin),
    ),
    (
        "/halite.v1.Operator/ImportCa",
        Caller::Operator(Role::Admin),
    ),
    (
        "/halite.v1.Operator/HandOver",
        Caller::Operator(Role::Admin),
    ),
];

/// The table's decision about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The call is allowed.
    Allowed,
    /// The caller must present an identity of this kind first.
    NeedsIdentity(IdentityKind),
    /// The operator must have this role or a higher one.
    NeedsRole(Role),
    /// This kind of caller may not make the call.
    Forbidden,
    /// The method does not exist.
    Unknown,
}

/// Decides about a call by the path of its method, the caller's kind and an operator's role. A
/// caller without a certificate has no kind; an operator without a role may do nothing.
#[must_use]
pub fn judge(path: &str, caller: Option<IdentityKind>, role: Option<Role>) -> Verdict {
    let Some((_, wanted)) = TABLE.iter().find(|(known, _)| *known == path) else {
        return Verdict::Unknown;
    };
    match (wanted, caller) {
        (Caller::WithoutIdentity, None) => Verdict::Allowed,
        (Caller::Only(kind), Some(own)) if *kind == own => Verdict::Allowed,
        (Caller::Only(kind), None) => Verdict::NeedsIdentity(*kind),
        (Caller::Operator(_), None) => Verdict::NeedsIdentity(IdentityKind::Operator),
        (Caller::Operator(least), Some(IdentityKind::Operator)) => match role {
            Some(role) if role >= *least => Verdict::Allowed,
            _ => Verdict::NeedsRole(*least),
        },
        _ => Verdict::Forbidden,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_method_of_the_proto_file_is_in_the_table_once() {
        let table: Vec<&str> = TABLE.iter().map(|(path, _)| *path).collect();
        let known: BTreeSet<&str> = table.iter().copied().collect();
        assert_eq!(
            known.len(),
            table.len(),
            "a method is listed twice in the table"
        );
        assert_eq!(
            known,
            crate::METHODS.iter().copied().collect::<BTreeSet<_>>()
        );
        assert!(!crate::METHODS.is_empty());
    }

    #[test]
    fn every_method_of_the_operator_service_has_a_least_role() {
        for (path, caller) in TABLE {
            let of_operators = path.starts_with("/halite.v1.Operator/");
            assert_eq!(
                matches!(caller, Caller::Operator(_)),
                of_operators,
                "{path}"
            );
        }
    }

    /// The methods that each role may call in addition to the previous role's, by hand.
    #[test]
    fn each_role_has_its_methods_and_those_of_the_roles_before() {
        let granted = [
            (
                Role::Viewer,
                "ListJobs ListKeys ListOperators ListSinks ListTokens ReadAudit RenewOperator Run Show ShowJob Status Watch",
            ),
            (Role::Deployer, "CancelJob CancelRun Orchestrate TestSinks"),
            (
                Role::Admin,
                "AddNode Backup ChangeKey CreateOperator CreateToken HandOver ImportCa Kubeconfig RequestCa RevokeOperator \
                 RevokeToken",
            ),
        ];
        let mut allowed = BTreeSet::new();
        for (role, more) in granted {
            allowed.extend(more.split(' '));
            let found: BTreeSet<&str> = crate::METHODS
                .iter()
                .filter(|path| {
                    judge(path, Some(IdentityKind::Operator), Some(role)) == Verdict::Allowed
                })
                .filter_map(|path| path.strip_prefix("/halite.v1.Operator/"))
                .collect();
            assert_eq!(found, allowed, "{role}");
        }
    }

    #[test]
    fn an_operator_without_a_role_may_do_nothing() {
        for path in crate::METHODS {
            let verdict = judge(path, Some(IdentityKind::Operator), None);
            assert_ne!(verdict, Verdict::Allowed, "{path}");
        }
        assert_eq!(
            judge(
                "/halite.v1.Operator/ChangeKey",
                Some(IdentityKind::Operator),
                Some(Role::Deployer)
            ),
            Verdict::NeedsRole(Role::Admin)
        );
    }

    #[test]
    fn only_first_contact_is_open_to_a_caller_without_identity() {
        for path in crate::METHODS {
            let open = judge(path, None, Some(Role::Admin)) == Verdict::Allowed;
            assert_eq!(open, *path == "/halite.v1.Enrolment/Enrol", "{path}");
        }
    }

    #[test]
    fn each_service_has_its_kind() {
        for path in crate::METHODS {
            for kind in IdentityKind::ALL {
                let wanted = match kind {
                    IdentityKind::Minion => {
                        path.starts_with("/halite.v1.Minion/")
                            || path.starts_with("/halite.v1.Standby/")
                    }
                    IdentityKind::Operator => path.starts_with("/halite.v1.Operator/"),
                    IdentityKind::Master => false,
                };
                assert_eq!(
                    judge(path, Some(kind), Some(Role::Admin)) == Verdict::Allowed,
                    wanted,
                    "{kind} {path}"
                );
            }
        }
    }

    #[test]
    fn what_is_not_in_the_table_is_unknown() {
        for path in [
            "",
            "/",
            "/halite.v1.Operator/status",
            "/halite.v1.Operator/Status/",
            "/grpc.health.v1.Health/Check",
        ] {
            assert_eq!(
                judge(path, Some(IdentityKind::Operator), Some(Role::Admin)),
                Verdict::Unknown,
                "{path:?}"
            );
        }
    }
}
