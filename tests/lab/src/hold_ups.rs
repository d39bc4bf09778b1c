//! The time for which this machine was held up: its processors or its disks were busy with other
//! work, or the machine itself stood still. A program must not be blamed for that time.

use std::fs;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The time from one beat to the next.
const BEAT: Duration = Duration::from_millis(50);

/// The pressure on the disks: the time for which processes have waited for them (the kernel's
/// `Documentation/accounting/psi.rst`).
const DISKS: &str = "/proc/pressure/io";

/// A measurement of hold-ups, from its start until it is dropped.
#[derive(Debug)]
pub struct HoldUps {
    pulse: Arc<Mutex<Pulse>>,
    start: Instant,
    disks: Duration,
    /// The thread ends when this is dropped.
    _alive: Sender<()>,
}

impl HoldUps {
    /// Starts the measurement.
    #[must_use]
    pub fn start() -> Self {
        let (start, pulse) = (Instant::now(), Arc::new(Mutex::new(Pulse::default())));
        let (alive, end) = channel();
        let shared = Arc::clone(&pulse);
        thread::spawn(move || {
            while end.recv_timeout(BEAT) == Err(RecvTimeoutError::Timeout) {
                let mut pulse = shared.lock().unwrap_or_else(PoisonError::into_inner);
                pulse.beat(start.elapsed());
            }
        });
        Self {
            pulse,
            start,
            disks: disks(),
            _alive: alive,
        }
    }

    /// The sum of all hold-ups until now.
    #[must_use]
    pub fn so_far(&self) -> Duration {
        let pulse = self.pulse.lock().unwrap_or_else(PoisonError::into_inner);
        pulse.late_at(self.start.elapsed()) + disks().saturating_sub(self.disks)
    }
}

/// Beats, which are late while no processor is free.
#[derive(Debug, Default)]
struct Pulse {
    /// The time of the last beat.
    last: Duration,
    /// The sum of the times by which beats were late.
    late: Duration,
}

impl Pulse {
    fn beat(&mut self, now: Duration) {
        self.late = self.late_at(now);
        self.last = now;
    }

    /// The sum at a time, including the beat that is due.
    fn late_at(&self, now: Duration) -> Duration {
        self.late + now.saturating_sub(self.last + BEAT)
    }
}

/// The time since boot for which processes have waited for disks; zero if the kernel does not
/// report it.
fn disks() -> Duration {
    total(&fs::read_to_string(DISKS).unwrap_or_default()).unwrap_or_default()
}

/// The total of the line `some`: the time in which at least one process waited.
fn total(pressure: &str) -> Option<Duration> {
    let line = pressure.lines().find(|line| line.starts_with("some "))?;
    let (_, total) = line.split_once("total=")?;
    total.trim().parse().ok().map(Duration::from_micros)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_late_beat_is_a_hold_up_also_before_it_comes() {
        let mut pulse = Pulse::default();
        for beat in [50, 100, 600] {
            pulse.beat(at(beat));
        }
        assert_eq!(pulse.late, at(450));
        assert_eq!(pulse.late_at(at(640)), at(450));
        assert_eq!(pulse.late_at(at(750)), at(550));
        pulse.beat(at(750));
        assert_eq!(pulse.late, at(550));
    }

    #[test]
    fn the_pressure_is_read_as_the_kernel_writes_it() {
        let text = "some avg10=0.05 avg60=3.48 avg300=7.90 total=54102478\n\
                    full avg10=0.00 avg60=0.34 avg300=2.19 total=22957090\n";
        assert_eq!(total(text), Some(Duration::from_micros(54_102_478)));
        assert_eq!(total(""), None);
    }
}
