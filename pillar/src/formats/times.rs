//! Times of the day and of the week, in systemd's format, percentages and batches.

use halite_document::schema::Misfit;

use super::suggesting;

/// The value for no time at all.
pub(crate) const NEVER: &str = "never";

pub(super) fn check_time(text: &str) -> Result<(), Misfit> {
    let part = |text: &str, end: u8| {
        text.len() == 2
            && text.bytes().all(|b| b.is_ascii_digit())
            && text.parse::<u8>().is_ok_and(|n| n < end)
    };
    if text
        .split_once(':')
        .is_some_and(|(hour, minute)| part(hour, 24) && part(minute, 60))
    {
        Ok(())
    } else {
        Err(Misfit::new(
            "is not a time of the day",
            "hours and minutes, for example \"02:30\"",
        ))
    }
}

/// A time of the day, or every few hours from one on, in systemd's format: `00/6:00`.
pub(super) fn check_times(text: &str) -> Result<(), Misfit> {
    let repeats = |step: &str| {
        step.parse::<u8>()
            .is_ok_and(|hours| (1..24).contains(&hours))
    };
    let (first, minute) = text.split_once(':').unwrap_or((text, ""));
    let fits = match first.split_once('/') {
        Some((hour, step)) => {
            repeats(step) && step.len() <= 2 && check_time(&format!("{hour}:{minute}")).is_ok()
        }
        None => check_time(text).is_ok(),
    };
    if fits {
        return Ok(());
    }
    Err(Misfit::new(
        "is not a time of the day",
        "\"02:30\" for each day, \"00/6:00\" for every six hours from midnight on",
    ))
}

/// Days in systemd's spelling, from its first day of the week on.
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

pub(super) fn check_day(text: &str) -> Result<(), Misfit> {
    if DAYS.contains(&text) || ["daily", NEVER].contains(&text) {
        Ok(())
    } else {
        Err(Misfit::new(
            "is not a day of the week",
            "Mon, Tue, Wed, Thu, Fri, Sat or Sun; or `daily`, or `never`",
        ))
    }
}

/// A time of the week or of each day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weekly {
    /// The day, from Monday = 0; `None`: each day.
    pub day: Option<u8>,
    /// The hour.
    pub hour: u8,
    /// The minute.
    pub minute: u8,
}

/// The time of a text such as `Sun 03:30` or `03:30`; `None` for one without a time.
pub(crate) fn weekly(text: &str) -> Option<Weekly> {
    let (day, time) = match text.split_once(' ') {
        Some((day, time)) => (Some(DAYS.iter().position(|name| *name == day)?), time),
        None => (None, text),
    };
    check_time(time).ok()?;
    let (hour, minute) = time.split_once(':')?;
    Some(Weekly {
        day: day.and_then(|day| u8::try_from(day).ok()),
        hour: hour.parse().ok()?,
        minute: minute.parse().ok()?,
    })
}

pub(super) fn check_weekly(text: &str) -> Result<(), Misfit> {
    if text == NEVER || weekly(text).is_some() {
        return Ok(());
    }
    Err(Misfit::new(
        "is not a time of the week",
        "\"Sun 03:30\" for each week, \"03:30\" for each day, or `never`",
    ))
}

/// The number of a text such as `45%`.
pub(crate) fn percent(text: &str) -> Option<u8> {
    let number = text.strip_suffix('%')?;
    let digits = number.bytes().all(|b| b.is_ascii_digit()) && !number.starts_with('0');
    let number = number
        .parse()
        .ok()
        .filter(|number| (1..100).contains(number));
    number.filter(|_| digits)
}

pub(super) fn check_batch(text: &str) -> Result<(), Misfit> {
    let digits = text.strip_suffix('%').unwrap_or(text);
    let number = digits.parse::<u16>().ok().filter(|number| *number > 0);
    let is_number = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    let is_possible = number.is_some_and(|number| !text.ends_with('%') || number <= 100);
    if is_number && is_possible {
        return Ok(());
    }
    Err(Misfit::new(
        "is neither a number of hosts nor a percentage",
        "for example 3, or 25%",
    ))
}

pub(super) fn check_percent(text: &str) -> Result<(), Misfit> {
    if percent(text).is_some() {
        return Ok(());
    }
    Err(suggesting(
        "is not a percentage",
        text,
        (check_percent, "from 1% to 99%, for example 45%"),
        format!("{}%", text.trim_end_matches('%').trim()),
    ))
}

/// The least and the longest interval.
const INTERVALS: [(&str, i64); 2] = [("10m", 10 * MINUTE), ("7d", 7 * 24 * 60 * MINUTE)];
const MINUTE: i64 = 60 * 1000;

/// The milliseconds of a text such as `30m`, `12h` or `1d`.
pub(crate) fn interval(text: &str) -> Option<i64> {
    let number = text.strip_suffix(['m', 'h', 'd'])?;
    let unit = match text.bytes().last()? {
        b'm' => MINUTE,
        b'h' => 60 * MINUTE,
        _ => 24 * 60 * MINUTE,
    };
    let digits = number.len() <= 5 && number.bytes().all(|b| b.is_ascii_digit());
    let number: i64 = number.parse().ok().filter(|_| digits)?;
    Some(number * unit)
}

pub(super) fn check_interval(text: &str) -> Result<(), Misfit> {
    let [(least, shortest), (most, longest)] = INTERVALS;
    if interval(text).is_some_and(|length| (shortest..=longest).contains(&length)) {
        return Ok(());
    }
    Err(Misfit::new(
        "is not an interval that can be used here",
        format!("minutes, hours or days, from {least} to {most}: 30m, 12h, 1d"),
    ))
}
