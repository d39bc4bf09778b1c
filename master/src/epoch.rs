//! Epochs: the order of the masters of a cluster. Each new master has a higher one than every master
//! before it, so the numbers only grow, and none of them may be used up by what one host claims.

/// The highest epoch that a master can have: the store counts in 64 bits with a sign.
pub const HIGHEST: u64 = i64::MAX.unsigned_abs() - 1;

/// The most by which an epoch that a minion or standby claims may exceed this master's, or the time in
/// seconds since 1970, from which the epoch of a restored master comes. Promotions count by one.
pub const JUMP: u64 = 1 << 20;

/// The reason why an epoch is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EpochError {
    /// No epoch is left above it.
    #[error(
        "cannot choose an epoch above {0}: no master can have had that one, so its record is damaged; restore a backup with \
         `ctl bootstrap --restore`"
    )]
    UsedUp(u64),
    /// A host claims an epoch that no master can have.
    #[error(
        "cannot believe that {witness} has heard of a master with the epoch {heard}: the highest to expect is {limit}; enrol \
         that host again (halite-minion enrol --force), or reject its key if the host is not trusted"
    )]
    Implausible {
        /// The epoch that it claims.
        heard: u64,
        /// The highest that would be believed.
        limit: u64,
        /// The minion or standby.
        witness: String,
    },
}

/// The epoch of the master after those of which `heard` is the highest.
///
/// # Errors
/// None is left.
pub fn next(heard: u64) -> Result<u64, EpochError> {
    let next = heard.checked_add(1).filter(|next| *next <= HIGHEST);
    next.ok_or(EpochError::UsedUp(heard))
}

/// Refuses a claimed epoch that no promotion and no restore can have made of this master's. `now` is in
/// milliseconds since 1970.
///
/// # Errors
/// It is too high.
pub fn check_claim(heard: u64, own: u64, now: i64, witness: &str) -> Result<(), EpochError> {
    let seconds = u64::try_from(now / 1000).unwrap_or_default();
    let limit = own.max(seconds).saturating_add(JUMP).min(HIGHEST);
    if heard <= limit {
        return Ok(());
    }
    Err(EpochError::Implausible {
        heard,
        limit,
        witness: witness.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_epoch_follows_the_highest() {
        assert_eq!(next(0), Ok(1));
        assert_eq!(next(HIGHEST - 1), Ok(HIGHEST));
        for heard in [HIGHEST, i64::MAX.unsigned_abs(), 1 << 63, u64::MAX] {
            assert_eq!(next(heard), Err(EpochError::UsedUp(heard)));
        }
    }

    #[test]
    fn a_claim_above_the_possible_epochs_is_refused() {
        let (now, restored) = (1_800_000_000_000, 1_800_000_000);
        for heard in [0, 3, 4, 3 + JUMP, restored, restored + JUMP] {
            check_claim(heard, 3, now, "minion:a").unwrap();
        }
        for heard in [restored + JUMP + 1, 1 << 62, 1 << 63, u64::MAX] {
            let refused = check_claim(heard, 3, now, "minion:a").unwrap_err();
            assert!(refused.to_string().contains("minion:a"), "{refused}");
        }
        // With a clock that was never set, and at the end of the numbers.
        check_claim(3 + JUMP, 3, -1, "minion:a").unwrap();
        check_claim(4 + JUMP, 3, -1, "minion:a").unwrap_err();
        check_claim(HIGHEST, HIGHEST, now, "minion:a").unwrap();
        check_claim(HIGHEST + 1, HIGHEST, now, "minion:a").unwrap_err();
    }
}
