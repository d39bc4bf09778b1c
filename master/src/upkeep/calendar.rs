//! Declared times of the week, in the time zone of the master's host. Pure: time and zone come in as
//! values.

use halite_pillar::etcd::Weekly;
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::store::Millis;

/// The file with the rules of the host's time zone (tzfile(5)); without one it is UTC.
const LOCAL: &str = "/etc/localtime";

/// The time zone of this host.
pub(super) fn local() -> TimeZone {
    let rules = std::fs::read(LOCAL).ok();
    let zone = rules.and_then(|rules| TimeZone::tzif("local", &rules).ok());
    zone.unwrap_or(TimeZone::UTC)
}

/// The newest declared time that is not after `now`. An hour that a clock skips at the begin of
/// summer time counts as the one after it.
pub(super) fn last(weekly: Weekly, now: Millis, zone: &TimeZone) -> Option<Millis> {
    let here = Timestamp::from_millisecond(now).ok()?;
    let mut date = here.to_zoned(zone.clone()).date();
    for _ in 0..=7 {
        let day = u8::try_from(date.weekday().to_monday_zero_offset()).ok();
        if weekly.day.is_none() || weekly.day == day {
            let (hour, minute) = (i8::try_from(weekly.hour), i8::try_from(weekly.minute));
            let time = date.at(hour.ok()?, minute.ok()?, 0, 0);
            let at = time.to_zoned(zone.clone()).ok()?.timestamp();
            if at <= here {
                return Some(at.as_millisecond());
            }
        }
        date = date.yesterday().ok()?;
    }
    None
}

#[cfg(test)]
mod tests {
    use jiff::tz::Offset;

    use super::*;

    fn millis(text: &str) -> Millis {
        text.parse::<Timestamp>().unwrap().as_millisecond()
    }

    const SUNDAY: Weekly = Weekly {
        day: Some(6),
        hour: 3,
        minute: 30,
    };

    #[test]
    fn the_last_time_of_the_week_is_within_seven_days() {
        for (now, wanted) in [
            ("2026-11-29T03:30:00Z", "2026-11-29T03:30:00Z"),
            ("2026-11-29T03:29:59.999Z", "2026-11-22T03:30:00Z"),
            ("2026-11-25T12:00:00Z", "2026-11-22T03:30:00Z"),
            ("2027-01-01T00:00:00Z", "2026-12-27T03:30:00Z"),
        ] {
            let found = last(SUNDAY, millis(now), &TimeZone::UTC);
            assert_eq!(found, Some(millis(wanted)), "{now}");
        }
        let daily = Weekly {
            day: None,
            ..SUNDAY
        };
        let found = last(daily, millis("2026-11-25T03:00:00Z"), &TimeZone::UTC);
        assert_eq!(found, Some(millis("2026-11-24T03:30:00Z")));
    }

    #[test]
    fn it_is_the_time_of_the_hosts_zone() {
        let zone = TimeZone::fixed(Offset::constant(2));
        // Monday in UTC+2 is still Sunday in UTC.
        let monday = Weekly {
            day: Some(0),
            hour: 0,
            minute: 15,
        };
        let found = last(monday, millis("2026-11-29T22:30:00Z"), &zone);
        assert_eq!(found, Some(millis("2026-11-29T22:15:00Z")));
    }

    #[test]
    fn an_hour_that_is_skipped_counts_as_the_one_after_it() {
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let skipped = Weekly {
            day: Some(6),
            hour: 2,
            minute: 30,
        };
        let found = last(skipped, millis("2027-03-28T12:00:00Z"), &zone);
        assert_eq!(found, Some(millis("2027-03-28T01:30:00Z")));
    }
}
