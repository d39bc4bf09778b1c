//! Durations on the command line.

use std::time::Duration;

/// Text that is no duration.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("give a time such as 30s, 15m or 1h30m")]
pub struct NoDuration;

/// Parses a duration of a second or more in jiff's "friendly" format: `30s`, `15m`, `1h30m`.
///
/// # Errors
/// The text is something else.
pub fn duration(text: &str) -> Result<Duration, NoDuration> {
    let parsed: Option<jiff::SignedDuration> = text.parse().ok();
    parsed
        .and_then(|parsed| Duration::try_from(parsed).ok())
        .filter(|duration| *duration >= Duration::from_secs(1))
        .ok_or(NoDuration)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(duration("10m"), Ok(Duration::from_mins(10)));
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_mins(90)));
        for bad in ["10", "", "-1m", "0s", "soon"] {
            assert_eq!(duration(bad), Err(NoDuration), "{bad}");
        }
    }
}
