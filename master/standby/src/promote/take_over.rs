//! A promotion by order of the master itself: it has recorded that it does not serve again, so it
//! is not queried.

use super::super::copy::Copy;
use super::super::disk::{file_error, read_json, remove, write_json};
use super::super::take_over::{Order, taken, waiting, write_record};
use super::super::{directory, mark, masters};
use super::{Boundary, Note, PromoteError, Promotion, PromotionRequest};

impl Promotion<'_> {
    /// Carries out a master's order to take its place, if there is one; returns the epoch. Called
    /// before the daemon serves or follows; the unit is neither stopped nor started.
    ///
    /// # Errors
    /// A step fails: then the next start resumes.
    pub async fn take_over(&self) -> Result<Option<u64>, PromoteError> {
        let Some(order) = self.order()? else {
            return Ok(None);
        };
        let (note, mark) = (self.note_file(), mark(self.config));
        let is_standby = masters(&mark).map_err(file_error("read", &mark))?.is_some();
        let root = directory(self.config);
        if is_standby && !Copy::is_there(&root)? {
            return Err(PromoteError::NoCopy);
        }
        if is_standby {
            self.check_copy(&PromotionRequest::default()).await?;
        }
        write_json(&note, &Note { epoch: order.epoch })?;
        self.reach(Boundary::Noted)?;
        if is_standby {
            self.install(order.epoch).await?;
        }
        let taken = match order.taken {
            0 => self.clock.now(),
            before => before,
        };
        let epoch = order.epoch;
        write_record(self.config, &Order { taken, ..order })?;
        remove(&root)?;
        self.reach(Boundary::Removed)?;
        // Last: until then another start resumes.
        remove(&note)?;
        Ok(Some(epoch))
    }

    /// The pending order, or the order whose copy is already gone while its record exists.
    fn order(&self) -> Result<Option<Order>, PromoteError> {
        if let Some(order) = waiting(self.config)? {
            return Ok(Some(order));
        }
        let note: Option<Note> = read_json(&self.note_file())?;
        let taken = taken(self.config)?;
        let is_standby = mark(self.config).exists();
        Ok(taken.filter(|taken| !is_standby && note.is_some_and(|note| note.epoch == taken.epoch)))
    }
}
