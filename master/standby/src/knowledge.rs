//! A standby's knowledge of the masters: the highest epoch, and which master answered it last.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use halite_core::clock::{Clock, Steady};
use halite_core::config::Config;
use halite_errors::chain;
use halite_proto::v1::{Epoch, Standing};
use halite_store::epoch::HIGHEST;
use tokio::sync::watch;

use super::compare::{HostAnswer, answers};
use super::disk::CopyError;
use super::receiver::note_heard;
use super::report::report;
use super::session::SessionError;
use super::{directory, mark, masters};

/// The interval at which a standby asks the masters.
const EVERY: Duration = Duration::from_secs(10);

/// The last answer of a master.
struct Heard {
    master: String,
    at: Steady,
}

/// The knowledge of a standby's daemon, shared by its parts.
pub struct Knowledge {
    config: Config,
    /// The directory of the identity of this host's minion.
    minion: PathBuf,
    clock: Arc<dyn Clock>,
    /// The highest epoch of which this host has heard, which is also on disk.
    epoch: watch::Sender<Epoch>,
    heard: Mutex<Option<Heard>>,
}

impl Knowledge {
    /// Creates the knowledge of a standby that has already heard of this epoch.
    #[must_use]
    pub fn new(config: &Config, minion: PathBuf, clock: Arc<dyn Clock>, epoch: Epoch) -> Self {
        Self {
            config: config.clone(),
            minion,
            clock,
            epoch: watch::Sender::new(epoch),
            heard: Mutex::default(),
        }
    }

    fn heard(&self) -> MutexGuard<'_, Option<Heard>> {
        // No code panics while it holds the lock.
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The highest epoch of which this host has heard.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch.borrow().clone()
    }

    /// The clock of the host.
    #[must_use]
    pub fn clock(&self) -> &dyn Clock {
        self.clock.as_ref()
    }

    /// The directory of the identity of this host's minion.
    #[must_use]
    pub fn minion(&self) -> &std::path::Path {
        &self.minion
    }

    /// The configuration of the host.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Waits until this host has heard of a higher epoch than this one.
    pub async fn is_above(&self, epoch: Epoch) {
        let mut changes = self.epoch.subscribe();
        // `self` owns the sender.
        let _ = changes.wait_for(|heard| heard.rank() > epoch.rank()).await;
    }

    /// Records the epoch of a master that this standby follows, which is already on disk.
    pub(super) fn follows(&self, epoch: &Epoch) {
        self.epoch.send_if_modified(|known| {
            let is_new = epoch.rank() > known.rank();
            if is_new {
                known.clone_from(epoch);
            }
            is_new
        });
    }

    /// Handles the answer of a master. Its certificate has proven that it is one.
    ///
    /// # Errors
    /// The epoch cannot be written.
    fn hear(&self, master: &str, epoch: &Epoch) -> Result<(), CopyError> {
        let known = self.epoch();
        // Without a signature that this host can verify, for example of another CA, only the number
        // counts.
        let is_lower = match epoch.holder.is_empty() {
            true => epoch.number < known.number,
            false => epoch.rank() < known.rank(),
        };
        if is_lower {
            // The master was replaced, and this query has informed it.
            return Ok(());
        }
        *self.heard() = Some(Heard {
            master: master.to_owned(),
            at: self.clock.steady(),
        });
        // No master can have a higher number: the record is damaged and ignored.
        if epoch.rank() > known.rank() && epoch.number <= HIGHEST {
            note_heard(&directory(&self.config), epoch)?;
            let epoch_number = epoch.number;
            tracing::warn!(
                master,
                epoch = epoch_number,
                "another master has a higher epoch"
            );
            self.follows(epoch);
        }
        Ok(())
    }

    /// The report of this standby about its master.
    #[must_use]
    pub fn standing(&self) -> Standing {
        let report = report(&self.config).ok().flatten();
        let until = report.map_or_else(String::new, |report| report.until().to_string());
        let heard = self.heard();
        let silent = heard
            .as_ref()
            .map_or(0, |heard| self.clock.steady() - heard.at);
        Standing {
            master: heard
                .as_ref()
                .map_or_else(String::new, |heard| heard.master.clone()),
            silent_seconds: u64::try_from(silent / 1000).unwrap_or_default(),
            until,
        }
    }

    /// Queries the masters once, and gives each the highest epoch: a master with a lower epoch
    /// stops. The epochs of other standbys are not trusted, because they present only a minion's
    /// certificate.
    ///
    /// # Errors
    /// This host's minion has no identity.
    pub async fn ask(&self) -> Result<(), SessionError> {
        let addresses = masters(&mark(&self.config)).ok().flatten();
        let addresses = addresses.unwrap_or_default();
        let before = self.epoch();
        // The highest epoch last, because it decides.
        let mut found = Vec::new();
        for (address, answer) in answers(&addresses, &before, &self.minion).await? {
            match answer {
                HostAnswer::Master(epoch) => found.push((epoch, address)),
                HostAnswer::Refused => found.push((before.clone(), address)),
                HostAnswer::Moved
                | HostAnswer::Standby(_)
                | HostAnswer::NoMaster
                | HostAnswer::Silent => {}
            }
        }
        found.sort_by(|(one, _), (other, _)| one.rank().cmp(&other.rank()));
        for (epoch, address) in found {
            self.hear(&address, &epoch)?;
        }
        let now = self.epoch();
        if now.rank() > before.rank() {
            // The previous master must not have to wait for the next round.
            answers(&addresses, &now, &self.minion).await?;
        }
        Ok(())
    }

    /// Queries the masters periodically. Never returns.
    pub async fn watch(&self) {
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Err(error) = self.ask().await {
                tracing::warn!(reason = chain(&error), "cannot ask the masters");
            }
        }
    }
}
