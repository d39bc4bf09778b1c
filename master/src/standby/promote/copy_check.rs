//! The checks of the copy before it becomes the master's: one that is damaged, and one that may be older than
//! that of another standby, is promoted by force only.

use halite_errors::chain;

use super::super::copy::Copy;
use super::super::declared::{declaration, other_standbys};
use super::super::directory;
use super::super::report::{Missed, age, report};
use super::{PromoteError, Promotion, Wanted};
use crate::clock::millis;

/// A copy that is promoted by force only.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The copy is not what this standby has acknowledged.
    #[error(
        "the copy of the master on this standby is damaged: {damage}; promote another standby, or restore a backup with `ctl \
         bootstrap --restore`; with --force --cluster {cluster} this host takes what is left, and the rest is lost"
    )]
    Damaged {
        /// The parts that are damaged.
        damage: String,
        /// The name of the cluster.
        cluster: String,
    },
    /// Another standby may have more.
    #[error(
        "the copy of the master on this standby is of {until}, {age} ago, and the master may have gone on since: {missed}; `ctl \
         master list` on {others} says until when it followed: promote the one with the later time, and this one only with \
         --force --cluster {cluster}"
    )]
    Behind {
        /// The time until which it had everything.
        until: String,
        /// The time since then.
        age: String,
        /// Why there may be more.
        missed: Missed,
        /// The other standbys.
        others: String,
        /// The name of the cluster.
        cluster: String,
    },
}

impl Promotion<'_> {
    /// Refuses a copy that is not what this standby has acknowledged. Nothing is changed; the daemon must
    /// not run.
    pub(super) fn check_copy(&self, wanted: &Wanted) -> Result<(), PromoteError> {
        let copy = Copy::open(&directory(self.config))?.ok_or(PromoteError::NoCopy)?;
        let damage: Vec<String> = copy.damage().iter().map(|damage| chain(damage)).collect();
        if damage.is_empty() || wanted.force {
            return Ok(());
        }
        Err(CheckError::Damaged {
            damage: damage.join("; "),
            cluster: self.config.cluster.clone(),
        }
        .into())
    }

    /// Refuses a copy when the master may have gone on without this standby, and another one is declared,
    /// which may have followed for longer. No standby listens: the operator compares them.
    pub(super) fn check_age(&self, wanted: &Wanted) -> Result<(), PromoteError> {
        let report = report(self.config)?;
        let now = self.clock.now();
        let missed = report.as_ref().and_then(|report| report.missed(now));
        let (Some(report), Some(missed), false) = (report, missed, wanted.force) else {
            return Ok(());
        };
        let copy = Copy::peek(&directory(self.config))?;
        let files = copy.as_ref().map(Copy::root_of_files);
        // Documents that cannot be read name no other standby; its copy would have the same.
        let declared = files.and_then(|files| declaration(&files).ok());
        let others = declared.map(|declared| other_standbys(self.config, &declared));
        let others = others.unwrap_or_default();
        if others.is_empty() {
            return Ok(());
        }
        let until = report.until().to_owned();
        let age = age(millis(&until).map_or(0, |until| now - until));
        Err(CheckError::Behind {
            until,
            age,
            missed,
            others: others.join(", "),
            cluster: self.config.cluster.clone(),
        }
        .into())
    }
}
