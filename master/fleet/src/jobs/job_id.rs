//! Job ids in Salt's format: the time in UTC, `%Y%m%d%H%M%S%6f`. They sort by age and are unique.

use std::sync::Mutex;

use halite_proto::ids::JobId;
use halite_store::Millis;

/// Generates job ids that only grow, even if the clock stops or is set back.
pub struct JobIds {
    /// The last id, in microseconds since the epoch.
    last: Mutex<i64>,
}

impl JobIds {
    /// Continues after `last`, the newest id in the store.
    #[must_use]
    pub fn after(last: Option<&JobId>) -> Self {
        Self {
            last: Mutex::new(last.and_then(|last| micros(last)).unwrap_or(0)),
        }
    }

    /// The next id.
    #[must_use]
    pub fn next(&self, now: Millis) -> JobId {
        let mut last = self
            .last
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        *last = now.saturating_mul(1000).max(*last + 1);
        id(*last)
    }
}

fn id(micros: i64) -> JobId {
    let dated = jiff::Timestamp::from_microsecond(micros).ok().map(|time| {
        let time = time.to_zoned(jiff::tz::TimeZone::UTC);
        time.strftime("%Y%m%d%H%M%S%6f").to_string()
    });
    // A clock whose year does not have four digits still yields ids that are unique and grow.
    dated
        .and_then(|text| text.parse().ok())
        .unwrap_or_else(|| JobId::from_number(micros.unsigned_abs()))
}

fn micros(job_id: &str) -> Option<i64> {
    let (seconds, fraction) = job_id.split_at_checked(14)?;
    let time = jiff::civil::DateTime::strptime("%Y%m%d%H%M%S", seconds).ok()?;
    let zoned = time.to_zoned(jiff::tz::TimeZone::UTC).ok()?;
    Some(zoned.timestamp().as_microsecond() + fraction.parse::<i64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_look_like_those_of_salt() {
        assert_eq!(
            JobIds::after(None).next(1_795_219_200_123),
            "20261121000000123000"
        );
    }

    #[test]
    fn ids_are_unique_and_grow_whatever_the_clock_does() {
        let job_ids = JobIds::after(Some(&"20261121000000123000".parse().unwrap()));
        let made: Vec<JobId> = [1_795_219_200_123, 1_795_219_200_123, 5, 1_795_219_200_124]
            .map(|now| job_ids.next(now))
            .into();
        assert_eq!(made[0], "20261121000000123001");
        assert!(made.windows(2).all(|pair| pair[0] < pair[1]), "{made:?}");
    }

    #[test]
    fn a_malformed_id_has_no_successor() {
        assert_eq!(micros("nonsense"), None);
        assert_eq!(micros("2026"), None);
    }
}
