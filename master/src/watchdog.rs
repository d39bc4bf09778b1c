//! The service manager's watchdog (`WatchdogSec`): it kills and restarts a master that no longer
//! works.

use std::time::Duration;

use halite_core::app::App;
use halite_core::refusal::Refusal;

use crate::backend::Backend;

/// The watchdog interval of the service manager; `None` if disabled.
#[must_use]
pub fn limit() -> Option<Duration> {
    let text = |name: &str| std::env::var(name).ok();
    let ours = text("WATCHDOG_PID").is_none_or(|pid| pid == std::process::id().to_string());
    let micros = text("WATCHDOG_USEC")?.parse().ok()?;
    ours.then(|| Duration::from_micros(micros))
}

/// Reports to the service manager as long as the parts of the master work; each is checked four
/// times within the limit.
pub async fn feed(app: &App, backend: &Backend, limit: Duration, report: impl Fn(&str)) {
    loop {
        if works(app, backend, limit / 2).await {
            report("WATCHDOG=1");
        }
        tokio::time::sleep(limit / 4).await;
    }
}

/// Returns whether the store answers and takes changes, jobs are dispatched, and open jobs are
/// checked.
async fn works(app: &App, backend: &Backend, patience: Duration) -> bool {
    let store = async { Ok(app.store.probe().await?) };
    let parts = [
        part("the store", store, patience).await,
        part("the work on jobs", backend.probe(), patience).await,
    ];
    parts == [true; 2]
}

async fn part(
    name: &str,
    probe: impl Future<Output = Result<(), Refusal>>,
    patience: Duration,
) -> bool {
    let reason = match tokio::time::timeout(patience, probe).await {
        Ok(Ok(())) => return true,
        Ok(Err(refusal)) => refusal.message,
        Err(_) => format!("no answer for {} s", patience.as_secs()),
    };
    tracing::error!(
        reason,
        "{name} does not work; if this continues, systemd restarts the master"
    );
    false
}

#[cfg(test)]
mod tests {
    use halite_core::names::minion;

    use super::*;
    use crate::backend::fixture::Site;

    const LONG: Duration = Duration::from_secs(60);
    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn a_master_works_while_store_dispatch_and_the_check_of_jobs_do() {
        let site = Site::new(&[("top.sls", "base:\n  '*': []\n")]);
        let life = site.live();
        life.accept("worker-1");
        let (app, backend) = (life.app.as_ref(), life.backend.as_ref());
        life.runtime.block_on(async {
            assert!(works(app, backend, LONG).await);
            let writer = life.store.hold_writer().await;
            assert!(!works(app, backend, SHORT).await, "the store");
            drop(writer);
            let jobs = life.backend.jobs();
            let lane = jobs.lane(&halite_core::names::MASTER);
            let held = lane.lock().await;
            assert!(!works(app, backend, SHORT).await, "dispatch");
            drop(held);
            // The check of an open job waits for the lane of its minion.
            let lane = jobs.lane(&minion("worker-1"));
            let request = halite_proto::v1::RunRequest {
                target: "worker-1".into(),
                function: "test.ping".into(),
                ..Default::default()
            };
            let _job = backend.run("root", request).await.unwrap();
            let held = lane.lock().await;
            assert!(!works(app, backend, SHORT).await, "the check of open jobs");
            drop(held);
            assert!(works(app, backend, LONG).await);
        });
    }
}
