//! Times in documents.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// A time: RFC 3339 in UTC, with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Time(Timestamp);

impl Time {
    /// The time in milliseconds since 1970. A time outside the representable years becomes the
    /// nearest representable one.
    #[must_use]
    pub fn from_millis(millis: i64) -> Self {
        let nearest = if millis < 0 {
            Timestamp::MIN
        } else {
            Timestamp::MAX
        };
        Self(Timestamp::from_millisecond(millis).unwrap_or(nearest))
    }

    /// The milliseconds since 1970.
    #[must_use]
    pub fn as_millis(self) -> i64 {
        self.0.as_millisecond()
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl std::str::FromStr for Time {
    type Err = jiff::Error;

    fn from_str(text: &str) -> Result<Self, jiff::Error> {
        text.parse().map(Self)
    }
}

impl TryFrom<String> for Time {
    type Error = jiff::Error;

    fn try_from(text: String) -> Result<Self, jiff::Error> {
        text.parse()
    }
}

impl From<Time> for String {
    fn from(time: Time) -> Self {
        time.to_string()
    }
}

impl JsonSchema for Time {
    fn schema_name() -> Cow<'static, str> {
        "Time".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc_with_milliseconds() {
        assert_eq!(Time::from_millis(0).to_string(), "1970-01-01T00:00:00.000Z");
        let time = Time::from_millis(1_763_683_200_123);
        assert_eq!(time.to_string(), "2025-11-21T00:00:00.123Z");
        assert_eq!(time.to_string().parse::<Time>().unwrap(), time);
        assert!(Time::from_millis(i64::MAX) > time && Time::from_millis(i64::MIN) < time);
    }
}
