//! One named test, and how many tests passed and failed.

use anyhow::Result;

/// One named test. `passed` can be more than one where it runs a whole set.
pub(crate) struct Test<C> {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&C) -> Result<Counts>,
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
