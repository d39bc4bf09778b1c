//! Tests of the source tree that run in parallel with the clusters, which leave most of the
//! processors' time free.

use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use halite_lab::yield_to_hosts;

use crate::unit_tests::Group;

/// The results of all groups, and the time that they took together.
pub(crate) type Results = Result<(Vec<Group>, Duration)>;

/// Work in a thread, if it was started; it returns the results of tests.
#[derive(Default)]
pub(crate) struct Background(Mutex<Option<JoinHandle<Results>>>);

impl Background {
    /// Starts the work, at a priority at which it uses no time that a cluster could use.
    pub(crate) fn start(work: impl FnOnce() -> Results + Send + 'static) -> Self {
        let thread = thread::spawn(|| {
            be_idle()?;
            work()
        });
        Self(Mutex::new(Some(thread)))
    }

    /// Returns whether the work still runs.
    pub(crate) fn is_running(&self) -> bool {
        let thread = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Waits for the work and returns its results; `None` if it was not started.
    pub(crate) fn results(&self) -> Option<Results> {
        let thread = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()?;
        let results = thread.join();
        Some(results.unwrap_or_else(|_| Err(anyhow!("the thread of the tests panicked"))))
    }
}

/// Gives the calling thread, and the threads and programs that it starts, only the time that
/// nothing else uses: SCHED_IDLE (sched(7)), in a control group that is idle, too.
fn be_idle() -> Result<()> {
    let thread = rustix::thread::gettid();
    yield_to_hosts(thread)?;
    let thread = thread.as_raw_nonzero().to_string();
    let status = Command::new("chrt")
        .args(["--idle", "--pid", "0", &thread])
        .stdin(Stdio::null())
        .status()
        .context("cannot start chrt")?;
    ensure!(status.success(), "chrt ended with {status}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::unit_tests::Executable;

    /// The scheduling policy in a file of proc_pid_stat(5).
    fn policy(stat: &str) -> Option<String> {
        stat.split(' ').nth(40).map(str::to_owned)
    }

    fn own_policy() -> Option<String> {
        policy(&fs::read_to_string("/proc/thread-self/stat").unwrap())
    }

    #[test]
    fn work_in_the_background_is_idle_and_its_results_are_returned_once() {
        let own = own_policy();
        let background = Background::start(|| {
            let group = || -> Result<Group> {
                let files = ["/proc/self/stat", "/proc/self/cgroup"];
                let files = Command::new("cat").args(files).output()?;
                let files = String::from_utf8(files.stdout)?;
                let (stat, groups) = files.split_once('\n').context("no line")?;
                Ok(Group {
                    executable: Executable::default(),
                    passed: 0,
                    failed: vec![policy(stat).context("no policy")?, groups.to_owned()],
                    took: Duration::ZERO,
                })
            };
            // A further thread inherits it, too.
            let group = thread::spawn(group)
                .join()
                .map_err(|_| anyhow!("panic"))??;
            Ok((vec![group], Duration::from_secs(1)))
        });
        let (groups, _) = background.results().unwrap().unwrap();
        let [policy, groups] = &groups[0].failed[..] else {
            panic!("{groups:?}");
        };
        // SCHED_IDLE in sched.h.
        assert_eq!(policy, "5");
        let has_hosts_groups = Path::new("/sys/fs/cgroup/cpu").exists();
        assert_eq!(
            groups.contains("/halite-idle\n"),
            has_hosts_groups,
            "{groups}"
        );
        assert!(background.results().is_none());
        assert!(Background::default().results().is_none());
        assert_eq!(own_policy(), own);
    }
}
