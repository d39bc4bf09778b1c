//! The masters that this minion knows, and the highest epoch that it has obeyed: in one file of its
//! state directory, so that neither a restart nor a power cut loses them.
//!
//! An epoch increases when another host becomes the master. A master with a lower epoch was
//! replaced and does not know it: it is not obeyed. So an epoch is on the disk before its master is
//! obeyed, and while the highest one is unknown, no master is obeyed. It is signed by the cluster's
//! CA, and each master receives that signature.

use std::path::{Path, PathBuf};

use halite_errors::chain;
use halite_proto::v1::Epoch;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::host::HostError;
use crate::host::linux::files;

/// Maximum number of masters that are remembered from one hello.
const MOST: usize = 16;

/// The reason why a master is not obeyed.
#[derive(Debug, thiserror::Error)]
pub enum NotObeyed {
    /// It was replaced.
    #[error(
        "this master has the epoch {epoch}, and another one has acted with the epoch {seen} since: it was replaced; stop it, or enrol this host again if it is the right one (halite-minion enrol --force)"
    )]
    Outdated {
        /// Its epoch.
        epoch: u64,
        /// The highest epoch that this minion has obeyed.
        seen: u64,
    },
    /// Another one with the same epoch was obeyed.
    #[error(
        "cannot obey this master: this master has the epoch {epoch}, and another one ({seen}) takes precedence with the same \
         epoch, because two hosts were promoted at the same time; if this master is the right one, enrol this host again \
         (halite-minion enrol --force)"
    )]
    Double {
        /// The epoch of both.
        epoch: u64,
        /// The holder that this minion has obeyed.
        seen: String,
    },
    /// Other masters would not accept its epoch.
    #[error(
        "cannot obey this master: its epoch {epoch} has no signature of this cluster's CA; if it is the right one, enrol this \
         host again (halite-minion enrol --force)"
    )]
    Unproven {
        /// Its epoch.
        epoch: u64,
    },
    /// Its epoch would be lost, and a master that it replaced could be obeyed.
    #[error(
        "cannot obey this master yet: its epoch {epoch} cannot be recorded on this host; free space there, or repair its disk: the minion retries by itself"
    )]
    NotNoted {
        /// Its epoch.
        epoch: u64,
        /// The reason.
        source: HostError,
    },
    /// The highest epoch is no longer known.
    #[error(
        "cannot obey this master: the record of obeyed epochs cannot be used, and a replaced master could be obeyed; if it is the right one (`ctl master list` there), remove {}, and the minion continues by itself", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: RecordError,
    },
}

/// The reason why the record of masters and epoch cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Its file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] HostError),
    /// It is written atomically, so its disk is damaged, or another program has changed it.
    #[error("cannot parse {}: it is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The parser's reason.
        source: serde_json::Error,
    },
}

/// The content of the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Noted {
    /// The number of the highest epoch.
    epoch: u64,
    /// Its holder; empty in a record of protocol 1, like the signature.
    #[serde(default)]
    holder: String,
    /// The signature of the CA.
    #[serde(default)]
    signature: String,
    /// `host:port`, in the order of the master that answered last.
    masters: Vec<String>,
}

/// The masters, from the configuration and from each other's hellos.
#[derive(Debug)]
pub struct Masters {
    path: PathBuf,
    configured: Vec<String>,
    /// `None` while the file exists but cannot be used.
    noted: Option<Noted>,
}

impl Masters {
    /// Reads the record. While the file exists but cannot be used, no master is obeyed.
    #[must_use]
    pub fn load(config: &Config) -> Self {
        let path = config.known_masters();
        Self {
            // The reason is reported for each master that is not obeyed.
            noted: read(&path).ok(),
            path,
            configured: config.masters.clone(),
        }
    }

    /// The addresses to try: the configured ones first.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        let noted = self.noted.iter().flat_map(|noted| &noted.masters);
        for address in self.configured.iter().chain(noted) {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        all
    }

    /// The highest epoch that was obeyed, for a master; `None` before the first, and while it is
    /// unknown.
    #[must_use]
    pub fn obeyed(&self) -> Option<Epoch> {
        let noted = self.noted.as_ref()?;
        let is_known = !noted.signature.is_empty();
        is_known.then(|| Epoch {
            number: noted.epoch,
            holder: noted.holder.clone(),
            signature: noted.signature.clone(),
        })
    }

    /// Its number, also from a record of protocol 1.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.noted.as_ref().map_or(0, |noted| noted.epoch)
    }

    /// Decides about a master by its hello, and records its epoch and the masters that it names
    /// before it is obeyed. A master that names none changes nothing about the others. `ca_pem` is
    /// the CA of this cluster's identities.
    ///
    /// # Errors
    /// A master with a higher epoch was obeyed before, or that is unknown, or the epoch is not
    /// proven or cannot be recorded.
    pub fn accept(
        &mut self,
        shown: &Epoch,
        ca_pem: &str,
        named: Vec<String>,
    ) -> Result<(), NotObeyed> {
        let known = match self.noted.take() {
            Some(known) => known,
            // An operator may have removed the file.
            None => read(&self.path).map_err(|source| NotObeyed::Damaged {
                path: self.path.clone(),
                source,
            })?,
        };
        let known = self.noted.insert(known);
        let (epoch, seen) = (shown.number, known.epoch);
        if epoch < seen {
            return Err(NotObeyed::Outdated { epoch, seen });
        }
        if shown.rank() < (seen, &known.holder) {
            let seen = known.holder.clone();
            return Err(NotObeyed::Double { epoch, seen });
        }
        if !shown.is_proven(ca_pem) {
            return Err(NotObeyed::Unproven { epoch });
        }
        let mut masters: Vec<String> = named.into_iter().filter(|a| is_address(a)).collect();
        masters.truncate(MOST);
        if masters.is_empty() {
            masters.clone_from(&known.masters);
        }
        // A record of protocol 1 has no holder: the number is recorded, which a full disk does not
        // change.
        let is_known = known.holder.is_empty() || known.holder == shown.holder;
        let is_new = epoch > seen || !is_known;
        // Each start of a master signs its epoch again, and no two signatures are the same.
        let signature = match is_new || known.signature.is_empty() {
            true => &shown.signature,
            false => &known.signature,
        };
        let noted = Noted {
            epoch,
            holder: shown.holder.clone(),
            signature: signature.clone(),
            masters,
        };
        if noted == *known {
            return Ok(());
        }
        match write(&self.path, &noted) {
            Ok(()) => {}
            Err(source) if is_new => return Err(NotObeyed::NotNoted { epoch, source }),
            // A full disk must not keep the minion from the only master that could help: its epoch
            // is recorded.
            Err(error) => tracing::error!(
                error = chain(&error),
                "cannot record the masters; a restart forgets them"
            ),
        }
        *known = noted;
        Ok(())
    }
}

fn write(path: &Path, noted: &Noted) -> Result<(), HostError> {
    let text = serde_json::to_vec(noted)
        .map_err(|error| HostError::failed(path.display().to_string(), error))?;
    files::write(path, &text, files::Owner::default())
}

fn is_address(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// Reads the record; without a file it is empty.
fn read(path: &Path) -> Result<Noted, RecordError> {
    let Some(content) = files::read(path)? else {
        return Ok(Noted::default());
    };
    serde_json::from_slice(&content).map_err(|source| RecordError::Damaged {
        path: path.to_owned(),
        source,
    })
}

/// Forgets masters and epoch: an operator has named the master that this host obeys from now on.
///
/// # Errors
/// The file cannot be removed.
pub fn forget(config: &Config) -> Result<(), HostError> {
    files::remove(&config.known_masters())
}

#[cfg(test)]
#[path = "masters_tests.rs"]
mod tests;
