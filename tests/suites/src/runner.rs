//! Runs tests one after the other, reports each, and ends with a table of where the time went.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use halite_lab::timing;
use halite_lab::timing::Took;

use crate::deadline;
use crate::ledger::Ledger;
use crate::part::Part;
use crate::table::table;
use crate::test::{Case, Counts};

/// Minutes after which no further test begins. The longest test takes less than the time that is
/// left until the run ends itself ([`crate::deadline`]).
pub const MINUTES: u64 = 72;

/// The exit code of a run of a part in which nothing failed, and that has tests left.
const LEFT: u8 = 3;

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
    /// Only what is left of this part, with a ledger.
    pub part: Option<Part>,
}

impl Options {
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.filter.is_empty() || self.filter.iter().any(|f| name.contains(f.as_str()))
    }

    /// True if everything is asked for, in one run.
    pub(crate) fn is_whole(&self) -> bool {
        self.filter.is_empty() && self.part.is_none()
    }
}

/// The ledger of a part, and the tests that are left of it.
struct Recorded {
    ledger: Ledger,
    left: BTreeSet<String>,
    /// True once the ledger could not be written: nothing begins any more.
    lost: bool,
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
    skipped: Vec<String>,
    /// Whether the tests of a cluster began.
    had_a_cluster: bool,
    recorded: Option<Recorded>,
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
            recorded: None,
        }
    }

    /// Runs only these tests from now on, and records each.
    pub(crate) fn record(&mut self, ledger: Ledger, left: BTreeSet<String>) {
        self.recorded = Some(Recorded {
            ledger,
            left,
            lost: false,
        });
    }

    /// Returns true if a test is asked for in this run.
    pub(crate) fn wants(&self, name: &str) -> bool {
        let left = (self.recorded.as_ref()).is_none_or(|recorded| recorded.left.contains(name));
        left && self.options.wants(name)
    }

    /// Runs the tests that are asked for, and returns how many passed and failed.
    pub(crate) fn run<'a, C: 'a>(
        &mut self,
        tests: impl IntoIterator<Item = &'a Case<C>>,
        context: &C,
    ) -> Counts {
        self.run_explained(tests, context, |_| {})
    }

    /// Does the same, and says more of the context after each test that failed.
    pub(crate) fn run_explained<'a, C: 'a>(
        &mut self,
        tests: impl IntoIterator<Item = &'a Case<C>>,
        context: &C,
        explain: impl Fn(&C),
    ) -> Counts {
        let mut counts = Counts::default();
        for test in tests {
            if self.begins(&test.name) {
                let one = self.report(&test.name, || (test.run)(context));
                if one.failed > 0 {
                    explain(context);
                }
                counts.add(one);
            }
        }
        counts
    }

    /// Whether a test is asked for and begins within the budget.
    fn begins(&mut self, name: &str) -> bool {
        self.wants(name) && self.fits(name)
    }

    /// Whether something begins within the budget; notes its name when it does not.
    pub(crate) fn fits(&mut self, name: &str) -> bool {
        let lost = (self.recorded.as_ref()).is_some_and(|recorded| recorded.lost);
        let fits = !lost && (self.options.budget).is_none_or(|budget| (self.clock)() < budget);
        if !fits {
            self.skipped.push(name.to_owned());
        }
        fits
    }

    /// Does the work of a test, reports what it returns, and counts it.
    pub(crate) fn report(&mut self, name: &str, work: impl FnOnce() -> Result<Counts>) -> Counts {
        if !self.note(|ledger| ledger.begin(name)) {
            return Counts::FAILURE;
        }
        let start = (self.clock)();
        deadline::begin(name);
        let result = work();
        let took = (self.clock)().saturating_sub(start);
        let ended = || result.as_ref().map(|counts| *counts);
        print(name, took, ended());
        self.note(|ledger| ledger.end(name, took, ended()));
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

    /// Writes to the ledger, if there is one. What is not recorded does not begin.
    fn note(&mut self, write: impl FnOnce(&mut Ledger) -> Result<()>) -> bool {
        let Some(recorded) = &mut self.recorded else {
            return true;
        };
        let Err(error) = write(&mut recorded.ledger) else {
            return true;
        };
        recorded.lost = true;
        println!("FAILED ledger: {error:#}");
        self.counts.add(Counts::FAILURE);
        false
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
            let minutes = budget.as_secs() / 60;
            match self.options.part {
                None => println!(
                    "SKIPPED, because the run had taken {minutes} minutes (--minutes 0: no limit):"
                ),
                Some(part) => println!(
                    "NOT RUN; another run of --part {part} goes on with them, and begins none after {minutes} minutes:"
                ),
            }
            for name in &self.skipped {
                println!("  {name}");
            }
        }
        if !self.reached_a_cluster() {
            println!("FAILED: no cluster was tested within the time");
        }
        println!(
            "\n{} passed, {} failed, {} {}",
            self.counts.passed,
            self.counts.failed,
            self.skipped.len(),
            if self.recorded.is_some() {
                "not run"
            } else {
                "skipped"
            }
        );
        ExitCode::from(self.code())
    }

    /// The exit code: of a part, [`LEFT`] when nothing failed and there is more to do.
    fn code(&self) -> u8 {
        let left = self.recorded.is_some() && !self.skipped.is_empty();
        match (self.passed(), left) {
            (false, _) => 1,
            (true, true) => LEFT,
            (true, false) => 0,
        }
    }

    fn passed(&self) -> bool {
        let ran = self.counts.passed > 0 || self.recorded.is_some();
        self.counts.failed == 0 && ran && self.reached_a_cluster()
    }

    /// Whether tests of a cluster began, or none was skipped. A run of a part may have none.
    fn reached_a_cluster(&self) -> bool {
        self.had_a_cluster || self.skipped.is_empty() || self.recorded.is_some()
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
    use std::path::Path;
    use std::rc::Rc;

    use super::*;
    use crate::ledger::{State, States};

    /// A clock that a test moves: to its minute, when it runs.
    struct Minutes(Rc<Cell<u64>>);

    fn takes_fifty_minutes(minutes: &Minutes) -> Result<Counts> {
        minutes.0.set(minutes.0.get() + 50);
        Ok(Counts::ONE)
    }

    const NAMES: [&str; 3] = ["first: one", "first: two", "second: three"];

    fn ran(budget: Option<u64>) -> Runner {
        ran_with(budget, |_| {})
    }

    fn ran_with(budget: Option<u64>, prepare: impl FnOnce(&mut Runner)) -> Runner {
        let minutes = Rc::new(Cell::new(0));
        let clock = Rc::clone(&minutes);
        let clock = move || Duration::from_secs(60 * clock.get());
        let options = Options {
            budget: budget.map(|minutes| Duration::from_secs(60 * minutes)),
            ..Options::default()
        };
        let mut runner = Runner::with_clock(options, Box::new(clock));
        prepare(&mut runner);
        let tests = NAMES.map(|name| Case::new(name.to_owned(), takes_fifty_minutes));
        runner.run(&tests, &Minutes(minutes));
        runner
    }

    /// A run of a part that has these tests left: with its exit code, and the states that it leaves.
    fn ran_recorded(place: &Path, left: &[&str]) -> (Runner, u8, States) {
        let (ledger, _) = Ledger::of_a_test(place, "1/1");
        let left = left.iter().map(|name| (*name).to_owned()).collect();
        let mut runner = ran_with(Some(60), |runner| runner.record(ledger, left));
        let code = runner.code();
        // Its lock goes with the ledger.
        runner.recorded = None;
        (runner, code, Ledger::of_a_test(place, "1/1").1)
    }

    #[test]
    fn a_part_runs_what_is_left_and_a_further_run_goes_on_where_it_ended() {
        let dir = tempfile::tempdir().unwrap();
        let (runner, code, states) = ran_recorded(dir.path(), &NAMES);
        assert_eq!(runner.skipped, ["second: three"]);
        assert_eq!(code, LEFT, "no cluster is needed in a part");
        assert_eq!(states.of(NAMES[1]), Some(State::Passed));
        assert_eq!(states.of(NAMES[2]), None);
        let (runner, code, states) = ran_recorded(dir.path(), &NAMES[2..]);
        assert_eq!((runner.counts.passed, code), (1, 0));
        assert!(states.are_complete(&NAMES.map(str::to_owned)));
        let (runner, code, _) = ran_recorded(dir.path(), &[]);
        assert_eq!((runner.counts.passed, code), (0, 0));
    }

    #[test]
    fn what_cannot_be_recorded_does_not_begin() {
        let ledger = Ledger::full_disk();
        let left = NAMES.map(str::to_owned).into();
        let runner = ran_with(None, |runner| runner.record(ledger, left));
        assert_eq!((runner.counts.passed, runner.counts.failed), (0, 1));
        assert_eq!(runner.skipped, NAMES[1..]);
        assert_eq!(runner.code(), 1);
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
        let tests: [Case<Cell<usize>>; 2] = [
            Case::new("one: ok".to_owned(), |_| Ok(Counts::ONE)),
            Case::new("one: failed".to_owned(), |_| anyhow::bail!("a reason")),
        ];
        let explained = Cell::new(0);
        let mut runner = Runner::new(Options::default());
        runner.run_explained(&tests, &explained, |times| times.set(times.get() + 1));
        assert_eq!(explained.get(), 1);
    }
}
