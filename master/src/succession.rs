//! The end of a master that was replaced: it hears of a higher epoch than its own, notes that on
//! disk, and serves no longer.

use std::io;
use std::path::{Path, PathBuf};

use halite_errors::chain;
use tokio::sync::watch;

use crate::ca::files;
use crate::epoch::{EpochError, check_claim};
use crate::store::Millis;

/// A master that was replaced by another one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this master has the epoch {own} and was replaced: {witness} has heard of a master with the epoch {heard}. It serves no \
     longer, so that no host gets two orders. `ctl master list` on another control plane shows the master; this host becomes \
     a standby with its next highstate. If there is no such master, `ctl master promote --force --cluster NAME` makes this \
     host the master's again"
)]
pub struct Replaced {
    /// The epoch of this master.
    pub own: u64,
    /// The higher one.
    pub heard: u64,
    /// The minion or standby that said so.
    pub witness: String,
}

/// The reason why a master does not serve a host that claims a higher epoch.
#[derive(Debug, thiserror::Error)]
pub enum Claimed {
    /// The claim is believed: the master stops.
    #[error(transparent)]
    Replaced(#[from] Replaced),
    /// It is not believed: the master goes on.
    #[error(transparent)]
    Implausible(#[from] EpochError),
}

/// The reason why a master does not start.
#[derive(Debug, thiserror::Error)]
pub enum NotStarted {
    /// It was replaced before.
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
    /// The record has something else than an epoch and a witness.
    #[error(
        "cannot parse {}, so it is not known whether another master has replaced this one; if none has (`ctl master list` on \
         the other control planes), remove the file", .0.display()
    )]
    Damaged(PathBuf),
}

/// What this master has heard of others.
pub struct Succession {
    own: u64,
    mark: PathBuf,
    replaced: watch::Sender<Option<Replaced>>,
    /// This master hands over: it is to stop.
    hands_over: watch::Sender<bool>,
}

fn mark(state_dir: &Path) -> PathBuf {
    state_dir.join("replaced")
}

/// Refuses the start of a master that was replaced before.
///
/// # Errors
/// It was replaced by one of a higher epoch, or it is not known whether.
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
    if heard <= own {
        return Ok(());
    }
    Err(NotStarted::Replaced(Replaced {
        own,
        heard,
        witness: witness.to_owned(),
    }))
}

/// Forgets that the master of this host was replaced: it is the master again.
///
/// # Errors
/// The record cannot be removed.
pub fn forget(state_dir: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(mark(state_dir)) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

impl Succession {
    /// A master with this epoch.
    #[must_use]
    pub fn new(state_dir: &Path, own: u64) -> Self {
        Self {
            own,
            mark: mark(state_dir),
            replaced: watch::Sender::new(None),
            hands_over: watch::Sender::new(false),
        }
    }

    /// Begins the only hand-over of this life of the master: `write` puts its note on the disk, and then
    /// the master stops. Answers false, and writes nothing, when one has begun.
    ///
    /// # Errors
    /// The note cannot be written; then none has begun.
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
        // The sender is in `self`.
        let _ = self.hands_over.subscribe().wait_for(|begun| *begun).await;
    }

    /// Takes the epoch of which a minion or standby claims to have heard.
    ///
    /// # Errors
    /// It is higher than this master's: the master stops, unless no master can have that epoch.
    pub fn hear_claim(&self, heard: u64, now: Millis, witness: &str) -> Result<(), Claimed> {
        check_claim(heard, self.own, now, witness)?;
        Ok(self.hear(heard, witness)?)
    }

    /// Takes the epoch of a master that has answered this one.
    ///
    /// # Errors
    /// It is higher than this master's: the master stops.
    pub fn hear(&self, heard: u64, witness: &str) -> Result<(), Replaced> {
        if heard <= self.own {
            return Ok(());
        }
        let replaced = Replaced {
            own: self.own,
            heard,
            witness: witness.to_owned(),
        };
        if self.replaced.borrow().is_none() {
            if let Err(error) = files::write(&self.mark, &format!("{heard} {witness}\n"), 0o600) {
                // It stops all the same; after a start it hears of the epoch again.
                tracing::error!(
                    error = chain(&error),
                    "cannot note that this master was replaced"
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
            // The sender is in `self`.
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_master_hands_over_once() {
        let directory = tempfile::tempdir().unwrap();
        let own = Succession::new(directory.path(), 3);
        assert_eq!(own.hand_over(|| Err("no room")), Err("no room"));
        assert_eq!(own.hand_over(|| Ok::<(), ()>(())), Ok(true));
        let second = own.hand_over(|| -> Result<(), ()> { panic!("written twice") });
        assert_eq!(second, Ok(false));
        own.hands_over().await;
    }

    #[tokio::test]
    async fn a_higher_epoch_ends_the_master_and_each_later_start_of_it() {
        let directory = tempfile::tempdir().unwrap();
        let own = Succession::new(directory.path(), 3);
        own.hear(2, "minion:a").unwrap();
        own.hear(3, "minion:a").unwrap();
        check(directory.path(), 3).unwrap();
        let refused = own.hear(4, "minion:b").unwrap_err();
        assert_eq!(own.replaced().await, refused);
        let started = check(directory.path(), 3).unwrap_err();
        assert!(
            matches!(&started, NotStarted::Replaced(replaced) if *replaced == refused),
            "{started}"
        );
        let text = refused.to_string();
        for part in ["epoch 3", "epoch 4", "minion:b"] {
            assert!(text.contains(part), "{text}");
        }
        check(directory.path(), 5).unwrap();
        forget(directory.path()).unwrap();
        check(directory.path(), 3).unwrap();
    }

    #[tokio::test]
    async fn a_claim_of_an_impossible_epoch_ends_no_master() {
        let directory = tempfile::tempdir().unwrap();
        let own = Succession::new(directory.path(), 3);
        for heard in [u64::MAX, i64::MAX.unsigned_abs(), 1 << 63, 1 << 62] {
            let refused = own.hear_claim(heard, 1_800_000_000_000, "minion:a");
            let refused = refused.unwrap_err();
            assert!(matches!(refused, Claimed::Implausible(_)), "{refused}");
        }
        check(directory.path(), 3).unwrap();
        // A promotion, and a restore.
        own.hear_claim(3, 1_800_000_000_000, "minion:a").unwrap();
        let refused = own.hear_claim(1_800_000_000, 1_800_000_000_000, "minion:a");
        assert!(matches!(refused.unwrap_err(), Claimed::Replaced(_)));
    }

    #[test]
    fn a_record_that_cannot_be_read_refuses_the_start() {
        let directory = tempfile::tempdir().unwrap();
        let mark = mark(directory.path());
        check(directory.path(), 3).unwrap();
        for damaged in ["", "4", "four minion:b", "-1 minion:b"] {
            std::fs::write(&mark, damaged).unwrap();
            let refused = check(directory.path(), 3).unwrap_err();
            assert!(matches!(refused, NotStarted::Damaged(_)), "{refused}");
            assert!(refused.to_string().contains("remove the file"), "{refused}");
        }
        forget(directory.path()).unwrap();
        std::fs::create_dir(&mark).unwrap();
        let refused = check(directory.path(), 3).unwrap_err();
        assert!(
            matches!(refused, NotStarted::Unreadable { .. }),
            "{refused}"
        );
    }
}
