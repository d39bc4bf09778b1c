//! Identities: the URI `halite://CLUSTER/KIND/ID` in a certificate's subject alternative names.

use std::fmt;
use std::str::FromStr;

use halite_names::{MASTER, NameError, NodeNameError, check_subdomain};

const SCHEME: &str = "halite://";
/// The prefix of the name of an operator who is root on a host; the host's name follows.
const ROOT_OF: &str = "root@";

/// The kind of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum IdentityKind {
    /// The agent on a managed host.
    Minion,
    /// The daemon that minions and operators call.
    Master,
    /// A person or program that uses `ctl`.
    Operator,
}

impl IdentityKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Minion, Self::Master, Self::Operator];

    /// The name in the URI.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Minion => "minion",
            Self::Master => "master",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for IdentityKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The reason why a text is not a name or an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// A cluster, minion or operator name breaks the rules.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The id is the master's.
    #[error("{MASTER:?} is not a usable minion id: it denotes the master")]
    Reserved,
    /// The text does not have the form of an identity.
    #[error("{0:?} is not an identity: halite://CLUSTER/KIND/ID is")]
    Form(String),
}

impl From<NodeNameError> for IdentityError {
    fn from(error: NodeNameError) -> Self {
        match error {
            NodeNameError::Name(error) => Self::Name(error),
            NodeNameError::Reserved => Self::Reserved,
        }
    }
}

/// Checks the name of a cluster, minion or operator: an RFC 1123 subdomain, as Kubernetes requires
/// for node names. Only the operators of hosts have another form, see [`root_of`].
///
/// # Errors
/// The name breaks the rules.
pub fn check_name(name: &str) -> Result<(), IdentityError> {
    Ok(check_subdomain(name)?)
}

/// The name of the operator who is root on a host: `root@HOST`.
#[must_use]
pub fn root_of(host: &str) -> String {
    format!("{ROOT_OF}{host}")
}

/// Returns whether an operator's name belongs to root on a host.
#[must_use]
pub fn is_root_of_host(name: &str) -> bool {
    name.starts_with(ROOT_OF)
}

/// An identity: cluster, kind and id. The parts are checked, so that text and value always agree.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    cluster: String,
    kind: IdentityKind,
    id: String,
}

impl Identity {
    /// Makes an identity of checked parts.
    ///
    /// # Errors
    /// A name breaks the rules, or a minion would be called `master`.
    pub fn new(cluster: &str, kind: IdentityKind, id: &str) -> Result<Self, IdentityError> {
        check_name(cluster)?;
        let name = match kind {
            IdentityKind::Operator => id.strip_prefix(ROOT_OF).unwrap_or(id),
            IdentityKind::Minion | IdentityKind::Master => id,
        };
        check_name(name)?;
        if kind == IdentityKind::Minion && id == MASTER {
            return Err(IdentityError::Reserved);
        }
        Ok(Self {
            cluster: cluster.to_owned(),
            kind,
            id: id.to_owned(),
        })
    }

    /// The cluster's name.
    #[must_use]
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// The kind.
    #[must_use]
    pub fn kind(&self) -> IdentityKind {
        self.kind
    }

    /// The id within its kind.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns whether a URI claims to be a Halite identity, well-formed or not.
    #[must_use]
    pub fn is_claimed_by(uri: &str) -> bool {
        uri.get(..SCHEME.len())
            .is_some_and(|start| start.eq_ignore_ascii_case(SCHEME))
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}/{}", self.cluster, self.kind, self.id)
    }
}

impl FromStr for Identity {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let form = || IdentityError::Form(text.chars().take(80).collect());
        let mut parts = text.strip_prefix(SCHEME).ok_or_else(form)?.split('/');
        let (Some(cluster), Some(kind), Some(id), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(form());
        };
        let kind = IdentityKind::ALL
            .into_iter()
            .find(|k| k.as_str() == kind)
            .ok_or_else(form)?;
        Self::new(cluster, kind, id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_its_text() {
        for (kind, text) in [
            (
                IdentityKind::Minion,
                "halite://prod/minion/worker-1.example",
            ),
            (IdentityKind::Master, "halite://prod/master/bootstrap-1"),
            (IdentityKind::Operator, "halite://prod/operator/root"),
            (IdentityKind::Operator, "halite://prod/operator/root@cp-2"),
        ] {
            let identity: Identity = text.parse().unwrap();
            assert_eq!(identity.kind(), kind);
            assert_eq!(identity.to_string(), text);
        }
    }

    #[test]
    fn what_is_not_an_identity_is_refused() {
        for text in [
            "",
            "halite://",
            "halite://prod/minion",
            "halite://prod/minion/",
            "halite://prod/minion/a/b",
            "halite://prod//a",
            "halite://prod/root/a",
            "halite://prod/Minion/a",
            "HALITE://prod/minion/a",
            "halite://prod/minion/A",
            "halite://prod/minion/a%2fb",
            "halite://prod/minion/..",
            "halite://prod/minion/-a",
            "halite://prod/minion/a-",
            "halite://prod/minion/a..b",
            "halite://prod/minion/a b",
            "halite://prod/minion/a\n",
            "halite://prod/minion/é",
            "halite://prod/minion/root@cp-2",
            "halite://prod/operator/root@",
            "halite://prod/operator/root@root@cp-2",
            "halite://prod/operator/alice@cp-2",
            "halite://prod/minion/master",
            "spiffe://prod/minion/a",
        ] {
            assert!(text.parse::<Identity>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn any_case_of_the_scheme_claims_to_be_ours() {
        assert!(Identity::is_claimed_by("halite://x"));
        assert!(Identity::is_claimed_by("HaLite://x"));
        assert!(!Identity::is_claimed_by("https://x"));
    }
}
