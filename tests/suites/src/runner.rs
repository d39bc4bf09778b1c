//! Runs tests one after the other, reports each, and ends with a table of where the time went.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use halite_lab::timing;
use halite_lab::timing::Took;

use crate::deadline;
use crate::table::table;
use crate::test::{Counts, Test};

/// Minutes after which no further test begins. The longest test takes less than the time that is
/// left until [`crate::deadline::END`].
pub const MINUTES: u64 = 72;

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The heavy forms too.
    pub full: bool,
    /// Time after which no further test begins; `None`: without limit.
    pub budget: Option<Duration>,
    /// Use a cluster that runs, and leave it running.
    pub keep: bool,
    /// Only tests whose name contains one of these.
    pub filter: Vec<String>,
}

impl Options {
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.filter.is_empty() || self.filter.iter().any(|f| name.contains(f.as_str()))
    }
}

/// A run of the suites.
pub(crate) struct Runner {
    pub(crate) options: Options,
    /// Labs whose hosts were kept because a test failed.
    pub(crate) kept: Vec<String>,
    /// Time since the run began.
    clock: Box<dyn Fn() -> Duration>,
    counts: Counts,
    /// Times of the suites, in the order of their first test.
    suites: Vec<Took>,
    /// Tests that no longer fitted into the budget.
    skipped: Vec<&'static str>,
    /// Whether the tests of a cluster began.
    had_a_cluster: bool,
}

impl Runner {
    pub(crate) fn new(options: Options) -> Self {
        let start = Instant::now();
        Self::with_clock(options, Box::new(move || start.elapsed()))
    }

    fn with_clock(options: Options, clock: Box<dyn Fn() -> Duration>) -> Self {
        Self {
            options,
            kept: Vec::new(),
            clock,
            counts: Counts::default(),
            suites: Vec::new(),
            skipped: Vec::new(),
            had_a_cluster: false,
        }
    }

    /// Runs the tests that are asked for, and returns how many passed and failed.
    pub(crate) fn run<'a, C: 'a>(
        &mut self,
        tests: impl IntoIterator<Item = &'a Test<C>>,
        context: &C,
    ) -> Counts {
        self.run_explained(tests, context, |_| {})
    }

    /// Does the same, and says more of the context after each test that failed.
    pub(crate) fn run_explained<'a, C: 'a>(
        &mut self,
        tests: impl IntoIterator<Item = &'a Test<C>>,
        context: &C,
        explain: impl Fn(&C),
    ) -> Counts {
        let mut counts = Counts::default();
        for test in tests {
            if self.begins(test.name) {
                let one = self.report(test.name, || (test.run)(context));
                if one.failed > 0 {
                    explain(context);
                }
                counts.add(one);
            }
        }
        counts
    }

    /// Whether a test is asked for and begins within the budget.
    fn begins(&mut self, name: &'static str) -> bool {
        self.options.wants(name) && self.fits(name)
    }

    /// Whether something begins within the budget; notes its name when it does not.
    pub(crate) fn fits(&mut self, name: &'static str) -> bool {
        let fits = (self.options.budget).is_none_or(|budget| (self.clock)() < budget);
        if !fits {
            self.skipped.push(name);
        }
        fits
    }

    /// Does the work of a test, reports what it returns, and counts it.
    pub(crate) fn report(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> Result<Counts>,
    ) -> Counts {
        let start = (self.clock)();
        deadline::begin(name);
        let result = work();
        let took = (self.clock)().saturating_sub(start);
        print(name, took, result.as_ref().map(|counts| *counts));
        let counts = result.unwrap_or(Counts::FAILURE);
        self.counts.add(counts);
        let suite = suite_of(name);
        match self.suites.iter_mut().find(|known| known.name == suite) {
            Some(known) => known.time += took,
            None => self.suites.push(Took {
                name: suite.to_owned(),
                time: took,
            }),
        }
        counts
    }

    /// Notes that the tests of a cluster begin.
    pub(crate) fn has_a_cluster(&mut self) {
        self.had_a_cluster = true;
    }

    /// Counts a failure that belongs to no test.
    pub(crate) fn fail(&mut self) {
        self.counts.add(Counts::FAILURE);
    }

    /// Prints the table, the tests that were skipped, and as the last line
    /// `N passed, N failed, N skipped`.
    pub(crate) fn finish(self) -> ExitCode {
        let total = (self.clock)();
        println!("\n{}", table(total, &self.suites, &timing::builds()));
        if let (false, Some(budget)) = (self.skipped.is_empty(), self.options.budget) {
            println!(
                "SKIPPED, because the run had taken {} minutes (--minutes 0: no limit):",
                budget.as_secs() / 60
            );
            for name in &self.skipped {
                println!("  {name}");
            }
        }
        if !self.reached_a_cluster() {
            println!("FAILED: no cluster was tested within the time");
        }
        println!(
            "\n{} passed, {} failed, {} skipped",
            self.counts.passed,
            self.counts.failed,
            self.skipped.len()
        );
        if self.passed() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    fn passed(&self) -> bool {
        self.counts.failed == 0 && self.counts.passed > 0 && self.reached_a_cluster()
    }

    /// Whether tests of a cluster began, or none was skipped.
    fn reached_a_cluster(&self) -> bool {
        self.had_a_cluster || self.skipped.is_empty()
    }
}

/// The suite of a test: its name up to the colon.
fn suite_of(name: &str) -> &str {
    name.split_once(": ").map_or(name, |(suite, _)| suite)
}

fn print(name: &str, took: Duration, result: Result<Counts, &Error>) {
    let seconds = took.as_secs_f64();
    match result {
        Ok(Counts {
            failed: 0,
            passed: 1,
        }) => println!("ok     {name} ({seconds:.1} s)"),
        Ok(Counts { failed: 0, passed }) => {
            println!("ok     {name}: {passed} tests ({seconds:.1} s)");
        }
        Ok(Counts { passed, failed }) => {
            println!("FAILED {name}: {passed} passed, {failed} failed ({seconds:.1} s)");
        }
        Err(error) => println!("FAILED {name} ({seconds:.1} s): {error:#}"),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use super::*;

    /// A clock that a test moves: to its minute, when it runs.
    struct Minutes(Rc<Cell<u64>>);

    fn takes_fifty_minutes(minutes: &Minutes) -> Result<Counts> {
        minutes.0.set(minutes.0.get() + 50);
        Ok(Counts::ONE)
    }

    const TESTS: &[Test<Minutes>] = &[
        Test {
            name: "first: one",
            run: takes_fifty_minutes,
        },
        Test {
            name: "first: two",
            run: takes_fifty_minutes,
        },
        Test {
            name: "second: three",
            run: takes_fifty_minutes,
        },
    ];

    fn ran(budget: Option<u64>) -> Runner {
        let minutes = Rc::new(Cell::new(0));
        let clock = Rc::clone(&minutes);
        let clock = move || Duration::from_secs(60 * clock.get());
        let options = Options {
            budget: budget.map(|minutes| Duration::from_secs(60 * minutes)),
            ..Options::default()
        };
        let mut runner = Runner::with_clock(options, Box::new(clock));
        runner.run(TESTS, &Minutes(minutes));
        runner
    }

    #[test]
    fn no_test_begins_after_the_budget_and_the_rest_is_skipped() {
        let mut runner = ran(Some(MINUTES));
        assert_eq!(runner.counts.passed, 2);
        assert_eq!(runner.skipped, ["second: three"]);
        assert_eq!(runner.suites.len(), 1);
        assert_eq!(runner.suites[0].time, Duration::from_secs(6000));
        assert!(!runner.passed(), "no cluster was tested");
        runner.has_a_cluster();
        assert!(runner.passed());
        runner.fail();
        assert!(!runner.passed());
    }

    #[test]
    fn without_a_budget_every_test_begins() {
        let runner = ran(None);
        assert_eq!(runner.counts.passed, 3);
        assert!(runner.passed() && runner.skipped.is_empty());
    }

    #[test]
    fn a_test_that_is_not_asked_for_is_not_skipped() {
        let options = Options {
            filter: vec!["first".to_owned()],
            budget: Some(Duration::ZERO),
            ..Options::default()
        };
        let mut runner = Runner::new(options);
        assert!(!runner.begins("second: three"));
        assert!(runner.skipped.is_empty());
    }

    #[test]
    fn what_failed_is_explained() {
        let tests: &[Test<Cell<usize>>] = &[
            Test {
                name: "one: ok",
                run: |_| Ok(Counts::ONE),
            },
            Test {
                name: "one: failed",
                run: |_| anyhow::bail!("a reason"),
            },
        ];
        let explained = Cell::new(0);
        let mut runner = Runner::new(Options::default());
        runner.run_explained(tests, &explained, |times| times.set(times.get() + 1));
        assert_eq!(explained.get(), 1);
    }
}
