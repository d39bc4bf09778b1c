//! The end of a replaced master: it hears of a higher epoch than its own, records that on disk, and
//! stops serving.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use halite_errors::chain;
use halite_proto::v1::Epoch;
use halite_store::epoch::HIGHEST;
use tokio::sync::watch;

use crate::ca::files;

/// A master that another one replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this master has the epoch {own} and was replaced: {witness} has heard of a master with the epoch {heard}. It no longer \
     serves, so that no host gets two orders. `ctl master list` on another control plane shows the master; this host becomes \
     a standby with its next highstate. If there is no such master, `ctl master promote --force --cluster NAME` makes this \
     host the master's again"
)]
pub struct Replaced {
    /// The epoch of this master.
    pub own: u64,
    /// The other epoch: higher, or equal with another holder.
    pub heard: u64,
    /// The minion or standby that reported it.
    pub witness: String,
}

/// The reason why a master does not serve a host that claims a higher epoch.
#[derive(Debug, thiserror::Error)]
pub enum Claimed {
    /// The claim is proven: the master stops.
    #[error(transparent)]
    Replaced(#[from] Replaced),
    /// The claim is not proven, because any host could make it.
    #[error(
        "cannot believe that {witness} has heard of a master with the epoch {heard}: it does not show a signature of this \
         cluster's CA; if the host is trusted, enrol it again (halite-minion enrol --force), otherwise reject its key"
    )]
    Unproven {
        /// The claimed epoch.
        heard: u64,
        /// The minion or standby.
        witness: String,
    },
}

/// The reason why a master does not start.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// The master was replaced before.
    #[error(transparent)]
    Replaced(#[from] Replaced),
    /// The record cannot be read.
    #[error(
        "cannot read {}, so it is not known whether another master has replaced this one; if none has (`ctl master list` on \
         the other control planes), remove the file", path.display()
    )]
    Unreadable {
        /// The record.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The content of the record is not an epoch and a witness.
    #[error(
        "cannot parse {}, so it is not known whether another master has replaced this one; if none has (`ctl master list` on \
         the other control planes), remove the file", .0.display()
    )]
    Damaged(PathBuf),
}

/// The news of other masters.
pub struct Succession {
    own: Epoch,
    /// Replaced while the CA of identities is rotated.
    proof: RwLock<Proof>,
    mark: PathBuf,
    replaced: watch::Sender<Option<Replaced>>,
    /// `true` once this master hands over and must stop.
    hands_over: watch::Sender<bool>,
}

/// The signatures of epochs.
struct Proof {
    /// The epoch of this master, signed by the CA that signs now.
    own: Epoch,
    /// The trusted certificates of that CA, PEM.
    ca_pem: String,
}

fn mark(state_dir: &Path) -> PathBuf {
    state_dir.join("replaced")
}

/// Refuses the start of a master that was already replaced.
///
/// # Errors
/// A master with a higher epoch replaced it, or the record is unreadable.
pub fn check(state_dir: &Path, own: u64) -> Result<(), NotStarted> {
    let mark = mark(state_dir);
    let text = match std::fs::read_to_string(&mark) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(source) => return Err(NotStarted::Unreadable { path: mark, source }),
    };
    let parts = text.trim().split_once(' ');
    let noted = parts.and_then(|(heard, witness)| Some((heard.parse::<u64>().ok()?, witness)));
    let (heard, witness) = noted.ok_or(NotStarted::Damaged(mark))?;
    // The same number with another holder also ends it.
    if heard < own {
        return Ok(());
    }
    Err(NotStarted::Replaced(Replaced {
        own,
        heard,
        witness: witness.to_owned(),
    }))
}

/// Removes the record of a replacement, because this host has the master again.
///
/// # Errors
/// The record cannot be removed.
pub fn forget(state_dir: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(mark(state_dir)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn unproven(heard: u64, witness: &str) -> Claimed {
    Claimed::Unproven {
        heard,
        witness: witness.to_owned(),
    }
}

impl Succession {
    /// Creates the record of a master with this epoch, in a cluster whose epochs this CA signs.
    #[must_use]
    pub fn new(state_dir: &Path, own: Epoch, ca_pem: &str) -> Self {
        Self {
            proof: RwLock::new(Proof {
                own: own.clone(),
                ca_pem: ca_pem.to_owned(),
            }),
            own,
            mark: mark(state_dir),
            replaced: watch::Sender::new(None),
            hands_over: watch::Sender::new(false),
        }
    }

    /// Starts the only hand-over in this life of the master: `write` stores its record on disk, and
    /// then the master stops. Returns `false`, and writes nothing, if a hand-over has already
    /// started.
    ///
    /// # Errors
    /// The record cannot be written; then no hand-over has started.
    pub fn hand_over<E>(&self, write: impl FnOnce() -> Result<(), E>) -> Result<bool, E> {
        let mut written = Ok(false);
        self.hands_over.send_if_modified(|begun| {
            if !*begun {
                written = write().map(|()| true);
                *begun = written.is_ok();
            }
            matches!(written, Ok(true))
        });
        written
    }

    /// Waits until this master hands over.
    pub async fn hands_over(&self) {
        // `self` owns the sender.
        let _ = self.hands_over.subscribe().wait_for(|begun| *begun).await;
    }

    /// The epoch of this master.
    #[must_use]
    pub fn own(&self) -> &Epoch {
        &self.own
    }

    /// The epoch of this master, as evidence for others.
    #[must_use]
    pub fn evidence(&self) -> Epoch {
        let proof = self.proof.read().unwrap_or_else(PoisonError::into_inner);
        proof.own.clone()
    }

    /// Replaces the evidence of this master's epoch, and the CAs (PEM) whose evidence it believes.
    pub fn follow_ca(&self, evidence: Epoch, ca_pem: &str) {
        let mut proof = self.proof.write().unwrap_or_else(PoisonError::into_inner);
        *proof = Proof {
            own: evidence,
            ca_pem: ca_pem.to_owned(),
        };
    }

    fn is_proven(&self, epoch: &Epoch) -> bool {
        let proof = self.proof.read().unwrap_or_else(PoisonError::into_inner);
        epoch.is_proven(&proof.ca_pem)
    }

    /// Checks a minion's or standby's claim of the highest known epoch: a number in protocol 1, and
    /// the evidence.
    ///
    /// # Errors
    /// The evidence proves a master that takes this one's place, which therefore stops. Or a higher
    /// epoch is claimed without evidence: then only the caller is refused.
    pub fn hear_claim(
        &self,
        number: u64,
        evidence: Option<&Epoch>,
        witness: &str,
    ) -> Result<(), Claimed> {
        let Some(claimed) = evidence else {
            return self.check_number(number, witness);
        };
        if claimed.rank() <= self.own.rank() {
            return Ok(());
        }
        // No master's store has a higher epoch.
        if claimed.number > HIGHEST || !self.is_proven(claimed) {
            return Err(unproven(claimed.number, witness));
        }
        Ok(self.hear(claimed.number, &claimed.holder, witness)?)
    }

    /// Checks the claim of a host with protocol 1, which has no evidence.
    fn check_number(&self, number: u64, witness: &str) -> Result<(), Claimed> {
        if number <= self.own.number {
            return Ok(());
        }
        Err(unproven(number, witness))
    }

    /// Handles the epoch of another master that has answered this one, or that was proven.
    ///
    /// # Errors
    /// The epoch is higher than this master's, which therefore stops.
    pub fn hear(&self, heard: u64, holder: &str, witness: &str) -> Result<(), Replaced> {
        if (heard, holder) <= self.own.rank() {
            return Ok(());
        }
        let replaced = Replaced {
            own: self.own.number,
            heard,
            witness: witness.to_owned(),
        };
        if self.replaced.borrow().is_none() {
            if let Err(error) = files::write(&self.mark, &format!("{heard} {witness}\n"), 0o600) {
                // The master stops anyway; after a restart it hears of the epoch again.
                tracing::error!(
                    error = chain(&error),
                    "cannot record that this master was replaced"
                );
            }
            self.replaced.send_replace(Some(replaced.clone()));
        }
        Err(replaced)
    }

    /// Waits until this master has heard of a higher epoch.
    pub async fn replaced(&self) -> Replaced {
        let mut replaced = self.replaced.subscribe();
        let found = replaced.wait_for(Option::is_some).await;
        match found.ok().and_then(|found| found.clone()) {
            Some(found) => found,
            // `self` owns the sender.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
#[path = "succession_tests.rs"]
mod tests;
