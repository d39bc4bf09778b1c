//! `ctl events`, `ctl job follow` and `ctl orchestrate follow`: the master's events as they occur.

use std::cell::Cell;

use anyhow::bail;
use halite_api::{Event, JobOrRun, RunStatus, to_value};
use halite_proto::WATCH_POSITION;
use halite_proto::ids::JobId;
use halite_proto::tonic::{Status, Streaming};
use halite_proto::v1;

use super::jobs;
use crate::FAILED;
use crate::again::same_run;
use crate::cli::{Events, Global};
use crate::client;
use crate::client::{Operator, document};
use crate::event_line::line;
use crate::event_stream::{CallNews, follow};
use crate::orchestration_watch::{print_outcome, success_of, watch_run};
use crate::output::Screen;

/// The position of a reader of events. After a lost connection it resumes there, so that each
/// stored event is read once.
struct Reader {
    prefix: String,
    after: Cell<Option<i64>>,
}

impl Reader {
    /// A reader that starts with the oldest stored event.
    fn from_the_oldest(prefix: String) -> Self {
        Self {
            prefix,
            after: Cell::new(Some(0)),
        }
    }

    async fn open(&self, mut operator: Operator) -> Result<Option<Streaming<v1::Event>>, Status> {
        let request = v1::WatchRequest {
            after: self.after.get(),
            prefix: self.prefix.clone(),
        };
        let watched = operator.watch(request).await?;
        if self.after.get().is_none() {
            let position = watched.metadata().get(WATCH_POSITION);
            let position = position.and_then(|value| value.to_str().ok()?.parse().ok());
            self.after.set(position);
        }
        Ok(Some(watched.into_inner()))
    }

    /// Opens the events of a job or an orchestration; `None` if it has ended.
    async fn open_until_end(
        &self,
        operator: Operator,
        id: &JobId,
        is_running: fn(&JobOrRun) -> bool,
    ) -> Result<Option<Streaming<v1::Event>>, Status> {
        // Queried after the events: what ends between the two requests is not missed.
        let events = self.open(operator.clone()).await?;
        let request = v1::ShowJobRequest {
            job: id.to_string(),
        };
        // A failed request is repeated with the call, or ends it.
        let answer = { operator }.show_job(request).await?;
        let is_running = document::<JobOrRun>(Ok(answer)).is_ok_and(|shown| is_running(&shown));
        Ok(events.filter(|_| is_running))
    }

    /// Records that an event was read.
    fn read(&self, event: &v1::Event) {
        if event.seq > 0 {
            self.after.set(Some(event.seq));
        }
    }
}

/// Runs `ctl events`.
///
/// # Errors
/// The master does not answer or refuses, or the events cannot be written.
pub async fn events(global: &Global, args: &Events, screen: &mut Screen) -> anyhow::Result<u8> {
    let reader = Reader {
        prefix: args.prefix.clone(),
        after: Cell::new(args.after.map(i64::from)),
    };
    let mut failed = None;
    let start = async |operator: Operator| reader.open(operator).await;
    let followed = follow(global, start, |heard| match heard {
        CallNews::Event(event) => {
            reader.read(event);
            let document = to_value(&Event::from(event.clone()));
            failed = screen.item(&document, |_| line(event)).err();
            failed.is_some()
        }
        CallNews::Silence(text) => {
            screen.note(text);
            false
        }
    });
    followed.await?;
    failed.map_or(Ok(0), Err)
}

/// Runs `ctl job follow`: shows the events of a job until it ends, then the job.
///
/// # Errors
/// The master does not answer or refuses, or there is no such job.
pub async fn follow_job(global: &Global, job: &JobId, screen: &mut Screen) -> anyhow::Result<u8> {
    let reader = Reader::from_the_oldest(format!("halite/job/{job}/"));
    let start =
        async |operator: Operator| reader.open_until_end(operator, job, is_running_job).await;
    let followed = follow(global, start, |heard| match heard {
        CallNews::Event(event) => {
            reader.read(event);
            screen.line(line(event));
            event.last
        }
        CallNews::Silence(text) => {
            screen.note(text);
            false
        }
    });
    followed.await?;
    let shown = show(client::operator(global).await?, job).await?;
    let JobOrRun::Job(record) = &shown else {
        bail!("{job} is an orchestration, not a job; `ctl orchestrate follow {job}` follows it");
    };
    let retcode = record.retcode;
    screen.answer(&to_value(&shown), |paint| jobs::one(&shown, paint))?;
    Ok(if retcode == Some(0) { 0 } else { FAILED })
}

fn is_running_job(shown: &JobOrRun) -> bool {
    matches!(shown, JobOrRun::Job(job) if job.finished.is_none())
}

fn is_running_run(shown: &JobOrRun) -> bool {
    matches!(shown, JobOrRun::Run(run) if run.status == RunStatus::Running)
}

async fn show(mut operator: Operator, job: &JobId) -> anyhow::Result<JobOrRun> {
    let request = v1::ShowJobRequest {
        job: job.to_string(),
    };
    document(operator.show_job(request).await)
}

/// Runs `ctl orchestrate follow`: shows the steps of a run until it ends. Of a run that has ended,
/// it shows the record: its events may have been pruned.
///
/// # Errors
/// The master does not answer or refuses, or there is no such run.
pub async fn follow_run(global: &Global, run: &JobId, screen: &mut Screen) -> anyhow::Result<u8> {
    let shown = show(client::operator(global).await?, run).await?;
    let JobOrRun::Run(record) = &shown else {
        bail!("{run} is a job, not an orchestration; `ctl job follow {run}` follows it");
    };
    if !is_running_run(&shown) {
        return print_ended(&shown, screen);
    }
    let reader = Reader::from_the_oldest(format!("halite/run/{run}/"));
    let start = async |operator: Operator| {
        // A master that was killed at the end of the run has stored its status without the event.
        reader.open_until_end(operator, run, is_running_run).await
    };
    let done = watch_run(
        global,
        start,
        |event| reader.read(event),
        &record.sls,
        screen,
    )
    .await?;
    if done.run.is_none() {
        let shown = show(client::operator(global).await?, run).await?;
        return print_ended(&shown, screen);
    }
    let again = same_run(record).text();
    print_outcome(&done, success_of("done", record.test), &again, screen)
}

/// Prints the record of a run that has ended, and returns the exit code.
fn print_ended(shown: &JobOrRun, screen: &mut Screen) -> anyhow::Result<u8> {
    let succeeded = matches!(shown, JobOrRun::Run(run) if run.status == RunStatus::Succeeded);
    screen.answer(&to_value(shown), |paint| jobs::one(shown, paint))?;
    Ok(if succeeded { 0 } else { FAILED })
}
