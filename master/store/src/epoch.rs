//! Epochs: the order of the masters of a cluster. Each new master has a higher one than every master
//! before it, so the numbers only grow, and none of them may be used up by what one host claims.

/// The highest epoch that a master can have: the store counts in 64 bits with a sign.
pub const HIGHEST: u64 = i64::MAX.unsigned_abs() - 1;

/// The reason why an epoch is not used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EpochError {
    /// No epoch is left above it.
    #[error(
        "cannot choose an epoch above {0}: no master can have had that one, so its record is damaged; restore a backup with \
         `ctl bootstrap --restore`"
    )]
    UsedUp(u64),
}

/// The epoch of the master after those of which `heard` is the highest.
///
/// # Errors
/// None is left.
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
