//! The authorisation table: for each method, the kind of caller that may call it. A method that is
//! not in the table is refused.

use crate::identity::Kind;

/// The callers that may call a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// Only callers without an identity: first contact.
    WithoutIdentity,
    /// Only identities of this kind. The method itself decides what an id may ask for, always by
    /// the id in the certificate.
    Only(Kind),
}

/// The table. It contains every method of the proto file exactly once.
pub const TABLE: &[(&str, Caller)] = &[
    ("/halite.v1.Enrolment/Enrol", Caller::WithoutIdentity),
    ("/halite.v1.Minion/Connect", Caller::Only(Kind::Minion)),
    ("/halite.v1.Minion/Sign", Caller::Only(Kind::Minion)),
    ("/halite.v1.Minion/Fetch", Caller::Only(Kind::Minion)),
    ("/halite.v1.Minion/Renew", Caller::Only(Kind::Minion)),
    ("/halite.v1.Operator/Status", Caller::Only(Kind::Operator)),
    ("/halite.v1.Operator/Show", Caller::Only(Kind::Operator)),
    ("/halite.v1.Operator/Run", Caller::Only(Kind::Operator)),
    (
        "/halite.v1.Operator/Orchestrate",
        Caller::Only(Kind::Operator),
    ),
    ("/halite.v1.Operator/ListJobs", Caller::Only(Kind::Operator)),
    ("/halite.v1.Operator/ShowJob", Caller::Only(Kind::Operator)),
    (
        "/halite.v1.Operator/CancelJob",
        Caller::Only(Kind::Operator),
    ),
    ("/halite.v1.Operator/ListKeys", Caller::Only(Kind::Operator)),
    (
        "/halite.v1.Operator/ChangeKey",
        Caller::Only(Kind::Operator),
    ),
    (
        "/halite.v1.Operator/CreateToken",
        Caller::Only(Kind::Operator),
    ),
    (
        "/halite.v1.Operator/ListTokens",
        Caller::Only(Kind::Operator),
    ),
    (
        "/halite.v1.Operator/RevokeToken",
        Caller::Only(Kind::Operator),
    ),
    ("/halite.v1.Operator/AddNode", Caller::Only(Kind::Operator)),
];

/// The decision of the table about a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The call is allowed.
    Allowed,
    /// The caller must present an identity of this kind first.
    NeedsIdentity(Kind),
    /// The caller's kind may not do this.
    Forbidden,
    /// There is no such method.
    Unknown,
}

/// Decides about a call by the path of its method and the caller's kind; `None` is a caller without
/// a certificate.
#[must_use]
pub fn judge(path: &str, caller: Option<Kind>) -> Verdict {
    let Some((_, wanted)) = TABLE.iter().find(|(known, _)| *known == path) else {
        return Verdict::Unknown;
    };
    match (wanted, caller) {
        (Caller::WithoutIdentity, None) => Verdict::Allowed,
        (Caller::Only(kind), Some(own)) if *kind == own => Verdict::Allowed,
        (Caller::Only(kind), None) => Verdict::NeedsIdentity(*kind),
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
    fn only_first_contact_is_open_to_a_caller_without_identity() {
        for path in crate::METHODS {
            let open = judge(path, None) == Verdict::Allowed;
            assert_eq!(open, *path == "/halite.v1.Enrolment/Enrol", "{path}");
        }
    }

    #[test]
    fn each_service_has_its_kind() {
        for path in crate::METHODS {
            for kind in Kind::ALL {
                let wanted = match kind {
                    Kind::Minion => path.starts_with("/halite.v1.Minion/"),
                    Kind::Operator => path.starts_with("/halite.v1.Operator/"),
                    Kind::Master => false,
                };
                assert_eq!(
                    judge(path, Some(kind)) == Verdict::Allowed,
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
                judge(path, Some(Kind::Operator)),
                Verdict::Unknown,
                "{path:?}"
            );
        }
    }
}
