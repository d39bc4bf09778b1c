//! Epochs, the order of the masters of a cluster. Each new master has a higher epoch than every
//! previous master, so the numbers only grow, and no host's mere claim may use any of them up.

/// The highest epoch that a master can have: the store counts in signed 64-bit integers.
pub const HIGHEST: u64 = i64::MAX.unsigned_abs() - 1;

/// The reason why no epoch can be chosen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EpochError {
    /// There is no epoch above this one.
    #[error(
        "cannot choose an epoch above {0}: no master can have had that epoch, so its record is damaged; restore a backup with \
         `ctl bootstrap --restore`"
    )]
    UsedUp(u64),
}

/// The epoch of a new master after `heard`, the highest known epoch.
///
/// # Errors
/// There is no higher epoch.
pub fn next(heard: u64) -> Result<u64, EpochError> {
    let next = heard.checked_add(1).filter(|next| *next <= HIGHEST);
    next.ok_or(EpochError::UsedUp(heard))
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
}
