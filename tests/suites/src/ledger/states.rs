//! The state of each test by its records, and the table of all of them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::record::{LedgerLine, TestOutcome};
use super::tree::Tree;

/// The number of lines of a failure in the table; the ledger has all.
const LINES: usize = 3;

/// The state of a test that has begun at least once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StartedTest {
    /// Its last attempt has passed.
    Passed,
    /// Its last attempt has failed.
    Failed,
    /// Its last attempt never ended, or runs now.
    Interrupted,
}

impl StartedTest {
    fn word(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The content of the records of one test.
#[derive(Debug, Clone, PartialEq)]
struct Row {
    state: StartedTest,
    tries: usize,
    seconds: f64,
    commit: String,
    error: Option<String>,
}

/// The states of all tests that have begun.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct States(BTreeMap<String, Row>);

impl States {
    /// From records in the order of their times.
    pub(super) fn new(records: &[LedgerLine]) -> Self {
        let mut rows: BTreeMap<String, Row> = BTreeMap::new();
        for record in records {
            let before = rows.get(&record.test).map_or(0, |row| row.tries);
            let began = record.outcome == TestOutcome::Began;
            let row = Row {
                state: match record.outcome {
                    TestOutcome::Began => StartedTest::Interrupted,
                    TestOutcome::Passed => StartedTest::Passed,
                    TestOutcome::Failed => StartedTest::Failed,
                },
                tries: before + usize::from(began),
                seconds: record.seconds,
                commit: Tree::displayed(&record.commit, record.changed),
                error: record.error.clone(),
            };
            rows.insert(record.test.clone(), row);
        }
        Self(rows)
    }

    /// The state of a test; `None` if it never started.
    pub(crate) fn of(&self, test: &str) -> Option<StartedTest> {
        self.0.get(test).map(|row| row.state)
    }

    /// The seconds of a test and the commit that it ran on, if its last attempt has passed.
    pub(crate) fn passed(&self, test: &str) -> Option<(f64, &str)> {
        let row = self
            .0
            .get(test)
            .filter(|row| row.state == StartedTest::Passed)?;
        Some((row.seconds, row.commit.as_str()))
    }

    /// The commits on which the passed tests last passed.
    pub(super) fn commits(&self) -> BTreeSet<String> {
        let passed = self
            .0
            .values()
            .filter(|row| row.state == StartedTest::Passed);
        passed.map(|row| row.commit.clone()).collect()
    }

    /// Tests with their states, as after one try each.
    #[cfg(test)]
    pub(crate) fn with(tests: &[(&str, StartedTest)]) -> Self {
        let row = |(name, state): &(&str, StartedTest)| {
            let row = Row {
                state: *state,
                tries: 1,
                seconds: 1.0,
                commit: String::new(),
                error: None,
            };
            ((*name).to_owned(), row)
        };
        Self(tests.iter().map(row).collect())
    }

    /// Returns whether each of these tests has passed.
    pub(crate) fn are_complete(&self, tests: &[String]) -> bool {
        (tests.iter()).all(|test| self.of(test) == Some(StartedTest::Passed))
    }

    /// The table of these tests in order, then of others that have started, such as the creation of
    /// a cluster; and the sums of these tests.
    pub(crate) fn table(&self, tests: &[String]) -> String {
        let mut text = format!("{:<12} tries  seconds  {:<9}  test\n", "outcome", "commit");
        let others = self.0.keys().filter(|name| !tests.contains(name));
        for name in tests.iter().chain(others) {
            let Some(row) = self.0.get(name) else {
                let _ = writeln!(
                    text,
                    "{:<12} {:>5}  {:>7}  {:<9}  {name}",
                    "not run", "-", "-", "-"
                );
                continue;
            };
            let seconds = match row.state {
                StartedTest::Interrupted => "-".to_owned(),
                _ => format!("{:.1}", row.seconds),
            };
            let (state, tries) = (row.state.word(), row.tries);
            let _ = writeln!(
                text,
                "{state:<12} {tries:>5}  {seconds:>7}  {:<9}  {name}",
                row.commit
            );
            for line in row.error.iter().flat_map(|error| error.lines().take(LINES)) {
                let _ = writeln!(text, "{:<12} {line}", "");
            }
        }
        let count = |state| tests.iter().filter(|test| self.of(test) == state).count();
        let _ = writeln!(
            text,
            "\n{} passed, {} failed, {} interrupted, {} not run, of {}",
            count(Some(StartedTest::Passed)),
            count(Some(StartedTest::Failed)),
            count(Some(StartedTest::Interrupted)),
            count(None),
            tests.len()
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(test: &str, outcome: TestOutcome, error: Option<&str>) -> LedgerLine {
        LedgerLine {
            test: test.to_owned(),
            outcome,
            seconds: if outcome == TestOutcome::Began {
                0.0
            } else {
                12.25
            },
            error: error.map(str::to_owned),
            part: "1/1".to_owned(),
            tree: "abc".to_owned(),
            commit: "1a7abf73c0ffee".to_owned(),
            changed: false,
            at: 0,
        }
    }

    #[test]
    fn the_table_has_each_test_with_its_last_outcome_and_the_number_of_tries() {
        use TestOutcome::{Began, Failed, Passed};
        let states = States::new(&[
            record("x: made", Began, None),
            record("x: made", Passed, None),
            record("x: b", Began, None),
            record("x: b", Failed, Some("a reason")),
            record("x: a", Began, None),
            record("x: a", Failed, Some("another")),
            record("x: a", Began, None),
            record("x: a", Passed, None),
            record("x: c", Began, None),
        ]);
        let tests = ["x: a", "x: b", "x: c", "x: d"].map(str::to_owned);
        assert_eq!(
            states.table(&tests),
            "\
outcome      tries  seconds  commit     test
passed           2     12.2  1a7abf73   x: a
failed           1     12.2  1a7abf73   x: b
             a reason
interrupted      1        -  1a7abf73   x: c
not run          -        -  -          x: d
passed           1     12.2  1a7abf73   x: made

1 passed, 1 failed, 1 interrupted, 1 not run, of 4
"
        );
        assert!(!states.are_complete(&tests));
        assert!(states.are_complete(&tests[..1]));
    }
}
