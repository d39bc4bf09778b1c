//! The checks of the copy before it becomes the master's: one that is damaged, and one that may be older than
//! that of another standby, is promoted by force only.

use halite_errors::chain;

use super::super::copy::Copy;
use super::super::declared::{declaration, other_standbys};
use super::super::directory;
use super::super::report::{age, report};
use super::error::{CheckError, PromoteError};
use super::{Promotion, Wanted};
use crate::clock::millis;

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
