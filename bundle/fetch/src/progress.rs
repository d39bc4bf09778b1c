//! Progress: bytes of each artifact, the rate of all, and the estimated time.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The period over which the rate is measured.
const WINDOW: Duration = Duration::from_secs(10);

/// The shortest time between two reports about one artifact, unless it is complete.
const PACE: Duration = Duration::from_millis(100);

/// The progress of a fetch.
#[derive(Debug, Clone, PartialEq)]
pub struct Status {
    /// The artifact that made progress.
    pub name: String,
    /// The number of its bytes that exist.
    pub done: u64,
    /// Its size in bytes, once known.
    pub total: Option<u64>,
    /// The number of existing bytes of all artifacts.
    pub all_done: u64,
    /// The size in bytes of all artifacts whose size is known.
    pub all_total: u64,
    /// Bytes per second received in the last ten seconds.
    pub rate: f64,
    /// The estimated time for the rest at that rate; `None` while no data arrives.
    pub left: Option<Duration>,
}

/// The receiver of progress reports.
pub type Watcher = dyn Fn(&Status) + Send + Sync;

/// Sums up the progress of all threads and reports it to a watcher.
pub struct Meter {
    watcher: Box<Watcher>,
    started: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    tasks: BTreeMap<String, Task>,
    /// Times, each with the number of bytes received over the network by then.
    samples: VecDeque<(Duration, u64)>,
    received: u64,
}

#[derive(Default)]
struct Task {
    done: u64,
    total: Option<u64>,
    told: Option<Duration>,
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").finish_non_exhaustive()
    }
}

impl Meter {
    /// A meter that reports to this watcher.
    #[must_use]
    pub fn new(watcher: Box<Watcher>) -> Self {
        Self {
            watcher,
            started: Instant::now(),
            state: Mutex::default(),
        }
    }

    /// Announces an artifact, so that its size counts from the beginning.
    pub(crate) fn expect(&self, name: &str, total: Option<u64>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.tasks.entry(name.to_owned()).or_default().total = total;
    }

    /// Records that `done` bytes of an artifact exist, of which `new` bytes were just received over
    /// the network.
    pub(crate) fn at(&self, name: &str, done: u64, total: Option<u64>, new: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // Read only under the lock, so that time is monotonic across all threads.
        let at = self.started.elapsed();
        let status = state.advance(at, name, done, total, new);
        drop(state);
        if let Some(status) = status {
            (self.watcher)(&status);
        }
    }
}

impl State {
    fn advance(
        &mut self,
        at: Duration,
        name: &str,
        done: u64,
        total: Option<u64>,
        new: u64,
    ) -> Option<Status> {
        self.received += new;
        let task = self.tasks.entry(name.to_owned()).or_default();
        (task.done, task.total) = (done, total.or(task.total));
        let total = task.total;
        let due = task.told.is_none_or(|told| at - told >= PACE) || total == Some(done);
        if !due {
            return None;
        }
        task.told = Some(at);
        self.samples.push_back((at, self.received));
        while self.samples.len() > 2 && at - self.samples[1].0 >= WINDOW {
            self.samples.pop_front();
        }
        // Bytes before the first sample were received since the start.
        let (since, before) = match self.samples.front() {
            Some(&(since, before)) if self.samples.len() > 1 => (since, before),
            _ => (Duration::ZERO, 0),
        };
        let seconds = (at - since).as_secs_f64();
        let came = self.received - before;
        let rate = if seconds > 0.0 {
            came as f64 / seconds
        } else {
            0.0
        };
        let all_done = self.tasks.values().map(|task| task.done).sum();
        let all_total = self
            .tasks
            .values()
            .filter_map(|task| task.total)
            .sum::<u64>();
        let known_done: u64 = self
            .tasks
            .values()
            .filter(|task| task.total.is_some())
            .map(|task| task.done)
            .sum();
        let rest = all_total.saturating_sub(known_done) as f64;
        let left = match rest {
            0.0 => Some(Duration::ZERO),
            rest => Duration::try_from_secs_f64(rest / rate).ok(),
        };
        Some(Status {
            name: name.to_owned(),
            done,
            total,
            all_done,
            all_total,
            rate,
            left,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_threads_tell_it_at_once() {
        let meter = Meter::new(Box::new(|_| ()));
        std::thread::scope(|scope| {
            for name in ["a", "b", "c", "d"] {
                let meter = &meter;
                scope.spawn(move || {
                    (0..20_000).for_each(|done| meter.at(name, done, Some(done), 1))
                });
            }
        });
        assert_eq!(meter.state.lock().unwrap().received, 80_000);
    }

    #[test]
    fn rate_and_rest_follow_what_comes() {
        let mut state = State::default();
        state.tasks.insert(
            "b".into(),
            Task {
                total: Some(4_000),
                ..Task::default()
            },
        );
        let second = Duration::from_secs;
        // 1000 bytes existed before; 500 were received in the first second.
        let status = state
            .advance(second(1), "a", 1_500, Some(6_000), 500)
            .unwrap();
        assert_eq!(
            (status.rate, status.all_done, status.all_total),
            (500.0, 1_500, 10_000)
        );
        assert_eq!(status.left, Some(second(17)));
        let status = state.advance(second(3), "a", 3_500, None, 2_000).unwrap();
        assert_eq!((status.rate, status.total), (1_000.0, Some(6_000)));
        assert_eq!(status.left, Some(Duration::from_secs_f64(6.5)));
        // The next report would be too soon, unless the artifact is complete.
        assert_eq!(state.advance(second(3), "a", 3_600, None, 100), None);
        assert_eq!(
            state
                .advance(second(3), "b", 4_000, None, 4_000)
                .unwrap()
                .done,
            4_000
        );
        // Old samples are dropped.
        for at in 4..40 {
            state.advance(second(at), "a", 3_600, None, 0);
        }
        let status = state.advance(second(40), "a", 3_600, None, 0).unwrap();
        assert_eq!((status.rate, status.left), (0.0, None));
    }
}
