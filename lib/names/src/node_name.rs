//! The name of a node.

use serde::{Deserialize, Serialize};

use crate::subdomain::{NameError, check_subdomain};
use crate::text_id;

/// The reserved name of the pseudo-minion whose host is the Kubernetes API. No node has it.
pub const MASTER: &str = "master";

/// Longest name of the node of a kubelet. The kubelet's certificate has the name
/// `system:node:NAME`, and a common name has at most 64 characters (RFC 5280). A label has at most
/// 63.
pub const LONGEST: usize = 52;

/// The name of a node: its host's minion id and its name in Kubernetes, and so an RFC 1123
/// subdomain. It names the node's document and is never [`MASTER`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(String);

/// The reason why a text is not the name of a node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NodeNameError {
    /// It is not a valid name.
    #[error(transparent)]
    Name(#[from] NameError),
    /// It is [`MASTER`].
    #[error(
        "cannot name a node `{MASTER}`: it denotes the master as a target of states; choose another name"
    )]
    Reserved,
}

/// A name is longer than [`LONGEST`]; its length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot name a node with {0} characters: a name has at most {LONGEST}, because the kubelet's certificate \
     contains it"
)]
pub struct NodeNameTooLong(usize);

impl NodeName {
    /// A placeholder for the node with this number whose own name is invalid, used until that error
    /// is reported.
    #[must_use]
    pub fn unnamed(number: usize) -> Self {
        Self(format!("unnamed-{number}"))
    }

    fn check(text: &str) -> Result<(), NodeNameError> {
        check_subdomain(text)?;
        if text == MASTER {
            return Err(NodeNameError::Reserved);
        }
        Ok(())
    }

    /// Checks that a kubelet's certificate can hold the name. Hosts without a kubelet may have
    /// longer names from earlier versions of Halite.
    ///
    /// # Errors
    /// The name is longer than [`LONGEST`].
    pub fn check_length(&self) -> Result<(), NodeNameTooLong> {
        if self.0.len() > LONGEST {
            return Err(NodeNameTooLong(self.0.len()));
        }
        Ok(())
    }
}

text_id!(NodeName, NodeNameError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_name_is_a_name_and_not_the_reserved_one() {
        let name: NodeName = "worker-1.example".parse().unwrap();
        assert_eq!(name, "worker-1.example");
        assert!(NodeName::check(&NodeName::unnamed(7)).is_ok());
        assert_eq!("master".parse::<NodeName>(), Err(NodeNameError::Reserved));
        assert!(matches!(
            "../etc".parse::<NodeName>(),
            Err(NodeNameError::Name(_))
        ));
    }

    #[test]
    fn a_name_fits_into_the_certificate_of_a_kubelet() {
        let name = "kubernetes-worker-0001.rack-07.datacentre-nordwest.e";
        assert_eq!(name.len(), LONGEST);
        let checked = |text: &str| text.parse::<NodeName>().unwrap().check_length();
        assert_eq!(checked(name), Ok(()));
        assert_eq!(format!("system:node:{name}").len(), 64);
        // A host of an earlier version without a kubelet may have this name.
        assert_eq!(checked(&format!("{name}u")), Err(NodeNameTooLong(53)));
    }

    #[test]
    fn documents_and_messages_are_checked_as_they_are_read() {
        let read = serde_json::from_str::<NodeName>;
        assert_eq!(
            serde_json::to_string(&read("\"a\"").unwrap()).unwrap(),
            "\"a\""
        );
        assert!(read("\"a/b\"").is_err() && read("\"master\"").is_err());
    }
}
