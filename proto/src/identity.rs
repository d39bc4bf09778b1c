//! Identities: the URI `halite://CLUSTER/KIND/ID` in a certificate's subject alternative names.

use std::fmt;
use std::str::FromStr;

/// Longest name of a cluster, minion or operator: that of a Kubernetes node (RFC 1123 subdomain).
pub const NAME_MAX: usize = 253;
/// Longest part of a name between dots.
pub const LABEL_MAX: usize = 63;
/// The id of the master as a target of states; no minion may have it.
pub const MASTER_ID: &str = "master";

const SCHEME: &str = "halite://";

/// The kind of an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The agent on a managed host.
    Minion,
    /// The daemon that minions and operators call.
    Master,
    /// A person or program that uses `ctl`.
    Operator,
}

impl Kind {
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

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The reason why a text is not a name or an identity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// A cluster, minion or operator name breaks the rules.
    #[error(
        "{0:?} is not a usable name: lower-case letters, digits, `-` and `.`, each part between dots begins and ends \
         with a letter or digit and has at most 63 characters, 253 in all"
    )]
    Name(String),
    /// The id is the master's.
    #[error("{MASTER_ID:?} is not a usable minion id: it denotes the master")]
    Reserved,
    /// The text does not have the form of an identity.
    #[error("{0:?} is not an identity: halite://CLUSTER/KIND/ID is")]
    Form(String),
}

/// Checks the name of a cluster, minion or operator: an RFC 1123 subdomain, as Kubernetes asks of
/// node names.
///
/// # Errors
/// The name breaks the rules.
pub fn check_name(name: &str) -> Result<(), IdentityError> {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let label = |part: &str| {
        let bytes = part.as_bytes();
        bytes.len() <= LABEL_MAX
            && bytes.iter().all(|&b| inner(b))
            && bytes.first().is_some_and(|&b| b != b'-')
            && bytes.last().is_some_and(|&b| b != b'-')
    };
    if name.len() <= NAME_MAX && name.split('.').all(label) {
        Ok(())
    } else {
        // A hostile name must not flood a log.
        Err(IdentityError::Name(name.chars().take(80).collect()))
    }
}

/// An identity: cluster, kind and id. The parts are checked, so that text and value always agree.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    cluster: String,
    kind: Kind,
    id: String,
}

impl Identity {
    /// Makes an identity of checked parts.
    ///
    /// # Errors
    /// A name breaks the rules, or a minion would be called `master`.
    pub fn new(cluster: &str, kind: Kind, id: &str) -> Result<Self, IdentityError> {
        check_name(cluster)?;
        check_name(id)?;
        if kind == Kind::Minion && id == MASTER_ID {
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
    pub fn kind(&self) -> Kind {
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
        let kind = Kind::ALL
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
            (Kind::Minion, "halite://prod/minion/worker-1.example"),
            (Kind::Master, "halite://prod/master/bootstrap-1"),
            (Kind::Operator, "halite://prod/operator/root"),
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
            "halite://prod/minion/master",
            "spiffe://prod/minion/a",
        ] {
            assert!(text.parse::<Identity>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn names_have_the_limits_of_node_names() {
        let longest = [
            &"a".repeat(63)[..],
            &"b".repeat(63),
            &"c".repeat(63),
            &"d".repeat(61),
        ]
        .join(".");
        assert_eq!(longest.len(), 253);
        assert!(check_name(&longest).is_ok());
        assert!(check_name(&format!("{longest}e")).is_err());
        assert!(check_name(&"a".repeat(64)).is_err());
        assert!(check_name("0").is_ok());
    }

    #[test]
    fn any_case_of_the_scheme_claims_to_be_ours() {
        assert!(Identity::is_claimed_by("halite://x"));
        assert!(Identity::is_claimed_by("HaLite://x"));
        assert!(!Identity::is_claimed_by("https://x"));
    }
}
