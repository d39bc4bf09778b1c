//! A part of the tests of `--full`, and its remaining tests.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::ledger::{StartedTest, States};

/// Minutes after which a run of a part starts no further test, and the total time of a part's
/// tests.
pub const PART_MINUTES: u64 = 30;

/// The time that a part has for creating the clusters of its tests.
const CLUSTERS: Duration = Duration::from_secs(4 * 60);

/// One of the parts into which all tests are divided: `2/4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TestPart {
    /// The number of the part, from 1.
    number: usize,
    /// The number of parts.
    of: usize,
}

impl FromStr for TestPart {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let numbers = text
            .split_once('/')
            .and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Self { number, of }),
            _ => bail!("invalid part {text:?}: write N/M, with N from 1 to M, for example 2/4"),
        }
    }
}

impl fmt::Display for TestPart {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.number, self.of)
    }
}

/// A test in the order of the plan.
#[derive(Debug, Clone)]
pub(crate) struct Planned {
    pub(crate) name: String,
    /// Its usual time.
    pub(crate) time: Duration,
    /// `true` if it is in the same part as the previous test.
    pub(crate) follows: bool,
}

/// The tests of a run of a part.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// Tests that start in this run.
    pub(crate) run: BTreeSet<String>,
    /// The number of passed tests.
    pub(crate) passed: usize,
    /// `true` if those in `run` have been started before.
    pub(crate) again: bool,
}

/// Divides tests into `of` parts of about the same time, in order.
fn divided(tests: &[Planned], of: usize) -> Vec<Vec<&Planned>> {
    let total: f64 = tests.iter().map(|test| test.time.as_secs_f64()).sum();
    let share = (total / of as f64).max(f64::EPSILON);
    let mut parts = vec![Vec::new(); of];
    let (mut before, mut part) = (0.0, 0);
    for test in tests {
        let time = test.time.as_secs_f64();
        if !test.follows {
            // By its middle, so that a long test is in the part that has more of it.
            part = (((before + time / 2.0) / share) as usize).clamp(part, of - 1);
        }
        before += time;
        parts[part].push(test);
    }
    parts
}

/// The smallest number of parts of which none takes longer than [`PART_MINUTES`], including its
/// clusters, unless tests that depend on each other do.
pub(crate) fn number(tests: &[Planned]) -> usize {
    let limit = Duration::from_secs(60 * PART_MINUTES) - CLUSTERS;
    let fits = |part: &Vec<&Planned>| {
        let is_one = part.iter().skip(1).all(|test| test.follows);
        is_one || part.iter().map(|test| test.time).sum::<Duration>() <= limit
    };
    let most = tests.len().max(1);
    (1..most)
        .find(|of| divided(tests, *of).iter().all(fits))
        .unwrap_or(most)
}

impl TestPart {
    /// The remaining tests of the part. Tests that never started come first; if there are none,
    /// those that failed or never ended: a test that takes the whole time each time does not keep
    /// the others from running.
    pub(crate) fn left(self, tests: &[Planned], states: &States) -> Left {
        let parts = divided(tests, self.of);
        let own = parts.get(self.number - 1).map_or(&[][..], Vec::as_slice);
        let with = |wanted: &dyn Fn(Option<StartedTest>) -> bool| -> BTreeSet<String> {
            let names = own.iter().map(|test| test.name.clone());
            names.filter(|name| wanted(states.of(name))).collect()
        };
        let fresh = with(&|state| state.is_none());
        let again = fresh.is_empty();
        let run = if again {
            with(&|state| state != Some(StartedTest::Passed))
        } else {
            fresh
        };
        let passed = with(&|state| state == Some(StartedTest::Passed)).len();
        Left { run, passed, again }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str) -> TestPart {
        text.parse().unwrap()
    }

    fn planned(name: &str, seconds: u64) -> Planned {
        Planned {
            name: name.to_owned(),
            time: Duration::from_secs(seconds),
            follows: false,
        }
    }

    #[test]
    fn a_part_is_one_of_a_number() {
        assert_eq!(part("2/4").to_string(), "2/4");
        for text in ["", "2", "0/4", "5/4", "1/0", "a/4", "-1/4", "1/4/2"] {
            assert!(text.parse::<TestPart>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_test_is_in_one_part() {
        let tests: Vec<Planned> = (0..23)
            .map(|n| planned(&format!("test {n}"), n * n % 7 * 60))
            .collect();
        for of in 1..30 {
            let mut all = Vec::new();
            for number in 1..=of {
                let left = part(&format!("{number}/{of}")).left(&tests, &States::default());
                assert!(!left.again || left.run.is_empty(), "{left:?}");
                all.extend(left.run);
            }
            all.sort();
            let mut wanted: Vec<String> = tests.iter().map(|test| test.name.clone()).collect();
            wanted.sort();
            assert_eq!(all, wanted, "in {of} parts");
        }
    }

    #[test]
    fn the_number_of_parts_follows_from_the_times() {
        assert_eq!(number(&[]), 1);
        let tests: Vec<Planned> = (0..100)
            .map(|n| planned(&format!("test {n}"), 60))
            .collect();
        let of = number(&tests);
        assert_eq!(of, 4, "100 minutes in parts of at most 26");
        let longest = divided(&tests, of).iter().map(Vec::len).max();
        assert!(longest <= Some(26), "{longest:?}");
    }

    #[test]
    fn a_test_that_needs_the_previous_one_is_in_the_same_part() {
        let mut tests: Vec<Planned> = (0..10).map(|n| planned(&format!("test {n}"), 60)).collect();
        for test in &mut tests[3..8] {
            test.follows = true;
        }
        for of in 1..10 {
            let parts = divided(&tests, of);
            let together = parts.iter().find(|part| {
                let names: Vec<&str> = part.iter().map(|test| test.name.as_str()).collect();
                names.contains(&"test 2") && names.contains(&"test 7")
            });
            assert!(together.is_some(), "in {of} parts");
        }
    }

    #[test]
    fn failed_and_interrupted_tests_are_repeated_after_all_others() {
        let tests = ["a", "b", "c", "d"].map(|name| planned(name, 1));
        let left = |states: &[(&str, StartedTest)]| part("1/1").left(&tests, &States::with(states));
        let names = |left: &Left| left.run.iter().cloned().collect::<String>();
        let begun = left(&[
            ("a", StartedTest::Passed),
            ("b", StartedTest::Failed),
            ("c", StartedTest::Interrupted),
        ]);
        assert_eq!(
            (names(&begun), begun.passed, begun.again),
            ("d".to_owned(), 1, false)
        );
        let tried = left(&[
            ("a", StartedTest::Passed),
            ("b", StartedTest::Failed),
            ("c", StartedTest::Interrupted),
            ("d", StartedTest::Passed),
        ]);
        assert_eq!(
            (names(&tried), tried.passed, tried.again),
            ("bc".to_owned(), 2, true)
        );
        let done = left(
            &tests
                .each_ref()
                .map(|test| (test.name.as_str(), StartedTest::Passed)),
        );
        assert_eq!((names(&done), done.passed), (String::new(), 4));
    }
}
