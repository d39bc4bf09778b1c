//! A part of the tests of `--full`, and what is left of it.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use anyhow::{Result, bail};

use crate::ledger::{State, States};

/// Minutes after which a run of a part begins no further test.
pub const PART_MINUTES: u64 = 60;

/// One of the parts into which all tests are divided: `2/4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Which one, from 1.
    number: usize,
    /// The number of parts.
    of: usize,
}

impl FromStr for Part {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let numbers = text
            .split_once('/')
            .and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)));
        match numbers {
            Some((number, of)) if (1..=of).contains(&number) => Ok(Self { number, of }),
            _ => bail!("{text:?} is no part: write N/M, with N from 1 to M, for example 2/4"),
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}/{}", self.number, self.of)
    }
}

/// The tests of a run of a part.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// Those that begin in this run.
    pub(crate) run: BTreeSet<String>,
    /// The number of those that have passed.
    pub(crate) passed: usize,
    /// True if those in `run` have begun before.
    pub(crate) again: bool,
}

impl Part {
    /// What is left of the part. Each M-th test is of one part, so that numbered series and sites are
    /// divided equally. First come those that never began; when there are none, those that failed or
    /// never ended: one that takes the whole time each time does not keep the others from running.
    pub(crate) fn left(self, tests: &[String], states: &States) -> Left {
        let own = || (tests.iter().skip(self.number - 1)).step_by(self.of);
        let with = |wanted: &dyn Fn(Option<State>) -> bool| -> BTreeSet<String> {
            own()
                .filter(|test| wanted(states.of(test)))
                .cloned()
                .collect()
        };
        let fresh = with(&|state| state.is_none());
        let again = fresh.is_empty();
        let run = if again {
            with(&|state| state != Some(State::Passed))
        } else {
            fresh
        };
        let passed = with(&|state| state == Some(State::Passed)).len();
        Left { run, passed, again }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(text: &str) -> Part {
        text.parse().unwrap()
    }

    #[test]
    fn a_part_is_one_of_a_number() {
        assert_eq!(part("2/4").to_string(), "2/4");
        for text in ["", "2", "0/4", "5/4", "1/0", "a/4", "-1/4", "1/4/2"] {
            assert!(text.parse::<Part>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_test_is_of_one_part() {
        let tests: Vec<String> = (0..23).map(|n| format!("test {n}")).collect();
        for of in 1..30 {
            let mut all = Vec::new();
            for number in 1..=of {
                let left = part(&format!("{number}/{of}")).left(&tests, &States::default());
                assert!(!left.again || left.run.is_empty(), "{left:?}");
                all.extend(left.run);
            }
            all.sort();
            let mut wanted = tests.clone();
            wanted.sort();
            assert_eq!(all, wanted, "in {of} parts");
        }
    }

    #[test]
    fn what_failed_or_never_ended_comes_again_when_all_others_have_run() {
        let tests = ["a", "b", "c", "d"].map(str::to_owned);
        let left = |states: &[(&str, State)]| part("1/1").left(&tests, &States::with(states));
        let names = |left: &Left| left.run.iter().cloned().collect::<String>();
        let begun = left(&[
            ("a", State::Passed),
            ("b", State::Failed),
            ("c", State::Interrupted),
        ]);
        assert_eq!(
            (names(&begun), begun.passed, begun.again),
            ("d".to_owned(), 1, false)
        );
        let tried = left(&[
            ("a", State::Passed),
            ("b", State::Failed),
            ("c", State::Interrupted),
            ("d", State::Passed),
        ]);
        assert_eq!(
            (names(&tried), tried.passed, tried.again),
            ("bc".to_owned(), 2, true)
        );
        let done = left(&tests.each_ref().map(|test| (test.as_str(), State::Passed)));
        assert_eq!((names(&done), done.passed), (String::new(), 4));
    }
}
