//! A process that stood still, for example because its host was paused. Another host may have taken
//! the master's place in that time. So the process ends before it answers the requests that have
//! waited in its sockets. systemd starts it again, and it asks the other hosts before it serves.

use std::io;
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use halite_core::app::App;
use halite_core::clock::Steady;
use halite_standby::compare::HEARD;
use rustix::time::{ClockId, clock_gettime};

/// The pause between two observations of the clock.
const TICK: Duration = Duration::from_millis(500);

/// The last observation of the clock.
struct Observed(Steady);

impl Observed {
    /// The time since the last observation, if a standby could have been promoted in it without
    /// force.
    fn standstill(&mut self, now: Steady) -> Option<Duration> {
        let since = u64::try_from(now - self.0).unwrap_or_default();
        self.0 = now;
        let since = Duration::from_millis(since);
        (since >= HEARD).then_some(since)
    }
}

/// Ends the process once it has stood still, unless no other host can have the master. Its own
/// thread observes the clock, because the threads of the runtime may be busy with files. The clock
/// includes the time for which the host was suspended; a hypervisor may hide a pause from it.
///
/// # Errors
/// The thread cannot be started.
pub fn watch(app: Arc<App>) -> io::Result<()> {
    let mut observed = Observed(since_boot());
    let watch = move || {
        loop {
            thread::sleep(TICK);
            let Some(time) = observed.standstill(since_boot()) else {
                continue;
            };
            let seconds = time.as_secs();
            if !app.isolation.has_others() {
                tracing::warn!(seconds, "this process stood still");
                continue;
            }
            tracing::error!(
                seconds,
                "this process stood still, and another host may have taken its place: it starts again"
            );
            process::exit(1);
        }
    };
    thread::Builder::new()
        .name("standstill".to_owned())
        .spawn(watch)
        .map(drop)
}

/// The time since the host started (CLOCK_BOOTTIME in clock_gettime(2)).
fn since_boot() -> Steady {
    let time = clock_gettime(ClockId::Boottime);
    Steady(time.tv_sec * 1000 + time.tv_nsec / 1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_stood_still_when_no_observation_was_made_for_the_time_of_a_promotion() {
        let mut observed = Observed(Steady(1000));
        let mut after = |millis| observed.standstill(Steady(millis));
        assert_eq!(after(1500), None);
        assert_eq!(after(1500 + 14_999), None);
        let long = 1500 + 14_999 + 15_000;
        assert_eq!(after(long), Some(HEARD));
        // Once for each pause.
        assert_eq!(after(long + 500), None);
        assert_eq!(after(long + 90_500), Some(Duration::from_secs(90)));
    }
}
