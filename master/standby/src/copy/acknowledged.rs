//! The record of the position in the master's log that this standby has acknowledged last. Without
//! it a damaged or truncated log would look complete.

use std::path::Path;

use halite_store::wal::{Chain, Position, WalError};
use serde::{Deserialize, Serialize};

use super::super::disk::{CopyDamage, CopyError, file_error, read_json, write_json};

const RECORD: &str = "acknowledged.json";

/// A position in the master's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LogPosition {
    salt: [u8; 8],
    frames: u32,
    checksum: [u8; 8],
}

impl From<Position> for LogPosition {
    fn from(position: Position) -> Self {
        Self {
            salt: position.salt,
            frames: position.frames,
            checksum: position.checksum,
        }
    }
}

impl From<&LogPosition> for Position {
    fn from(place: &LogPosition) -> Self {
        Self {
            salt: place.salt,
            frames: place.frames,
            checksum: place.checksum,
        }
    }
}

/// The position that was acknowledged last; `None` before the first one, or from an earlier
/// version.
pub(super) fn read(directory: &Path) -> Result<Option<LogPosition>, CopyError> {
    read_json(&directory.join(RECORD))
}

/// Records the position that is acknowledged next. The log must be on disk up to it.
pub(super) fn write(directory: &Path, place: &LogPosition) -> Result<(), CopyError> {
    write_json(&directory.join(RECORD), place)
}

/// Reads a log and compares it with the acknowledged position. `folded` is the end of the log that
/// is in the store's file.
pub(super) fn compare(
    log: &Path,
    acknowledged: Option<&LogPosition>,
    folded: Option<&LogPosition>,
) -> (Option<Chain>, Option<CopyDamage>) {
    let chain = match Chain::read(log) {
        Ok(chain) => chain,
        Err(WalError::File { path, source }) => {
            let damage = CopyDamage::Unreadable(file_error("read", &path)(source));
            return (None, Some(damage));
        }
        Err(error) => return (None, Some(CopyDamage::Unreadable(error.into()))),
    };
    let Some(acknowledged) = acknowledged else {
        return (chain, None);
    };
    let end = chain
        .as_ref()
        .and_then(Chain::committed)
        .map(LogPosition::from);
    // The log first: until it is folded, both belong to the same one.
    let found = [end.as_ref(), folded].into_iter().flatten();
    let found = found
        .into_iter()
        .find(|place| place.salt == acknowledged.salt);
    let damage = match found {
        None => Some(CopyDamage::Log {
            found: 0,
            acknowledged: acknowledged.frames,
        }),
        Some(found) if found.frames < acknowledged.frames => Some(CopyDamage::Log {
            found: found.frames,
            acknowledged: acknowledged.frames,
        }),
        Some(_) => None,
    };
    (chain, damage)
}
