//! Retries of failed requests.

use std::time::Duration;

use halite_errors::chain;
use jiff::Timestamp;
use jiff::fmt::rfc2822;

use super::Settings;
use crate::error::Error;

/// The prospects of a retry after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryChance {
    /// It would fail in the same way.
    No,
    /// It may succeed.
    Yes,
    /// It may succeed at once: the obstacle is gone.
    Now,
    /// It may succeed after this time.
    After(Duration),
}

/// A failed attempt.
#[derive(Debug)]
pub struct Failure {
    pub error: Error,
    pub again: RetryChance,
}

impl Failure {
    pub fn again(error: Error) -> Self {
        Self {
            error,
            again: RetryChance::Yes,
        }
    }
}

/// Errors of this machine are not retried.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self {
            error,
            again: RetryChance::No,
        }
    }
}

/// Retries `attempt` until it succeeds, fails permanently, or the retries are used up. With a
/// failure, `attempt` returns whether it made progress, which resets the count.
pub fn until<T>(
    settings: &Settings,
    mut attempt: impl FnMut() -> Result<T, (Failure, bool)>,
) -> Result<T, Error> {
    let mut failed = 0;
    loop {
        let (Failure { error, again }, further) = match attempt() {
            Ok(done) => return Ok(done),
            Err(failure) => failure,
        };
        failed = if further { 1 } else { failed + 1 };
        let grown = settings
            .pause
            .saturating_mul(1 << (failed - 1).min(16))
            .min(settings.longest_pause);
        let pause = match again {
            RetryChance::No => return Err(error),
            RetryChance::Now => Duration::ZERO,
            RetryChance::Yes => grown,
            RetryChance::After(asked) if asked > settings.longest_pause => {
                return Err(later(error, asked, settings.longest_pause));
            }
            RetryChance::After(asked) => asked.max(grown),
        };
        if failed > settings.retries {
            return Err(tried(error, failed));
        }
        if !pause.is_zero() {
            tracing::info!("{}; retrying in {pause:?}", chain(&error));
            (settings.sleep)(pause);
        }
    }
}

/// Makes the error for a server that requests a longer wait than allowed.
fn later(error: Error, asked: Duration, bound: Duration) -> Error {
    let (url, said, source) = match error {
        Error::Status { url, status, .. } => (url, format!("the server answers {status}"), None),
        Error::Server {
            url,
            message,
            source,
        } => (url, message, source),
        error => return error,
    };
    let (asked, bound) = (asked.as_secs(), bound.as_secs());
    let message = format!(
        "{said} and asks for a retry in {asked} seconds; the longest pause here is {bound}, so retry after that time"
    );
    Error::Server {
        url,
        message,
        source,
    }
}

/// Adds the number of attempts to an error.
fn tried(error: Error, times: u32) -> Error {
    let add = |message: String| format!("{message} (tried {times} times)");
    match error {
        Error::Server {
            url,
            message,
            source,
        } => Error::Server {
            url,
            message: add(message),
            source,
        },
        Error::Status {
            url,
            status,
            message,
        } => Error::Status {
            url,
            status: add(status),
            message,
        },
        error => error,
    }
}

/// The wait that a `Retry-After` header requests: seconds, or a date.
pub fn retry_after(value: &str, now: Timestamp) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let until = rfc2822::parse(value.trim()).ok()?.timestamp();
    Some(until.duration_since(now).try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn settings() -> (Settings, Arc<Mutex<Vec<u64>>>) {
        let pauses = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&pauses);
        let sleep = Arc::new(move |pause: Duration| noted.lock().unwrap().push(pause.as_secs()));
        let (pause, longest_pause) = (Duration::from_secs(1), Duration::from_secs(10));
        (
            Settings {
                sleep,
                pause,
                longest_pause,
                retries: 5,
                ..Settings::default()
            },
            pauses,
        )
    }

    fn failure(again: RetryChance) -> Failure {
        Failure {
            error: Error::server("https://x/", "no"),
            again,
        }
    }

    #[test]
    fn pauses_grow_and_end() {
        let (settings, pauses) = settings();
        let error = until(&settings, || {
            Err::<(), _>((failure(RetryChance::Yes), false))
        })
        .unwrap_err();
        assert_eq!(error.to_string(), "https://x/: no (tried 6 times)");
        assert_eq!(*pauses.lock().unwrap(), [1, 2, 4, 8, 10]);
    }

    #[test]
    fn progress_makes_patience_new_and_a_server_may_ask_for_more() {
        let (settings, pauses) = settings();
        let mut turns = 0;
        let done = until(&settings, || {
            turns += 1;
            match turns {
                1 | 2 => Err((failure(RetryChance::Yes), false)),
                3 => Err((failure(RetryChance::After(Duration::from_secs(7))), true)),
                4..=8 => Err((failure(RetryChance::Yes), turns == 5)),
                _ => Ok(turns),
            }
        });
        assert_eq!(done.unwrap(), 9);
        assert_eq!(*pauses.lock().unwrap(), [1, 2, 7, 2, 1, 2, 4, 8]);
    }

    #[test]
    fn what_is_hopeless_is_not_tried_again() {
        let (settings, pauses) = settings();
        assert!(
            until(&settings, || Err::<(), _>((
                failure(RetryChance::No),
                false
            )))
            .is_err()
        );
        let late = failure(RetryChance::After(Duration::from_secs(3600)));
        let mut late = Some(late);
        let error = until(&settings, || Err::<(), _>((late.take().unwrap(), false)))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("in 3600 seconds") && error.contains("the longest pause here is 10"),
            "{error}"
        );
        assert!(pauses.lock().unwrap().is_empty());
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now: Timestamp = "2015-10-21T07:27:00Z".parse().unwrap();
        assert_eq!(retry_after("120", now), Some(Duration::from_secs(120)));
        assert_eq!(
            retry_after("Wed, 21 Oct 2015 07:28:00 GMT", now),
            Some(Duration::from_secs(60))
        );
        assert_eq!(
            retry_after("Wed, 21 Oct 2015 07:20:00 GMT", now),
            Some(Duration::ZERO)
        );
        assert_eq!(retry_after("soon", now), None);
    }
}
