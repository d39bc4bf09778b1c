//! The preview of a promotion: its checks, without a change and while the daemon runs.

use halite_errors::chain;

use super::super::copy::Copy;
use super::super::disk::{file_error, read_json};
use super::super::{directory, mark, masters};
use super::error::{CheckError, PromoteError};
use super::{Note, Promotion, PromotionRequest, STORE};

/// The effect that a promotion would have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PromotionEffect {
    /// This standby would become the master.
    Promotes,
    /// An interrupted promotion would be resumed.
    Resumes,
    /// The master of this host, which was replaced or is isolated, would act again.
    TakesBack,
    /// None: this host already has the master.
    Nothing,
}

/// The preview of a promotion.
#[derive(Debug)]
pub struct PromotionPreview {
    /// The effect.
    pub effect: PromotionEffect,
    /// The reasons for which the promotion needs `--force`.
    pub refusals: Vec<PromoteError>,
}

impl Promotion<'_> {
    /// Determines what a promotion would do now, and why it would need `--force`. Changes nothing.
    ///
    /// # Errors
    /// With `--force` the cluster's name is wrong, this host has neither a copy nor a master, a
    /// newer program has changed the copy, or a file cannot be read.
    pub async fn preview(
        &self,
        wanted: &PromotionRequest,
    ) -> Result<PromotionPreview, PromoteError> {
        if wanted.force {
            self.check_cluster(wanted)?;
        }
        let mark = mark(self.config);
        let found: Option<Note> = read_json(&self.note_file())?;
        let addresses = masters(&mark).map_err(file_error("read", &mark))?;
        match addresses {
            Some(addresses) => {
                self.preview_of_standby(&addresses, wanted, found.is_some())
                    .await
            }
            None if found.is_none() && !self.config.state_dir.join(STORE).exists() => {
                Err(PromoteError::NoStandby(mark))
            }
            None => {
                let obstacle = self.obstacle()?.map(|(_, reason)| reason);
                let effect = match (&obstacle, &found) {
                    (Some(_), _) => PromotionEffect::TakesBack,
                    (None, Some(_)) => PromotionEffect::Resumes,
                    (None, None) => PromotionEffect::Nothing,
                };
                let refusals = obstacle.into_iter().collect();
                Ok(PromotionPreview { effect, refusals })
            }
        }
    }

    async fn preview_of_standby(
        &self,
        addresses: &[String],
        wanted: &PromotionRequest,
        is_interrupted: bool,
    ) -> Result<PromotionPreview, PromoteError> {
        let root = directory(self.config);
        if !Copy::is_there(&root)? {
            return Err(PromoteError::NoCopy);
        }
        // Even with `--force`: the operator wants to know what it ignores.
        let unforced = PromotionRequest::default();
        let mut refusals = Vec::new();
        match self.check_masters(addresses, &unforced).await {
            Ok(standbys) => {
                let store = Copy::peek(&root)?.map(|copy| copy.store());
                if let Some(store) = store.filter(|store| store.exists()) {
                    self.refuse_newer(&store, wanted).await?;
                }
                if !is_interrupted {
                    refusals.extend(self.check_age(&unforced, &standbys).err());
                }
                let damage = Copy::damage_at_rest(&root)?;
                if !damage.is_empty() {
                    let damage: Vec<String> = damage.iter().map(|part| chain(part)).collect();
                    let damaged = CheckError::Damaged {
                        damage: damage.join("; "),
                        cluster: self.config.cluster.clone(),
                    };
                    refusals.push(damaged.into());
                }
            }
            // A master that answers may be changing the copy, so the copy is not compared.
            Err(alive) => {
                (self.note)("the copy was not checked");
                refusals.push(alive);
            }
        }
        let effect = match is_interrupted {
            true => PromotionEffect::Resumes,
            false => PromotionEffect::Promotes,
        };
        Ok(PromotionPreview { effect, refusals })
    }
}
