//! One named test, and the numbers of passed and failed tests.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use halite_lab::timing::Took;

/// The body of a test of a table.
pub(crate) type Run<C> = fn(&C) -> Result<Counts>;

/// The body of any test.
type Body<C> = dyn Fn(&C) -> Result<Counts>;

/// One named test. `passed` can be more than one if it runs a whole set.
pub(crate) struct Test<C> {
    pub(crate) name: &'static str,
    pub(crate) run: Run<C>,
}

/// A test for the runner: from a table, or from a numbered series.
pub(crate) struct Case<C> {
    pub(crate) name: String,
    pub(crate) run: Box<Body<C>>,
    /// `true` if it depends on the previous test, so that both must be in one part.
    pub(crate) follows: bool,
}

impl<C> Case<C> {
    /// A test that depends on no other.
    pub(crate) fn new(name: String, run: impl Fn(&C) -> Result<Counts> + 'static) -> Self {
        Self {
            name,
            run: Box::new(run),
            follows: false,
        }
    }
}

/// The tests of a table, in order. None depends on another.
pub(crate) fn cases<C: 'static>(tests: &[Test<C>]) -> Vec<Case<C>> {
    let case = |test: &Test<C>| Case::new(test.name.to_owned(), test.run);
    tests.iter().map(case).collect()
}

/// Tests each of which depends on the previous ones.
pub(crate) fn sequence<C>(tests: Vec<Case<C>>) -> Vec<Case<C>> {
    let mut all = tests;
    for case in all.iter_mut().skip(1) {
        case.follows = true;
    }
    all
}

/// The numbers of passed and failed tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl Counts {
    pub(crate) const ONE: Self = Self {
        passed: 1,
        failed: 0,
    };

    pub(crate) const FAILURE: Self = Self {
        passed: 0,
        failed: 1,
    };

    pub(crate) fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
    }
}

/// Details of a test that runs many others.
#[derive(Debug, Default)]
pub(crate) struct Details {
    /// The names of failed tests.
    pub(crate) failed: Vec<String>,
    /// The names of tests that failed at first and were repeated.
    pub(crate) repeated: Vec<String>,
    /// The times of their groups.
    pub(crate) took: Vec<Took>,
}

static DETAILS: Mutex<Details> = Mutex::new(Details {
    failed: Vec::new(),
    repeated: Vec::new(),
    took: Vec::new(),
});

/// Records the time of a group of tests that belong to the running one, and the names of those that
/// failed.
pub(crate) fn note_group(name: &str, time: Duration, failed: impl IntoIterator<Item = String>) {
    let mut details = DETAILS.lock().unwrap_or_else(PoisonError::into_inner);
    details.failed.extend(failed);
    details.took.push(Took {
        name: name.to_owned(),
        time,
    });
}

/// Records the names of tests that failed and are repeated.
pub(crate) fn note_repeated(tests: impl IntoIterator<Item = String>) {
    let mut details = DETAILS.lock().unwrap_or_else(PoisonError::into_inner);
    details.repeated.extend(tests);
}

/// Returns and clears the details that were recorded since the last call.
pub(crate) fn details() -> Details {
    std::mem::take(&mut *DETAILS.lock().unwrap_or_else(PoisonError::into_inner))
}
