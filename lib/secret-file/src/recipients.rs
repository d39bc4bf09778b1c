//! The list of those who can decrypt the file, in the form of `age -R`: an age file does not say
//! it.

use std::fmt;
use std::path::Path;

use halite_names::AgeRecipient;
use halite_pillar::declaration::Declaration;

use crate::error::SecretFileError;

/// The name of the list in the operator's directory.
pub const RECIPIENTS_FILE: &str = "secrets.recipients";
const HEAD: &str =
    "# The recipients of secrets.yaml.age. Halite writes this list: ctl secrets recipients";
const HOST: &str = "# host ";
const RECOVERY: &str = "# recovery";

/// One recipient.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecretRecipient {
    /// The host with the identity; `None` for a recovery recipient.
    pub host: Option<String>,
    /// Its public key.
    pub recipient: AgeRecipient,
}

impl fmt::Display for SecretRecipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.host.as_deref().unwrap_or("recovery");
        write!(f, "{name} {}", self.recipient)
    }
}

/// The recipients of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecipientList(pub Vec<SecretRecipient>);

impl RecipientList {
    /// The recipients that the declaration requires: the master's host with this key, its standbys,
    /// as far as they are in this recorded list, and the recovery recipients.
    #[must_use]
    pub fn required(declaration: &Declaration, own: AgeRecipient, recorded: &Self) -> Self {
        let master = declaration.master_node();
        let master = master.map_or("master", |node| node.metadata.name.as_str());
        let entry = |host: Option<&str>, recipient| SecretRecipient {
            host: host.map(str::to_owned),
            recipient,
        };
        let standbys = declaration.standbys().into_iter().filter_map(|node| {
            let name = node.metadata.name.as_str();
            Some(entry(Some(name), recorded.of_host(name)?))
        });
        let recovery = declaration.cluster.backup.recipients.iter();
        let recovery = recovery.filter_map(|text| Some(entry(None, text.parse().ok()?)));
        let own = std::iter::once(entry(Some(master), own));
        Self(own.chain(standbys).chain(recovery).collect())
    }

    /// The recipient of a host.
    #[must_use]
    pub fn of_host(&self, name: &str) -> Option<AgeRecipient> {
        let mut hosts = self.0.iter();
        let found = hosts.find(|entry| entry.host.as_deref() == Some(name));
        found.map(|entry| entry.recipient)
    }

    /// Sets the recipient of a host; returns `false` if it was the same.
    pub fn set_host(&mut self, name: &str, recipient: AgeRecipient) -> bool {
        if self.of_host(name) == Some(recipient) {
            return false;
        }
        self.0.retain(|entry| entry.host.as_deref() != Some(name));
        self.0.push(SecretRecipient {
            host: Some(name.to_owned()),
            recipient,
        });
        true
    }

    /// The public keys.
    #[must_use]
    pub fn keys(&self) -> Vec<AgeRecipient> {
        self.0.iter().map(|entry| entry.recipient).collect()
    }

    /// The end of a message that names the recipients; empty without any.
    #[must_use]
    pub fn phrase(&self) -> String {
        let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        match all.is_empty() {
            true => String::new(),
            false => format!("; its recipients are: {}", all.join(", ")),
        }
    }

    /// The text of the list.
    pub(crate) fn text(&self) -> String {
        let entries = self.0.iter().map(|entry| {
            let name = match &entry.host {
                Some(host) => format!("{HOST}{host}"),
                None => RECOVERY.to_owned(),
            };
            format!("{name}\n{}\n", entry.recipient)
        });
        std::iter::once(format!("{HEAD}\n"))
            .chain(entries)
            .collect()
    }

    /// Parses the text of the list; `path` is for errors.
    pub(crate) fn parse(text: &str, path: &Path) -> Result<Self, SecretFileError> {
        let mut found = Vec::new();
        let mut host = None;
        for (number, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                host = line.strip_prefix(HOST).map(str::to_owned);
                continue;
            }
            let recipient = line.parse().map_err(|_| SecretFileError::Recipients {
                path: path.to_owned(),
                line: number + 1,
            })?;
            found.push(SecretRecipient {
                host: host.take(),
                recipient,
            });
        }
        Ok(Self(found))
    }
}
