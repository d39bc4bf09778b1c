//! The watchdog of a run: it ends a run that hangs, with the name of the test and the state of the
//! hosts, before the caller ends it without a message.

use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use halite_lab::cluster::Cluster;
use halite_lab::{Lab, timing};

use crate::explain;
use crate::report::SharedReport;
use crate::usual;

/// The time after which the default run, builds included, has failed. The caller of `.ci/run` ends
/// it five minutes later.
pub(crate) const WHOLE: Duration = Duration::from_secs(85 * 60);

/// The interval at which the running test is checked.
const TICK: Duration = Duration::from_secs(1);

/// The time that the hosts have to report their state.
const STATE: Duration = Duration::from_secs(120);

/// The running test.
struct Running {
    name: String,
    /// The lab of its hosts.
    lab: Option<String>,
    /// Its time so far, without builds.
    so_far: Duration,
}

static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

/// Records the running test, and the lab of its hosts.
pub(crate) fn begin(name: &str, lab: Option<&str>) {
    let running = Running {
        name: name.to_owned(),
        lab: lab.map(str::to_owned),
        so_far: Duration::ZERO,
    };
    *RUNNING.lock().unwrap_or_else(PoisonError::into_inner) = Some(running);
}

/// Adds the time that the running test took in parallel with others.
pub(crate) fn add(took: Duration) {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(running) = running.as_mut() {
        running.so_far += took;
    }
}

/// Records that no test runs any more, and returns the time of the last one without builds.
pub(crate) fn end() -> Duration {
    let ended = RUNNING
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    ended.map_or(Duration::ZERO, |running| running.so_far)
}

/// Ends this process, printing the report of the run so far, if a test takes longer than five times
/// its usual time, or the run longer than `whole`.
pub(crate) fn watch(report: SharedReport, whole: Duration) {
    let start = Instant::now();
    thread::spawn(move || {
        loop {
            thread::sleep(TICK);
            let Some((name, lab, reason)) = exceeded(start.elapsed(), whole) else {
                continue;
            };
            println!("FAILED {name}: {reason}");
            if let Some(lab) = lab {
                state(lab);
            }
            let mut report = report.lock().unwrap_or_else(PoisonError::into_inner);
            report.failed(name);
            print!("{}", report.end(start.elapsed(), &timing::builds()));
            std::process::exit(1);
        }
    });
}

/// The running test with its lab and the limit that it exceeds, once it does.
fn exceeded(elapsed: Duration, whole: Duration) -> Option<(String, Option<String>, String)> {
    let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    let too_long = (elapsed > whole).then(|| {
        let minutes = whole.as_secs() / 60;
        format!("it still ran when the run had taken {minutes} minutes")
    });
    let Some(running) = running.as_mut() else {
        return too_long.map(|reason| ("before the first test".to_owned(), None, reason));
    };
    if !timing::is_building() {
        running.so_far += TICK;
    }
    let limit = usual::limit(&running.name);
    let hangs = (running.so_far > limit).then(|| {
        format!(
            "it still ran after {} s; usually it takes {} s",
            running.so_far.as_secs(),
            usual::time(&running.name).as_secs()
        )
    });
    let reason = hangs.or(too_long)?;
    Some((running.name.clone(), running.lab.clone(), reason))
}

/// Prints the state of a lab's hosts, as far as they answer in time.
fn state(lab: String) {
    let asked = thread::spawn(move || {
        let lab = Lab::new(&lab, &halite_lab::cache().join("base-root"))?;
        explain::state(&Cluster::attach(lab)?);
        anyhow::Ok(())
    });
    let start = Instant::now();
    while !asked.is_finished() && start.elapsed() < STATE {
        thread::sleep(TICK);
    }
    match asked.is_finished().then(|| asked.join()) {
        Some(Ok(Ok(()))) => {}
        Some(Ok(Err(error))) => println!("    the hosts do not answer: {error:#}"),
        _ => println!("    the hosts did not answer within {} s", STATE.as_secs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hanging_test_is_named_and_the_whole_run_has_an_end() {
        let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
        end();
        assert_eq!(exceeded(minutes(84), WHOLE), None);
        let (name, _, reason) = exceeded(minutes(86), WHOLE).unwrap();
        assert_eq!(name, "before the first test");
        assert!(reason.contains("85 minutes"), "{reason}");
        let test = "a test that does not exist";
        begin(test, Some("test"));
        assert_eq!(exceeded(minutes(1), WHOLE), None);
        add(usual::limit(test));
        let (name, lab, reason) = exceeded(minutes(1), WHOLE).unwrap();
        assert_eq!((name.as_str(), lab.as_deref()), (test, Some("test")));
        assert!(reason.contains("usually"), "{reason}");
        assert!(end() > usual::limit(test));
        assert_eq!(end(), Duration::ZERO);
    }
}
