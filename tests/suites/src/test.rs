//! One named test, and how many tests passed and failed.

use anyhow::Result;

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
}

impl<C> Case<C> {
    /// One test of a numbered series.
    pub(crate) fn new(name: String, run: impl Fn(&C) -> Result<Counts> + 'static) -> Self {
        Self {
            name,
            run: Box::new(run),
        }
    }
}

/// The tests of a table, in their order.
pub(crate) fn cases<C: 'static>(tests: &[Test<C>]) -> Vec<Case<C>> {
    let case = |test: &Test<C>| Case::new(test.name.to_owned(), test.run);
    tests.iter().map(case).collect()
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
