//! Runs tests one after the other, reports each, and ends with a table of where the time went.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use halite_lab::timing;
use halite_lab::timing::Took;

use crate::test::{Counts, Test};

/// After this time no further test begins, unless the heavy forms were asked for.
const BUDGET: Duration = Duration::from_secs(80 * 60);

/// Builds that took less are not in the table.
const SHORT: Duration = Duration::from_secs(1);

/// What to run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The heavy forms too.
    pub full: bool,
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
    not_run: Vec<&'static str>,
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
            not_run: Vec::new(),
        }
    }

    /// Runs the tests that are asked for, and returns how many passed and failed.
    pub(crate) fn run<'a, C: 'a>(
        &mut self,
        tests: impl IntoIterator<Item = &'a Test<C>>,
        context: &C,
    ) -> Counts {
        let mut counts = Counts::default();
        for test in tests {
            if self.begins(test.name) {
                counts.add(self.report(test.name, || (test.run)(context)));
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
        let fits = self.options.full || (self.clock)() < BUDGET;
        if !fits {
            self.not_run.push(name);
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

    /// Counts a failure that belongs to no test.
    pub(crate) fn fail(&mut self) {
        self.counts.add(Counts::FAILURE);
    }

    /// Prints the table, the tests that were not run, and as the last line `N passed, N failed`.
    pub(crate) fn finish(self) -> ExitCode {
        let total = (self.clock)();
        println!("\n{}", table(total, &self.suites, &timing::builds()));
        if !self.not_run.is_empty() {
            println!(
                "NOT RUN, because the run had taken {} minutes:",
                BUDGET.as_secs() / 60
            );
            for name in &self.not_run {
                println!("  {name}");
            }
        }
        println!(
            "\n{} passed, {} failed",
            self.counts.passed, self.counts.failed
        );
        if self.passed() {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    fn passed(&self) -> bool {
        self.counts.failed == 0 && self.counts.passed > 0 && self.not_run.is_empty()
    }
}

/// The suite of a test: its name up to the colon.
fn suite_of(name: &str) -> &str {
    name.split_once(": ").map_or(name, |(suite, _)| suite)
}

/// Where the time went: suites, then builds, each the longest first. Builds run beside suites and
/// in them, so that all shares together are more than the whole.
fn table(total: Duration, suites: &[Took], builds: &[Took]) -> String {
    let mut text = format!("{:>8}  share  where the time went\n", "seconds");
    let mut row = |name: &str, time: Duration| {
        let share = 100.0 * time.as_secs_f64() / total.as_secs_f64().max(f64::EPSILON);
        let _ = writeln!(text, "{:>8.1}  {share:>4.0} %  {name}", time.as_secs_f64());
    };
    row("the whole run", total);
    for (kind, list, least) in [("suite", suites, Duration::ZERO), ("build", builds, SHORT)] {
        let mut list: Vec<&Took> = list.iter().filter(|took| took.time >= least).collect();
        list.sort_by_key(|took| std::cmp::Reverse(took.time));
        for took in list {
            row(&format!("{kind} {}", took.name), took.time);
        }
    }
    text
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

    fn ran() -> Runner {
        let minutes = Rc::new(Cell::new(0));
        let clock = Rc::clone(&minutes);
        let clock = move || Duration::from_secs(60 * clock.get());
        let mut runner = Runner::with_clock(Options::default(), Box::new(clock));
        runner.run(TESTS, &Minutes(minutes));
        runner
    }

    #[test]
    fn no_test_begins_after_the_budget_and_such_a_run_fails() {
        let runner = ran();
        assert_eq!(runner.counts.passed, 2);
        assert_eq!(runner.not_run, ["second: three"]);
        assert!(!runner.passed());
    }

    #[test]
    fn a_test_that_is_not_asked_for_is_not_missing() {
        let options = Options {
            filter: vec!["first".to_owned()],
            ..Options::default()
        };
        let late = Box::new(|| BUDGET);
        let mut runner = Runner::with_clock(options, late);
        assert!(!runner.begins("second: three"));
        assert!(runner.not_run.is_empty());
    }

    #[test]
    fn the_table_has_suites_and_builds_with_their_shares() {
        let took = |name: &str, seconds| Took {
            name: name.to_owned(),
            time: Duration::from_secs(seconds),
        };
        let runner = ran();
        assert_eq!(runner.suites, [took("first", 6000)]);
        let builds = [took("short", 0), took("the ISO", 30)];
        let table = table(
            Duration::from_secs(100),
            &[took("a", 10), took("b", 60)],
            &builds,
        );
        assert_eq!(
            table,
            " seconds  share  where the time went\n\
             \x20  100.0   100 %  the whole run\n\
             \x20   60.0    60 %  suite b\n\
             \x20   10.0    10 %  suite a\n\
             \x20   30.0    30 %  build the ISO\n"
        );
    }
}
