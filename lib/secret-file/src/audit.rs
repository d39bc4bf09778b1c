//! Compares the recorded recipients with those that the declaration requires.

use halite_age::Identity;
use halite_pillar::declaration::Declaration;

use crate::error::SecretFileError;
use crate::file::SecretFile;
use crate::recipients::RecipientList;

/// The recorded recipients, and how they differ from the required ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecipientAudit {
    /// The recorded recipients.
    pub recorded: RecipientList,
    /// The standbys without a recipient, by name. They send theirs when they connect.
    pub missing: Vec<String>,
    /// `true` if the encrypted file exists, and its next write changes the recipients.
    pub outdated: bool,
}

impl SecretFile {
    /// Compares the recorded recipients with those that the declaration requires. The file is not
    /// decrypted.
    ///
    /// # Errors
    /// The list or an identity cannot be read.
    pub fn audit(&self, declaration: &Declaration) -> Result<RecipientAudit, SecretFileError> {
        let recorded = self.recipients()?;
        let keys = recorded.keys();
        let own = self.identities.all()?;
        let own: Vec<_> = own.iter().map(Identity::recipient).collect();
        // During a rotation there are two identities, and one of them is recorded.
        let listed = own.iter().find(|recipient| keys.contains(recipient));
        let master = declaration.master_node();
        let of_master = master.and_then(|node| recorded.of_host(&node.metadata.name));
        let own = listed.or(own.first()).copied().or(of_master);
        let required = own.map(|own| RecipientList::required(declaration, own, &recorded));
        let is_same = required.is_some_and(|required| sorted(&required) == sorted(&recorded));
        let standbys = declaration.standbys().into_iter();
        let standbys = standbys.map(|node| node.metadata.name.clone());
        let missing = standbys.filter(|name| recorded.of_host(name).is_none());
        Ok(RecipientAudit {
            missing: missing.collect(),
            outdated: self.exists() && !is_same,
            recorded,
        })
    }
}

fn sorted(list: &RecipientList) -> RecipientList {
    let mut sorted = list.clone();
    sorted.0.sort();
    sorted
}
