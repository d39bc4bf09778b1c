//! The checks of the copy before it becomes the master's: a copy that is damaged is promoted by force only.

use halite_errors::chain;

use super::super::copy::Copy;
use super::super::directory;
use super::{PromoteError, Promotion, Wanted};

impl Promotion<'_> {
    /// Refuses a copy that is not what this standby has acknowledged. Nothing is changed; the daemon must
    /// not run.
    pub(super) fn check_copy(&self, wanted: &Wanted) -> Result<(), PromoteError> {
        let copy = Copy::open(&directory(self.config))?.ok_or(PromoteError::NoCopy)?;
        let damage: Vec<String> = copy.damage().iter().map(|damage| chain(damage)).collect();
        if damage.is_empty() || wanted.force {
            return Ok(());
        }
        Err(PromoteError::Damaged {
            damage: damage.join("; "),
            cluster: self.config.cluster.clone(),
        })
    }
}
