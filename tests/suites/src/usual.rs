//! The usual time of each test, as recorded by a run of `--full` in `docs/dev/test-times.tsv`: for
//! the watchdog, and for parts of equal length.

use std::collections::BTreeMap;
use std::fs;
use std::sync::LazyLock;
use std::time::Duration;

use anyhow::{Context as _, Result};
use halite_lab::build::source_root;

use crate::ledger::States;

/// The path of the file in the source tree.
const PATH: &str = "docs/dev/test-times.tsv";

/// Lines of seconds, the commit that was tested, and the name of the test.
const FILE: &str = include_str!("../../../docs/dev/test-times.tsv");

/// The assumed time of a test without a line.
const UNKNOWN: Duration = Duration::from_secs(120);

/// The shortest time after which a test counts as hanging.
const SHORTEST: Duration = Duration::from_secs(5 * 60);

/// The same for a test whose usual time is unknown.
const WITHOUT_A_LINE: Duration = Duration::from_secs(30 * 60);

static SECONDS: LazyLock<BTreeMap<&str, f64>> = LazyLock::new(|| {
    let line = |line: &'static str| {
        let mut fields = line.splitn(3, '\t');
        let seconds = fields.next()?.parse().ok()?;
        Some((fields.nth(1)?, seconds))
    };
    FILE.lines().filter_map(line).collect()
});

fn known(test: &str) -> Option<Duration> {
    SECONDS
        .get(test)
        .and_then(|seconds| Duration::try_from_secs_f64(*seconds).ok())
}

/// The time that a test usually takes on two processors.
pub(crate) fn time(test: &str) -> Duration {
    known(test).unwrap_or(UNKNOWN)
}

/// The time after which a test counts as hanging: five times the usual one.
pub(crate) fn limit(test: &str) -> Duration {
    known(test).map_or(WITHOUT_A_LINE, |time| (5 * time).max(SHORTEST))
}

/// Replaces the lines of the tests that have passed, and removes those of tests that no longer
/// exist.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write(tests: &[String], states: &States) -> Result<()> {
    let file = source_root().join(PATH);
    let text =
        fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    fs::write(&file, replaced(&text, tests, states))
        .with_context(|| format!("cannot write {}", file.display()))
}

fn replaced(text: &str, tests: &[String], states: &States) -> String {
    let (comments, lines): (Vec<&str>, Vec<&str>) =
        text.lines().partition(|line| line.starts_with('#'));
    let old: BTreeMap<&str, &str> = lines
        .into_iter()
        .filter_map(|line| Some((line.splitn(3, '\t').nth(2)?, line)))
        .collect();
    let line = |test: &String| match states.passed(test) {
        Some((seconds, commit)) => Some(format!("{seconds:.0}\t{commit}\t{test}")),
        None => old.get(test.as_str()).map(|line| (*line).to_owned()),
    };
    let comments = comments.into_iter().map(str::to_owned);
    comments
        .chain(tests.iter().filter_map(line))
        .map(|line| line + "\n")
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::ledger::StartedTest;
    use crate::plan::Plan;

    #[test]
    fn each_line_is_of_a_test_that_exists_and_has_a_time() {
        let plan = Plan::new().unwrap();
        let tests: BTreeSet<String> = plan.names().into_iter().chain(plan.made()).collect();
        for line in FILE.lines().filter(|line| !line.starts_with('#')) {
            let fields: Vec<&str> = line.split('\t').collect();
            let [seconds, _, name] = fields[..] else {
                panic!("three fields are expected: {line}");
            };
            assert!(
                seconds.parse::<f64>().is_ok_and(|seconds| seconds >= 0.0),
                "{line}"
            );
            assert!(tests.contains(name), "no test is called {name}");
        }
    }

    #[test]
    fn passed_tests_replace_their_lines_and_missing_ones_are_removed() {
        let text = "# comment\n5\tabc\tx: old\n6\tabc\tx: kept\n7\tabc\tx: gone\n";
        let tests = ["x: old", "x: kept", "x: new"].map(str::to_owned);
        let states = States::with(&[
            ("x: old", StartedTest::Passed),
            ("x: kept", StartedTest::Failed),
            ("x: new", StartedTest::Passed),
        ]);
        assert_eq!(
            replaced(text, &tests, &states),
            "# comment\n1\t\tx: old\n6\tabc\tx: kept\n1\t\tx: new\n"
        );
    }

    #[test]
    fn a_test_without_a_line_has_longer() {
        assert!(limit("a test that does not exist") > SHORTEST);
        assert_eq!(time("a test that does not exist"), UNKNOWN);
    }
}
