//! Runs tests one after the other and reports each.

use std::time::{Duration, Instant};

use anyhow::Result;

use crate::test::{Counts, Test};

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

pub(crate) fn run<'a, C: 'a>(
    options: &Options,
    tests: impl IntoIterator<Item = &'a Test<C>>,
    context: &C,
) -> Counts {
    let mut counts = Counts::default();
    for test in tests.into_iter().filter(|t| options.wants(t.name)) {
        let start = Instant::now();
        let result = (test.run)(context);
        report(test.name, start.elapsed(), result.as_ref().map(|c| *c));
        counts.add(result.unwrap_or(Counts {
            passed: 0,
            failed: 1,
        }));
    }
    counts
}

pub(crate) fn report(name: &str, took: Duration, result: Result<Counts, &anyhow::Error>) {
    let seconds = took.as_secs_f64();
    match result {
        Ok(Counts {
            failed: 0,
            passed: 1,
        }) => println!("ok     {name} ({seconds:.1} s)"),
        Ok(Counts { failed: 0, passed }) => {
            println!("ok     {name}: {passed} tests ({seconds:.1} s)")
        }
        Ok(Counts { passed, failed }) => {
            println!("FAILED {name}: {passed} passed, {failed} failed ({seconds:.1} s)")
        }
        Err(error) => println!("FAILED {name} ({seconds:.1} s): {error:#}"),
    }
}
