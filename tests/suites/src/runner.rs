//! Runs tests one after the other and reports each.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Error, Result};
use halite_lab::timing;

use crate::ledger::Ledger;
use crate::part::TestPart;
use crate::report::{RunResults, SharedReport};
use crate::test::{Case, Counts, details};
use crate::watchdog;

/// The exit code of a run of a part in which nothing failed, and that has tests left.
const LEFT: u8 = 3;

/// The options of a run.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// All tests, not only those that each change must pass.
    pub full: bool,
    /// Use a running cluster, and leave it running.
    pub keep: bool,
    /// Only tests whose name contains one of these.
    pub filter: Vec<String>,
    /// Only the remaining tests of this part, and the time after which no further test of it
    /// starts.
    pub part: Option<(TestPart, Duration)>,
}

impl Options {
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.filter.is_empty() || self.filter.iter().any(|f| name.contains(f.as_str()))
    }

    /// Returns whether it is the run that each change must pass.
    pub(crate) fn is_default(&self) -> bool {
        self.filter.is_empty() && !self.full
    }

    /// The name of the run in a ledger.
    pub(crate) fn label(&self) -> String {
        match (self.part, self.is_default()) {
            (Some((part, _)), _) => part.to_string(),
            (None, true) => "default".to_owned(),
            (None, false) => "some".to_owned(),
        }
    }
}

/// A run of the suites.
pub(crate) struct Runner {
    pub(crate) options: Options,
    /// Time since the start of the run.
    clock: Box<dyn Fn() -> Duration>,
    report: SharedReport,
    ledger: Option<Ledger>,
    /// The remaining tests of a part.
    left: Option<BTreeSet<String>>,
    /// `true` once the ledger could not be written: nothing starts any more.
    lost: bool,
    /// The lab of the hosts on which tests currently run.
    lab: Option<String>,
}

impl Runner {
    pub(crate) fn new(options: Options) -> Self {
        let start = Instant::now();
        Self::with_clock(options, Box::new(move || start.elapsed()))
    }

    fn with_clock(options: Options, clock: Box<dyn Fn() -> Duration>) -> Self {
        let report = RunResults {
            is_part: options.part.is_some(),
            ..RunResults::default()
        };
        Self {
            options,
            clock,
            report: Arc::new(Mutex::new(report)),
            ledger: None,
            left: None,
            lost: false,
            lab: None,
        }
    }

    /// Starts the watchdog; `whole` is the time that the run has.
    pub(crate) fn watch(&self, whole: Duration) {
        watchdog::watch(Arc::clone(&self.report), whole);
    }

    /// Records each test from now on.
    pub(crate) fn record(&mut self, ledger: Ledger) {
        self.ledger = Some(ledger);
    }

    /// Runs only these tests from now on.
    pub(crate) fn only(&mut self, left: BTreeSet<String>) {
        self.left = Some(left);
    }

    /// Records the lab whose hosts the next tests use.
    pub(crate) fn on_hosts_of(&mut self, lab: Option<&str>) {
        self.lab = lab.map(str::to_owned);
    }

    /// Returns whether a test is requested in this run.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.left.as_ref().is_none_or(|left| left.contains(name)) && self.options.wants(name)
    }

    /// Runs the requested tests, and returns how many passed and failed.
    pub(crate) fn run<'a, C: 'a>(
        &mut self,
        tests: impl IntoIterator<Item = &'a Case<C>>,
        context: &C,
    ) -> Counts {
        self.run_explained(tests, context, |_| {})
    }

    /// Does the same, and prints more of the context after each failed test.
    pub(crate) fn run_explained<'a, C: 'a>(
        &mut self,
        tests: impl IntoIterator<Item = &'a Case<C>>,
        context: &C,
        explain: impl Fn(&C),
    ) -> Counts {
        let mut counts = Counts::default();
        for test in tests {
            if self.wants(&test.name) && self.fits(&test.name) {
                let one = self.report(&test.name, || (test.run)(context));
                if one.failed > 0 {
                    explain(context);
                }
                counts.add(one);
            }
        }
        counts
    }

    /// Returns whether something starts in this run; records its name if it does not.
    pub(crate) fn fits(&mut self, name: &str) -> bool {
        let part = self.options.part;
        let fits = !self.lost && part.is_none_or(|(_, budget)| (self.clock)() < budget);
        if !fits {
            self.skip(name);
        }
        fits
    }

    /// Records that a test does not start.
    pub(crate) fn skip(&mut self, name: &str) {
        self.said().skipped.push(name.to_owned());
    }

    /// Does the work of a test, reports what it returns, and counts it.
    pub(crate) fn report(&mut self, name: &str, work: impl FnOnce() -> Result<Counts>) -> Counts {
        if !self.note(|ledger| ledger.begin(name)) {
            return Counts::FAILURE;
        }
        let start = (self.clock)();
        watchdog::begin(name, self.lab.as_deref());
        let result = work();
        let without_builds = watchdog::end();
        let took = (self.clock)().saturating_sub(start);
        let ended = || result.as_ref().map(|counts| *counts);
        print(name, took, ended());
        self.note(|ledger| ledger.end(name, without_builds, ended()));
        let counts = result.unwrap_or(Counts::FAILURE);
        let details = details();
        let mut report = self.said();
        report.ended(name, took, counts, details.failed);
        report.repeated.extend(details.repeated);
        report.details.extend(details.took);
        counts
    }

    /// Writes to the ledger, if there is one. A test that is not recorded does not start.
    fn note(&mut self, write: impl FnOnce(&mut Ledger) -> Result<()>) -> bool {
        let Some(ledger) = &mut self.ledger else {
            return true;
        };
        let Err(error) = write(ledger) else {
            return true;
        };
        self.lost = true;
        println!("FAILED ledger: {error:#}");
        self.fail("ledger");
        false
    }

    /// Counts a failure outside of any test.
    pub(crate) fn fail(&mut self, name: &str) {
        self.said().failed(name.to_owned());
    }

    fn said(&self) -> MutexGuard<'_, RunResults> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Prints the end of the report; the last line is `N passed, N failed, N skipped`.
    pub(crate) fn finish(self) -> ExitCode {
        print!("{}", self.said().end((self.clock)(), &timing::builds()));
        ExitCode::from(self.code())
    }

    /// The exit code: of a part, [`LEFT`] if nothing failed and there is more to do.
    fn code(&self) -> u8 {
        let said = self.said();
        let ran = said.counts.passed > 0 || self.left.is_some();
        let is_complete = said.skipped.is_empty();
        match (said.counts.failed == 0 && ran, is_complete) {
            (true, true) => 0,
            (true, false) if self.left.is_some() => LEFT,
            _ => 1,
        }
    }
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
    use crate::ledger::{StartedTest, States};

    /// A clock that a test advances, to its minute, when it runs.
    struct Minutes(Rc<Cell<u64>>);

    fn takes_fifty_minutes(minutes: &Minutes) -> Result<Counts> {
        minutes.0.set(minutes.0.get() + 50);
        Ok(Counts::ONE)
    }

    const NAMES: [&str; 3] = ["first: one", "first: two", "second: three"];

    fn part(minutes: u64) -> Option<(TestPart, Duration)> {
        Some(("1/1".parse().unwrap(), Duration::from_secs(60 * minutes)))
    }

    fn ran(options: Options, prepare: impl FnOnce(&mut Runner)) -> Runner {
        let minutes = Rc::new(Cell::new(0));
        let clock = Rc::clone(&minutes);
        let clock = move || Duration::from_secs(60 * clock.get());
        let mut runner = Runner::with_clock(options, Box::new(clock));
        prepare(&mut runner);
        let tests = NAMES.map(|name| Case::new(name.to_owned(), takes_fifty_minutes));
        runner.run(&tests, &Minutes(minutes));
        runner
    }

    /// A run of a part with these remaining tests: its report, its exit code, and the resulting
    /// states.
    fn ran_recorded(place: &Path, left: &[&str]) -> (RunResults, u8, States) {
        let (ledger, _) = Ledger::of_a_test(place, "1/1");
        let left = left.iter().map(|name| (*name).to_owned()).collect();
        let options = Options {
            part: part(60),
            ..Options::default()
        };
        let mut runner = ran(options, |runner| {
            runner.record(ledger);
            runner.only(left);
        });
        let code = runner.code();
        // Its lock is released with the ledger.
        runner.ledger = None;
        let report = std::mem::take(&mut *runner.said());
        (report, code, Ledger::of_a_test(place, "1/1").1)
    }

    #[test]
    fn a_part_runs_its_remaining_tests_and_another_run_continues() {
        let dir = tempfile::tempdir().unwrap();
        let (report, code, states) = ran_recorded(dir.path(), &NAMES);
        assert_eq!(report.skipped, ["second: three"]);
        assert_eq!(code, LEFT);
        assert_eq!(states.of(NAMES[1]), Some(StartedTest::Passed));
        assert_eq!(states.of(NAMES[2]), None);
        let (report, code, states) = ran_recorded(dir.path(), &NAMES[2..]);
        assert_eq!((report.counts.passed, code), (1, 0));
        assert!(states.are_complete(&NAMES.map(str::to_owned)));
        let (report, code, _) = ran_recorded(dir.path(), &[]);
        assert_eq!((report.counts.passed, code), (0, 0));
    }

    #[test]
    fn a_test_that_cannot_be_recorded_does_not_start() {
        let runner = ran(Options::default(), |runner| {
            runner.record(Ledger::full_disk());
        });
        let said = runner.said();
        assert_eq!((said.counts.passed, said.counts.failed), (0, 1));
        assert_eq!(said.skipped, NAMES[1..]);
        drop(said);
        assert_eq!(runner.code(), 1);
    }

    #[test]
    fn a_run_without_parts_leaves_nothing_out() {
        let runner = ran(Options::default(), |_| {});
        assert_eq!(runner.said().counts.passed, 3);
        assert_eq!(runner.said().tests[2].time, Duration::from_secs(3000));
        assert!(runner.said().skipped.is_empty());
        assert_eq!(runner.code(), 0);
    }

    #[test]
    fn a_run_in_which_something_did_not_begin_fails() {
        let runner = ran(Options::default(), |runner| runner.skip("third: four"));
        assert_eq!(runner.code(), 1);
    }

    #[test]
    fn a_test_that_is_not_asked_for_is_not_skipped() {
        let options = Options {
            filter: vec!["first".to_owned()],
            ..Options::default()
        };
        let runner = ran(options, |_| {});
        assert_eq!(runner.said().counts.passed, 2);
        assert!(runner.said().skipped.is_empty());
    }

    #[test]
    fn a_failure_is_explained() {
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
