//! One named test, and how many tests passed and failed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Result;
use halite_lab::timing::Took;

/// The body of a test of a table.
pub(crate) type Run<C> = fn(&C) -> Result<Counts>;

/// The body of any test.
type Body<C> = dyn Fn(&C) -> Result<Counts>;

/// One named test. `passed` can be more than one where it runs a whole set.
pub(crate) struct Test<C> {
    pub(crate) name: &'static str,
    pub(crate) run: Run<C>,
}

/// A test as the runner takes it: one of the tables, or one of a numbered series.
pub(crate) struct Case<C> {
    pub(crate) name: String,
    pub(crate) run: Box<Body<C>>,
    /// True if it needs what the test before it leaves, so that both are in one part.
    pub(crate) follows: bool,
}

impl<C> Case<C> {
    /// A test that needs no other one before it.
    pub(crate) fn new(name: String, run: impl Fn(&C) -> Result<Counts> + 'static) -> Self {
        Self {
            name,
            run: Box::new(run),
            follows: false,
        }
    }
}

/// The tests of a table, in their order. None needs another one.
pub(crate) fn cases<C: 'static>(tests: &[Test<C>]) -> Vec<Case<C>> {
    let case = |test: &Test<C>| Case::new(test.name.to_owned(), test.run);
    tests.iter().map(case).collect()
}

/// Tests each of which needs those before it.
pub(crate) fn sequence<C>(tests: Vec<Case<C>>) -> Vec<Case<C>> {
    let mut all = tests;
    for case in all.iter_mut().skip(1) {
        case.follows = true;
    }
    all
}

/// How many tests passed and failed.
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
    /// The name of each that failed.
    pub(crate) failed: Vec<String>,
    /// The times of their groups.
    pub(crate) took: Vec<Took>,
}

static DETAILS: Mutex<Details> = Mutex::new(Details {
    failed: Vec::new(),
    took: Vec::new(),
});

/// Notes the time of a group of tests that belong to the running one, and the names of those that failed.
pub(crate) fn note_group(name: &str, time: Duration, failed: impl IntoIterator<Item = String>) {
    let mut details = DETAILS.lock().unwrap_or_else(PoisonError::into_inner);
    details.failed.extend(failed);
    details.took.push(Took {
        name: name.to_owned(),
        time,
    });
}

/// Takes the details that were noted since the last call.
pub(crate) fn details() -> Details {
    std::mem::take(&mut *DETAILS.lock().unwrap_or_else(PoisonError::into_inner))
}
