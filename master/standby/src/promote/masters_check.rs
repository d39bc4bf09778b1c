//! The check that no master acts, before a promotion changes anything: neither this host nor any
//! other standby may hear one. A link that is cut to the master alone does not justify a second
//! master.

use std::time::Duration;

use halite_proto::v1::Epoch;
use tokio::time::Instant;

use super::super::compare::{HostAnswer, StandsBy, answers};
use super::error::PromoteError;
use super::{Promotion, PromotionRequest};

/// The pause between two queries.
const PAUSE: Duration = Duration::from_secs(1);

impl Promotion<'_> {
    /// Refuses while a master answers this host or another standby. A master that answered a
    /// standby shortly before the first query may have died since: then this waits until the master
    /// either answers the standby again or has been silent for long enough. Returns the standbys
    /// that were reached.
    pub(super) async fn check_masters(
        &self,
        addresses: &[String],
        wanted: &PromotionRequest,
    ) -> Result<Vec<StandsBy>, PromoteError> {
        if wanted.force {
            self.check_cluster(wanted)?;
            return Ok(Vec::new());
        }
        let began = Instant::now();
        let mut is_noted = false;
        loop {
            let (mut standbys, mut silent) = (Vec::new(), Vec::new());
            for (address, answer) in answers(addresses, &Epoch::default(), self.minion).await? {
                match answer {
                    HostAnswer::Master(_) | HostAnswer::Refused => {
                        return Err(PromoteError::Alive(address));
                    }
                    HostAnswer::Standby(standby) => standbys.push(standby),
                    HostAnswer::NoMaster | HostAnswer::Moved => {}
                    HostAnswer::Silent => silent.push(address),
                }
            }
            let Some((standby, master)) = heard_of(&standbys, began.elapsed())? else {
                for address in silent {
                    (self.note)(&format!(
                        "{address} does not answer: it is switched off or disconnected"
                    ));
                }
                return Ok(standbys);
            };
            if !is_noted {
                (self.note)(&format!(
                    "the master at {master} answered {standby} a moment ago: waiting for its next answer"
                ));
                is_noted = true;
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// A standby and its master, if it is not known yet whether that master is dead. `since` is the
/// time since the first query.
///
/// # Errors
/// A master has answered a standby after that query.
fn heard_of(
    standbys: &[StandsBy],
    since: Duration,
) -> Result<Option<(String, String)>, PromoteError> {
    let mut waits = None;
    for standby in standbys {
        let Some(followed) = standby.hears() else {
            continue;
        };
        // Only whole seconds are reported: the answer may be older by up to one.
        if followed.silent + Duration::from_secs(1) <= since {
            return Err(PromoteError::Heard {
                standby: standby.host.clone(),
                address: standby.address.clone(),
                master: followed.master.clone(),
            });
        }
        waits = Some((standby.host.clone(), followed.master.clone()));
    }
    Ok(waits)
}

#[cfg(test)]
mod tests {
    use super::super::super::compare::Followed;
    use super::*;

    fn standby(silent: u64) -> StandsBy {
        StandsBy {
            address: "10.0.0.13:4550".to_owned(),
            host: "cp-3".to_owned(),
            epoch: Epoch::unproven(1),
            followed: Some(Followed {
                master: "10.0.0.11:4550".to_owned(),
                silent: Duration::from_secs(silent),
            }),
            until: String::new(),
        }
    }

    #[test]
    fn a_master_counts_as_dead_when_no_standby_has_heard_it_for_a_while() {
        let at = |silent: u64, since: u64| heard_of(&[standby(silent)], Duration::from_secs(since));
        assert!(at(0, 0).unwrap().is_some(), "before the first question");
        assert!(at(5, 3).unwrap().is_some());
        assert!(at(3, 3).unwrap().is_some(), "it may be older by a second");
        assert_eq!(at(15, 10).unwrap(), None);
        let refused = at(2, 3).unwrap_err().to_string();
        for part in ["the standby cp-3", "10.0.0.11:4550", "--force --cluster"] {
            assert!(refused.contains(part), "{refused}");
        }
        let unaware = StandsBy {
            followed: None,
            ..standby(0)
        };
        assert_eq!(heard_of(&[unaware], Duration::ZERO).unwrap(), None);
    }
}
