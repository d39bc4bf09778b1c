//! Durations on the command line.

use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};

/// The text is not a duration.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("give a time with its unit, such as 30s, 15m or 1h30m")]
pub struct NoDuration;

/// Parses a duration of a second or more in jiff's "friendly" format: `30s`, `15m`, `1h30m`, `90d`.
/// A day has 24 hours.
///
/// # Errors
/// The text is something else.
pub fn duration(text: &str) -> Result<Duration, NoDuration> {
    duration_or_zero(text).and_then(|duration| match duration.as_secs() {
        0 => Err(NoDuration),
        _ => Ok(duration),
    })
}

/// As [`duration`]; `0s` is valid, too.
///
/// # Errors
/// The text is something else.
pub fn duration_or_zero(text: &str) -> Result<Duration, NoDuration> {
    let span: Option<Span> = text.parse().ok();
    let in_days = |span: Span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok();
    span.and_then(in_days)
        .and_then(|duration: SignedDuration| Duration::try_from(duration).ok())
        .ok_or(NoDuration)
}

/// Formats a duration as the command line takes it: `90s`, `15m`, `2h`.
#[must_use]
pub fn shown(duration: Duration) -> String {
    match duration.as_secs() {
        seconds if seconds > 0 && seconds % 3600 == 0 => format!("{}h", seconds / 3600),
        seconds if seconds > 0 && seconds % 60 == 0 => format!("{}m", seconds / 60),
        seconds => format!("{seconds}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_unit() {
        assert_eq!(duration("10m"), Ok(Duration::from_mins(10)));
        assert_eq!(duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(duration("1h30m"), Ok(Duration::from_mins(90)));
        assert_eq!(duration("90d"), Ok(Duration::from_hours(90 * 24)));
        assert_eq!(duration_or_zero("0s"), Ok(Duration::ZERO));
        for text in ["90s", "15m", "2h", "0s"] {
            assert_eq!(duration_or_zero(text).map(shown).as_deref(), Ok(text));
        }
        for bad in ["10", "", "-1m", "0s", "soon", "500ms", "1mo"] {
            assert_eq!(duration(bad), Err(NoDuration), "{bad}");
        }
    }
}
