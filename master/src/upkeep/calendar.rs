//! Declared times of the week and of the day, in the time zone of the master's host. Pure: time and
//! zone come in as values.

use halite_pillar::etcd::Weekly;
use halite_store::Millis;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

/// The file with the rules of the host's time zone (tzfile(5)); without one it is UTC.
const LOCAL: &str = "/etc/localtime";

/// The time zone of this host.
pub(crate) fn local() -> TimeZone {
    let rules = std::fs::read(LOCAL).ok();
    let zone = rules.and_then(|rules| TimeZone::tzif("local", &rules).ok());
    zone.unwrap_or(TimeZone::UTC)
}

/// The newest declared time that is not after `now`. An hour that a clock skips at the start of
/// summer time counts as the one after it.
pub(super) fn last(weekly: Weekly, now: Millis, zone: &TimeZone) -> Option<Millis> {
    let here = Timestamp::from_millisecond(now).ok()?;
    let mut date = here.to_zoned(zone.clone()).date();
    for _ in 0..=7 {
        if has_day(weekly, date) {
            let at = time(date, weekly.hour.into(), weekly.minute.into(), zone)?;
            if at <= here {
                return Some(at.as_millisecond());
            }
        }
        date = date.yesterday().ok()?;
    }
    None
}

/// The first declared time after `now`.
pub(crate) fn upcoming(weekly: Weekly, now: Millis, zone: &TimeZone) -> Option<Millis> {
    let here = Timestamp::from_millisecond(now).ok()?;
    let mut date = here.to_zoned(zone.clone()).date();
    for _ in 0..=7 {
        if has_day(weekly, date) {
            let at = time(date, weekly.hour.into(), weekly.minute.into(), zone)?;
            if at > here {
                return Some(at.as_millisecond());
            }
        }
        date = date.tomorrow().ok()?;
    }
    None
}

/// Returns whether the declared time falls on this day.
fn has_day(weekly: Weekly, date: Date) -> bool {
    let day = u8::try_from(date.weekday().to_monday_zero_offset()).ok();
    weekly.day.is_none() || weekly.day == day
}

/// The first time after `now` at one of these hours of the day and this minute.
pub(crate) fn next(hours: &[u32], minute: u32, now: Millis, zone: &TimeZone) -> Option<Millis> {
    let here = Timestamp::from_millisecond(now).ok()?;
    let mut date = here.to_zoned(zone.clone()).date();
    for _ in 0..=1 {
        let times = hours
            .iter()
            .filter_map(|hour| time(date, *hour, minute, zone));
        if let Some(next) = times.filter(|time| *time > here).min() {
            return Some(next.as_millisecond());
        }
        date = date.tomorrow().ok()?;
    }
    None
}

fn time(date: Date, hour: u32, minute: u32, zone: &TimeZone) -> Option<Timestamp> {
    let (hour, minute) = (i8::try_from(hour).ok()?, i8::try_from(minute).ok()?);
    let time = date.at(hour, minute, 0, 0).to_zoned(zone.clone());
    Some(time.ok()?.timestamp())
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
    fn the_next_time_of_the_week_is_within_seven_days() {
        for (now, wanted) in [
            ("2026-11-29T03:30:00Z", "2026-12-06T03:30:00Z"),
            ("2026-11-29T03:29:59.999Z", "2026-11-29T03:30:00Z"),
            ("2026-11-25T12:00:00Z", "2026-11-29T03:30:00Z"),
            ("2026-12-28T00:00:00Z", "2027-01-03T03:30:00Z"),
        ] {
            let found = upcoming(SUNDAY, millis(now), &TimeZone::UTC);
            assert_eq!(found, Some(millis(wanted)), "{now}");
        }
        let daily = Weekly {
            day: None,
            ..SUNDAY
        };
        for (now, wanted) in [
            ("2026-11-25T03:00:00Z", "2026-11-25T03:30:00Z"),
            ("2026-11-25T03:30:00Z", "2026-11-26T03:30:00Z"),
        ] {
            let found = upcoming(daily, millis(now), &TimeZone::UTC);
            assert_eq!(found, Some(millis(wanted)), "{now}");
        }
        // Sunday in UTC+2 starts while it is still Saturday in UTC.
        let zone = TimeZone::fixed(Offset::constant(2));
        let found = upcoming(SUNDAY, millis("2026-11-28T22:00:00Z"), &zone);
        assert_eq!(found, Some(millis("2026-11-29T01:30:00Z")));
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

    #[test]
    fn the_next_time_of_day_may_be_tomorrow() {
        let zone = TimeZone::fixed(Offset::constant(2));
        let hours = [0, 6, 12, 18];
        for (now, wanted) in [
            ("2026-11-25T03:59:59Z", "2026-11-25T04:15:00Z"),
            ("2026-11-25T04:15:00Z", "2026-11-25T10:15:00Z"),
            ("2026-11-25T17:00:00Z", "2026-11-25T22:15:00Z"),
            ("2026-12-31T21:00:00Z", "2026-12-31T22:15:00Z"),
        ] {
            let found = next(&hours, 15, millis(now), &zone);
            assert_eq!(found, Some(millis(wanted)), "{now}");
        }
        assert_eq!(next(&[], 0, 0, &zone), None);
        // A daily time that has just passed.
        let found = next(&[2], 30, millis("2026-11-25T00:30:00Z"), &zone);
        assert_eq!(found, Some(millis("2026-11-26T00:30:00Z")));
    }
}
