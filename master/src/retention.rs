//! Removal of records that the store need not retain: by age each day, by size each minute.

use std::time::Duration;

use halite_core::app::App;
use halite_core::config::KeptJobs;
use halite_errors::chain;
use halite_store::{Millis, Store, StoreError};
use tokio::time::MissedTickBehavior;

/// The age at which events and audit lines are removed.
const KEEP: Millis = 90 * 24 * 60 * 60 * 1000;
/// Jobs that are removed in one transaction. The low states of many hosts are large, and other
/// users of the store must not wait long.
const AT_A_TIME: u32 = 20;
/// One day.
const DAY: Millis = 24 * 60 * 60 * 1000;
/// The age from which a job is removed for the size of the store: its returns may still be read by
/// the operator who waited for them.
const BEING_READ: Millis = 60_000;

/// The intervals of removal.
#[derive(Debug, Clone, Copy)]
pub struct RemovalIntervals {
    /// Between two removals of old events, audit lines, jobs and unused records.
    pub prune: Duration,
    /// Between two checks of the store's size.
    pub check: Duration,
}

impl Default for RemovalIntervals {
    fn default() -> Self {
        Self {
            prune: Duration::from_secs(24 * 60 * 60),
            check: Duration::from_secs(60),
        }
    }
}

/// Removes old records for as long as it is polled.
pub async fn keep(app: &App, intervals: RemovalIntervals) {
    let mut days = tokio::time::interval(intervals.prune);
    let mut checks = tokio::time::interval(intervals.check);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // Both are due at the start: remove unused records before jobs.
            biased;
            _ = days.tick() => prune(app).await,
            _ = checks.tick() => keep_size(app).await,
        }
    }
}

/// Removes what the configuration does not retain.
async fn prune(app: &App) {
    match app.store.prune(app.clock.now() - KEEP).await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "old events and audit lines removed"),
        Err(error) => tracing::error!(error = chain(&error), "cannot remove old events"),
    }
    match prune_unused(app.store.as_ref(), app.clock.now()).await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(
            removed,
            "unused files, low states, certificates and tokens removed"
        ),
        Err(error) => tracing::error!(error = chain(&error), "cannot remove unused records"),
    }
    match prune_jobs(app.store.as_ref(), app.config.jobs, app.clock.now()).await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(removed, "old jobs and orchestrations removed"),
        Err(error) => tracing::error!(error = chain(&error), "cannot remove old jobs"),
    }
}

/// Keeps the store below its size between two days: ten highstates of a large cluster in a day
/// could fill the disk.
async fn keep_size(app: &App) {
    match reduce(app.store.as_ref(), app.config.jobs, app.clock.now()).await {
        Ok(0) => {}
        Ok(removed) => tracing::info!(
            removed,
            "old jobs and orchestrations removed, because the store had more than jobs.keep_mib"
        ),
        Err(error) => tracing::error!(error = chain(&error), "cannot reduce the store"),
    }
}

/// Removes unreferenced records from an oversized store, and then jobs and runs, one at a time;
/// returns the number of the latter.
async fn reduce(store: &Store, kept: KeptJobs, now: Millis) -> Result<u64, StoreError> {
    if is_oversized(store, kept).await? {
        prune_unused(store, now).await?;
    }
    shrink(store, kept, now - BEING_READ, 1).await
}

async fn is_oversized(store: &Store, kept: KeptJobs) -> Result<bool, StoreError> {
    Ok(store.size().await? > u64::from(kept.keep_mib) << 20)
}

/// Removes the jobs and runs that the configuration does not retain, in bounded steps; returns
/// their number.
async fn prune_jobs(store: &Store, kept: KeptJobs, now: Millis) -> Result<u64, StoreError> {
    let before = now.saturating_sub(Millis::from(kept.keep_days).saturating_mul(DAY));
    let mut removed = 0;
    loop {
        // The newest job always stays: the id of the next one follows from it.
        let keep = kept.keep_last.max(1);
        match store.prune_jobs(before, keep, keep, AT_A_TIME).await? {
            0 => break,
            some => removed += some,
        }
    }
    Ok(removed + shrink(store, kept, now, AT_A_TIME).await?)
}

/// Removes jobs and runs that ended before `before` from an oversized store, the oldest first, and
/// returns their number. The newest job stays, and so do the runs that each store retains.
async fn shrink(
    store: &Store,
    kept: KeptJobs,
    before: Millis,
    at_a_time: u32,
) -> Result<u64, StoreError> {
    let mut removed = 0;
    while is_oversized(store, kept).await? {
        let pruned = store.prune_jobs(before, 1, kept.keep_last.max(1), at_a_time);
        match pruned.await? {
            0 => break,
            some => removed += some,
        }
    }
    Ok(removed)
}

/// Removes unreferenced records in bounded steps; returns their number.
async fn prune_unused(store: &Store, now: Millis) -> Result<u64, StoreError> {
    let mut removed = 0;
    loop {
        match store.prune_unused(now, AT_A_TIME).await? {
            0 => return Ok(removed),
            some => removed += some,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use halite_core::clock::ManualClock;
    use halite_core::names::minion;
    use halite_proto::ids::JobId;
    use halite_states::shipped::UPGRADE;
    use halite_store::{Job, JobRow, JobStatus, Run, RunStatus, StoredAnswer};

    use super::*;
    use crate::backend::fixture::{Site, WATCHDOG};

    async fn finished_job(store: &Store, number: u64, text: &str) {
        let job_id = JobId::from_number(number);
        let job = Job {
            job_id: job_id.clone(),
            function: "test.ping".into(),
            args_json: "{}".into(),
            bundle: None,
            test: false,
            operator: "root".into(),
            target: "a".into(),
            minions: vec![minion("a")],
            order: Vec::new(),
            created: 0,
            deadline: None,
            steady_deadline: None,
            request_id: None,
            status: JobStatus::Running,
            retcode: None,
            finished: None,
        };
        store
            .create_job(&job, &[JobRow::queued(&job_id, &minion("a"), None)])
            .await
            .unwrap();
        let answer = StoredAnswer {
            retcode: 0,
            return_json: text.into(),
            error: String::new(),
            when: 0,
        };
        store
            .record_return(&job_id, &minion("a"), &answer)
            .await
            .unwrap();
        store.finish_job(&job_id, 0, 0).await.unwrap();
    }

    #[tokio::test]
    async fn jobs_are_retained_for_days_and_the_newest_for_ever() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("store.db"))
            .await
            .unwrap();
        for number in 0..50 {
            finished_job(&store, number, "true").await;
        }
        let kept = KeptJobs {
            keep_days: 2,
            keep_last: 3,
            ..KeptJobs::default()
        };
        assert_eq!(prune_jobs(&store, kept, 2 * DAY).await.unwrap(), 0);
        assert_eq!(prune_jobs(&store, kept, 2 * DAY + 1).await.unwrap(), 47);
        let none = KeptJobs {
            keep_days: 0,
            keep_last: 0,
            ..KeptJobs::default()
        };
        assert_eq!(prune_jobs(&store, none, 2 * DAY).await.unwrap(), 2);
        assert_eq!(store.jobs(9).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn a_store_that_is_too_large_retains_less_than_its_days() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("store.db"))
            .await
            .unwrap();
        for number in 0..40 {
            finished_job(&store, number, &"x".repeat(100_000)).await;
        }
        let kept = KeptJobs {
            keep_mib: 3,
            ..KeptJobs::default()
        };
        assert_eq!(prune_jobs(&store, kept, DAY).await.unwrap(), 20);
        assert!(store.size().await.unwrap() <= 3 << 20);
        let none = KeptJobs {
            keep_mib: 0,
            ..kept
        };
        assert_eq!(prune_jobs(&store, none, DAY).await.unwrap(), 19);
        assert_eq!(store.jobs(99).await.unwrap().len(), 1, "the newest stays");
    }

    #[tokio::test]
    async fn a_store_that_is_too_large_retains_the_runs_that_an_upgrade_needs() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&directory.path().join("store.db"))
            .await
            .unwrap();
        for number in 0..40 {
            finished_job(&store, number, &"x".repeat(100_000)).await;
        }
        let runs = [
            (50, UPGRADE, RunStatus::Failed),
            (51, UPGRADE, RunStatus::Succeeded),
            (52, UPGRADE, RunStatus::Failed),
            (53, UPGRADE, RunStatus::Paused),
            (54, "custom.roll", RunStatus::Failed),
            (55, "custom.roll", RunStatus::Succeeded),
        ];
        for (number, sls, status) in runs {
            let run = Run {
                id: JobId::from_number(number),
                sls: sls.into(),
                pillar_json: "{}".into(),
                test: false,
                operator: "root".into(),
                request_id: None,
                low_json: "{}".into(),
                status,
                current: 0,
                cancelled_by: None,
                paused_by: None,
                created: 0,
                changed: 0,
            };
            store.create_run(&run, &[]).await.unwrap();
        }
        let left = async || {
            let runs = store.runs(9).await.unwrap().into_iter();
            runs.map(|run| run.id).collect::<Vec<_>>()
        };
        let all = KeptJobs {
            keep_mib: 3,
            ..KeptJobs::default()
        };
        assert_eq!(prune_jobs(&store, all, DAY).await.unwrap(), 20);
        assert_eq!(left().await.len(), runs.len(), "the last 100 are all");
        let one = KeptJobs {
            keep_mib: 0,
            keep_last: 1,
            ..all
        };
        prune_jobs(&store, one, DAY).await.unwrap();
        assert_eq!(left().await, [55, 53, 52, 51].map(JobId::from_number));
    }

    #[test]
    fn a_store_stays_below_its_size_between_two_days() {
        let site = Site::new(&[]).with_jobs(KeptJobs {
            keep_mib: 3,
            ..KeptJobs::default()
        });
        let clock = Arc::new(ManualClock::at(DAY));
        let life = site.live_at(clock.clone());
        let intervals = RemovalIntervals {
            check: Duration::from_millis(10),
            ..RemovalIntervals::default()
        };
        life.runtime.block_on(async {
            let app = Arc::clone(&life.app);
            let keeping = tokio::spawn(async move { keep(&app, intervals).await });
            let most = (3 << 20) + 300_000;
            for number in 0..100 {
                finished_job(&life.store, number, &"x".repeat(100_000)).await;
                let small = async {
                    while life.store.size().await.unwrap() > most {
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                let small = tokio::time::timeout(WATCHDOG, small).await;
                small.expect("the store must become smaller");
            }
            // The time of day has not changed, and the newest jobs are there.
            assert_eq!(life.app.clock.now(), DAY);
            let left = life.store.jobs(999).await.unwrap();
            assert!((20..=33).contains(&left.len()), "{}", left.len());
            assert_eq!(left[0].job_id, JobId::from_number(99));
            keeping.abort();
        });
        life.kill();
    }

    #[test]
    fn the_size_takes_no_job_whose_returns_are_being_read() {
        let site = Site::new(&[]).with_jobs(KeptJobs {
            keep_mib: 0,
            ..KeptJobs::default()
        });
        let clock = Arc::new(ManualClock::at(BEING_READ));
        let life = site.live_at(clock.clone());
        life.runtime.block_on(async {
            for number in 0..3 {
                finished_job(&life.store, number, "true").await;
            }
            keep_size(&life.app).await;
            assert_eq!(life.store.jobs(9).await.unwrap().len(), 3);
            clock.advance(1);
            keep_size(&life.app).await;
            assert_eq!(life.store.jobs(9).await.unwrap().len(), 1, "the newest");
        });
        life.kill();
    }
}
