//! The day, by which tests take turns.

use std::time::SystemTime;

use anyhow::Result;

/// The day, counted from the Unix epoch.
///
/// # Errors
/// The clock is before it.
pub(crate) fn today() -> Result<usize> {
    let days = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)?
        .as_secs()
        / 86_400;
    Ok(usize::try_from(days)?)
}
