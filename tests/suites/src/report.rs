//! The results of a run: counts, the names of failures, and the distribution of the time.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use halite_lab::timing::Took;

use crate::test::Counts;

/// Shorter builds and groups are not in the table.
const SHORT: Duration = Duration::from_secs(1);

/// The report of a run, which its watchdog prints when the run hangs.
pub(crate) type SharedReport = Arc<Mutex<RunResults>>;

/// The results of a run so far.
#[derive(Debug, Default)]
pub(crate) struct RunResults {
    pub(crate) counts: Counts,
    /// The time of each test, in order.
    pub(crate) tests: Vec<Took>,
    /// The times of groups of tests within one of them.
    pub(crate) details: Vec<Took>,
    /// Names of failures.
    pub(crate) names: Vec<String>,
    /// Names of tests that failed at first and were repeated.
    pub(crate) repeated: Vec<String>,
    /// Tests that did not start.
    pub(crate) skipped: Vec<String>,
    /// `true` for a part of `--full`, whose remaining tests another run does.
    pub(crate) is_part: bool,
}

impl RunResults {
    /// Counts one failure under a name.
    pub(crate) fn failed(&mut self, name: String) {
        self.counts.add(Counts::FAILURE);
        self.names.push(name);
    }

    /// Counts a test that has ended. `failed` names each failure if the test counts several.
    pub(crate) fn ended(
        &mut self,
        name: &str,
        took: Duration,
        counts: Counts,
        failed: Vec<String>,
    ) {
        self.counts.add(counts);
        self.tests.push(Took {
            name: name.to_owned(),
            time: took,
        });
        match (counts.failed, failed.is_empty()) {
            (0, _) => {}
            (_, true) => self.names.push(name.to_owned()),
            (_, false) => self.names.extend(failed),
        }
    }

    /// The end of a run: the table, the tests that did not start, those that were repeated, those
    /// that failed, and as the last line `N passed, N failed, N skipped`.
    pub(crate) fn end(&self, total: Duration, builds: &[Took]) -> String {
        let mut text = format!("\n{}", table(total, &self.tests, &self.details, builds));
        if !self.skipped.is_empty() {
            text.push_str(if self.is_part {
                "\nNOT RUN; run the same part again for the rest:\n"
            } else {
                "\nSKIPPED, because their cluster was not made:\n"
            });
            for name in &self.skipped {
                let _ = writeln!(text, "  {name}");
            }
        }
        text.push('\n');
        for name in &self.repeated {
            let _ = writeln!(text, "REPEATED: {name}");
        }
        for name in &self.names {
            let _ = writeln!(text, "FAILED: {name}");
        }
        let Counts { passed, failed } = self.counts;
        let word = if self.is_part { "not run" } else { "skipped" };
        let _ = writeln!(
            text,
            "{passed} passed, {failed} failed, {} {word}",
            self.skipped.len()
        );
        text
    }
}

/// The suite of a test: its name up to the colon.
pub(crate) fn suite_of(name: &str) -> &str {
    name.split_once(": ").map_or(name, |(suite, _)| suite)
}

/// The distribution of the time: suites with their tests, the longest suite first, then groups of
/// tests within one test, then builds. Builds run in parallel with suites and in them, so that all
/// shares together are more than the whole.
fn table(total: Duration, tests: &[Took], details: &[Took], builds: &[Took]) -> String {
    let mut text = format!("{:>8}  share  where the time went\n", "seconds");
    let mut row = |name: &str, time: Duration| {
        let share = 100.0 * time.as_secs_f64() / total.as_secs_f64().max(f64::EPSILON);
        let _ = writeln!(text, "{:>8.1}  {share:>4.0} %  {name}", time.as_secs_f64());
    };
    row("the whole run", total);
    let mut suites: Vec<(&str, Duration)> = Vec::new();
    for test in tests {
        let suite = suite_of(&test.name);
        match suites.iter_mut().find(|(known, _)| *known == suite) {
            Some((_, time)) => *time += test.time,
            None => suites.push((suite, test.time)),
        }
    }
    suites.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    for (suite, time) in suites {
        row(&format!("suite {suite}"), time);
        for test in tests.iter().filter(|test| suite_of(&test.name) == suite) {
            row(&format!("  {}", test.name), test.time);
        }
    }
    for (kind, list) in [("tests of", details), ("build", builds)] {
        let mut list: Vec<&Took> = list.iter().filter(|took| took.time >= SHORT).collect();
        list.sort_by_key(|took| std::cmp::Reverse(took.time));
        for took in list {
            row(&format!("{kind} {}", took.name), took.time);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(name: &str, seconds: u64) -> Took {
        Took {
            name: name.to_owned(),
            time: Duration::from_secs(seconds),
        }
    }

    #[test]
    fn the_table_has_each_test_below_its_suite_and_each_build() {
        let tests = [took("a: one", 10), took("b: two", 40), took("b: three", 20)];
        let builds = [took("short", 0), took("the ISO", 30)];
        assert_eq!(
            table(Duration::from_secs(100), &tests, &[took("ctl", 5)], &builds),
            " seconds  share  where the time went\n\
             \x20  100.0   100 %  the whole run\n\
             \x20   60.0    60 %  suite b\n\
             \x20   40.0    40 %    b: two\n\
             \x20   20.0    20 %    b: three\n\
             \x20   10.0    10 %  suite a\n\
             \x20   10.0    10 %    a: one\n\
             \x20    5.0     5 %  tests of ctl\n\
             \x20   30.0    30 %  build the ISO\n"
        );
    }

    #[test]
    fn the_last_lines_name_each_failure() {
        let mut report = RunResults::default();
        let second = Duration::from_secs(1);
        let counts = |passed, failed| Counts { passed, failed };
        report.ended("a: ok", second, Counts::ONE, Vec::new());
        report.ended("a: not", second, Counts::FAILURE, Vec::new());
        let names = vec!["ctl: x".to_owned(), "ctl: y".to_owned()];
        report.ended("a: many", second, counts(7, 2), names);
        report.skipped.push("a: never".to_owned());
        report.repeated.push("ctl: y".to_owned());
        let end = report.end(Duration::from_secs(3), &[]);
        assert!(
            end.ends_with(
                "made:\n  a: never\n\nREPEATED: ctl: y\nFAILED: a: not\nFAILED: ctl: x\nFAILED: ctl: y\n8 passed, 3 failed, 1 skipped\n"
            ),
            "{end}"
        );
    }
}
