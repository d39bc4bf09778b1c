//! `halite.state` and `halite.function`: steps that make one job, or one for each batch.

use std::time::Duration;

use halite_core::names::some_of;
use halite_core::refusal::RefusalKind;
use halite_errors::chain;
use halite_fleet::jobs::NewJob;
use halite_fleet::jobs::failure::{failure, succeeded};
use halite_fleet::jobs::function::Function;
use halite_fleet::jobs::target::{Target, matching, resolve};
use halite_names::{BundleVersion, BundleVersionError};
use halite_proto::identity::IdentityError;
use halite_proto::ids::{JobId, MinionId};
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::{Chunk, RunReturn};
use halite_states::shipped;
use halite_store::{Job, JobRow, RowState};
use serde_json::{Map, Value, json};

use super::pace::StepPace;
use super::stall::{Watched, behind, ending, queued, stall};
use super::step_options::{StepOptions, direction};
use super::step_runner::{StepOutcome, StepRunner, failed, timeout};

/// The time that a step with `offline: skip` gives a minion to reconnect. After a restart of the
/// master it waits longer, until the minions have usually reconnected: each of them has to, and its
/// pauses grow.
const RECONNECT: Duration = Duration::from_secs(5);
/// Polling interval for the minions that have not returned.
const TICK: Duration = Duration::from_secs(2);
/// The number of attempts with minions that were interrupted during a job.
const ATTEMPTS: usize = 3;

impl StepRunner<'_> {
    /// Runs `halite.state`.
    pub(super) async fn state(&self, chunk: &Chunk, index: usize) -> Result<StepOutcome, Failure> {
        let sls = Args::new(chunk).list("sls")?;
        let highstate = chunk
            .args
            .get("highstate")
            .and_then(Value::as_bool)
            .unwrap_or(false);
        let new = match (highstate, sls.is_empty()) {
            (true, true) => NewJob {
                function: "state.highstate".into(),
                ..NewJob::default()
            },
            (false, false) => NewJob {
                function: "state.apply".into(),
                args: json!({"sls": sls}),
                ..NewJob::default()
            },
            _ => {
                return Err(Failure::new(
                    "halite.state needs either `sls` or `highstate: true`",
                ));
            }
        };
        let new = NewJob {
            bundle: bundle(chunk)?,
            direction: direction(chunk)?,
            ..new
        };
        self.on_minions(chunk, index, new).await
    }

    /// Runs `halite.function`.
    pub(super) async fn function(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let function = Args::new(chunk).required("fun")?;
        let given = chunk.args.get("arg").cloned().unwrap_or_default();
        let list = match given {
            Value::Array(items) => items,
            Value::Null => Vec::new(),
            one => vec![one],
        };
        let mut args = json!({"arg": list});
        if function == "cmd.run" {
            args["cmd"] = list_first(&args);
        }
        if self.run.test && !Function::find(&function).map_err(failed)?.has_test_mode() {
            return Ok((
                Map::new(),
                format!("{function} would run; it has no test mode"),
            ));
        }
        self.on_minions(
            chunk,
            index,
            NewJob {
                function,
                args,
                ..NewJob::default()
            },
        )
        .await
    }

    /// Sends the job to the targets, batch after batch, and waits for all returns.
    async fn on_minions(
        &self,
        chunk: &Chunk,
        index: usize,
        new: NewJob,
    ) -> Result<StepOutcome, Failure> {
        let options = StepOptions::new(chunk)?;
        // One timeout for the whole step: many short batches are a long wait, too.
        let pace = StepPace::new(self.recorder, index, TICK);
        let target = Args::new(chunk).required("tgt")?;
        let kind = Args::new(chunk).text("tgt_type")?.unwrap_or_default();
        let (app, declarations) = (self.jobs.app(), self.jobs.declarations());
        let wanted = Target {
            kind: &kind,
            expression: &target,
            also_master: true,
        };
        let named = match options.skips_unmatched {
            true => matching(app, declarations, wanted).await,
            false => resolve(app, declarations, wanted).await,
        };
        let named = named.map_err(failed)?;
        if named.is_empty() {
            let comment = format!("no accepted minion matches {target:?}: nothing to do");
            return Ok((Map::new(), comment));
        }
        let size = options.batch_size(named.len());
        let mut minions = self.but_done(&options, named).await?;
        let mut changes = Map::new();
        // The parts that this step had done before a restart of the master: they are not repeated,
        // whichever minions are connected now.
        let done = self.done_earlier(index, &minions, &options, &pace).await?;
        let (mut left, mut left_out) = (minions.clone(), Vec::new());
        left.retain(|minion| !done.iter().any(|row| row.minion == *minion));
        self.record_bundle(&new, &done).await?;
        note_changes(&mut changes, done);
        if options.skips_offline {
            (left, left_out) = self.reachable(left).await;
        }
        let undrained = self.undrained(index);
        left_out.extend(left.extract_if(.., |minion| undrained.contains(minion)));
        let parted = self.without_bare(&options, left).await?;
        let (left, bare) = (parted.in_use, parted.bare);
        left_out.extend(parted.silent);
        let new = NewJob {
            test: self.run.test,
            operator: format!("run:{}", self.run.id),
            target,
            timeout: u32::try_from(timeout(chunk)?.as_secs()).unwrap_or(u32::MAX),
            ..new
        };
        for batch in left.chunks(size) {
            let done = self.one_job(index, &new, batch, &options, &pace).await?;
            note_changes(&mut changes, done.good);
            left_out.extend(done.gone);
        }
        minions.retain(|minion| !left_out.contains(minion) && !bare.contains(minion));
        let done =
            (!minions.is_empty()).then(|| format!("{} on {}: done", new.function, names(&minions)));
        let missing = (!left_out.is_empty()).then(|| {
            // A highstate keeps the host's own bundle.
            let later = match &new.bundle {
                None => "their next highstate makes up for it",
                Some(_) => "run this again when they are",
            };
            format!("not connected, so left out: {}; {later}", names(&left_out))
        });
        let not_yet = (!bare.is_empty()).then(|| {
            let bare = names(&bare);
            format!("still bare, so left out: {bare}; their own runs make up for it")
        });
        if missing.is_some() {
            self.recorder
                .note(index, "leftOut", json!(left_out))
                .await?;
            tracing::warn!(run = %self.run.id, step = %chunk.id, ?left_out, "minions are not connected, so left out");
        }
        Ok((
            changes,
            [done, missing, not_yet]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join("; "),
        ))
    }

    /// Separates the minions that are connected, or reconnect in time, from the others. `master` is
    /// always connected.
    pub(super) async fn reachable(&self, minions: Vec<MinionId>) -> (Vec<MinionId>, Vec<MinionId>) {
        let app = self.jobs.app();
        let connections = &app.connections;
        let patience = if self.run.test {
            Duration::ZERO
        } else {
            RECONNECT.max(app.isolation.settles_in())
        };
        let looks = minions.into_iter().map(|minion| async move {
            let there = minion.is_master() || connections.wait_connected(&minion, patience).await;
            (minion, there)
        });
        let looked = futures_util::future::join_all(looks).await;
        let (there, gone): (Vec<_>, Vec<_>) = looked.into_iter().partition(|(_, there)| *there);
        let names =
            |pairs: Vec<(MinionId, bool)>| pairs.into_iter().map(|(minion, _)| minion).collect();
        (names(there), names(gone))
    }

    /// Returns whether a minion is connected, or reconnects in time.
    pub(super) async fn is_reachable(&self, name: &str) -> Result<bool, Failure> {
        let id = name.parse();
        let id: MinionId = id.map_err(|error: IdentityError| Failure::new(chain(&error)))?;
        let (there, _) = self.reachable(vec![id]).await;
        Ok(!there.is_empty())
    }

    /// The parts of these minions that succeeded in jobs that this step made before the master
    /// restarted. Waits for such a job if it still runs.
    async fn done_earlier(
        &self,
        index: usize,
        minions: &[MinionId],
        options: &StepOptions,
        pace: &StepPace<'_>,
    ) -> Result<Vec<JobRow>, Failure> {
        let mut rows = self.rows_with(index, options, pace).await?;
        rows.retain(|row| succeeded(row) && minions.contains(&row.minion));
        Ok(rows)
    }

    /// The parts of all jobs that a step has made, once these have ended.
    pub(super) async fn rows(&self, index: usize) -> Result<Vec<JobRow>, Failure> {
        let pace = StepPace::new(self.recorder, index, TICK);
        self.rows_with(index, &StepOptions::default(), &pace).await
    }

    /// The same for a step with these options.
    async fn rows_with(
        &self,
        index: usize,
        options: &StepOptions,
        pace: &StepPace<'_>,
    ) -> Result<Vec<JobRow>, Failure> {
        let detail = self.recorder.detail(index);
        let jobs = detail.get("jobs").and_then(Value::as_array);
        let jobs = jobs.into_iter().flatten().filter_map(Value::as_str);
        let job_ids: Vec<JobId> = jobs.filter_map(|job_id| job_id.parse().ok()).collect();
        let mut all = Vec::new();
        for job_id in job_ids {
            let store = &self.jobs.app().store;
            let job = store.job(&job_id).await;
            // Recorded, but the master ended before the job was made: the job does not exist.
            let Some(job) = job.map_err(|error| Failure::new(chain(&error)))? else {
                continue;
            };
            let made = as_made(&job);
            all.extend(self.ended(&job_id, &made, options, pace).await?);
        }
        Ok(all)
    }

    /// Runs one batch: its job, and another job for interrupted minions. Where targets that are not
    /// connected are left out, a target that disconnects during the job is not a failure.
    async fn one_job(
        &self,
        index: usize,
        new: &NewJob,
        batch: &[MinionId],
        options: &StepOptions,
        pace: &StepPace<'_>,
    ) -> Result<BatchDone, Failure> {
        let mut left: Vec<MinionId> = batch.to_vec();
        let mut done = BatchDone::default();
        for attempt in 1.. {
            let job_id = self.new_job(index, new, &left).await?;
            let rows = self.ended(&job_id, new, options, pace).await?;
            let (good, mut bad): (Vec<JobRow>, Vec<JobRow>) = rows.into_iter().partition(succeeded);
            self.record_bundle(new, &good).await?;
            done.good.extend(good);
            let connections = &self.jobs.app().connections;
            bad.retain(|row| {
                let gone = options.skips_offline
                    && row.state == RowState::Lost
                    && !connections.is_connected(&row.minion);
                if gone {
                    done.gone.push(row.minion.clone());
                }
                !gone
            });
            if bad.is_empty() {
                break;
            }
            let interrupted = bad.iter().all(|row| row.retcode == Some(2));
            if !interrupted || attempt >= ATTEMPTS {
                return Err(Failure::new(
                    bad.iter().map(failure).collect::<Vec<_>>().join("\n"),
                ));
            }
            left = bad.into_iter().map(|row| row.minion).collect();
        }
        Ok(done)
    }

    /// Records that minions have another bundle: a complete highstate gave it to them.
    async fn record_bundle(&self, new: &NewJob, good: &[JobRow]) -> Result<(), Failure> {
        let is_whole = new.function == "state.highstate" && !self.run.test;
        let Some(bundle) = new.bundle.as_ref().filter(|_| is_whole) else {
            return Ok(());
        };
        for row in good {
            let recorded = self.jobs.declarations().record_release(&row.minion, bundle);
            recorded.await.map_err(failed)?;
        }
        Ok(())
    }

    /// The rows of a job once it has ended; reports until then which minions have not returned. If
    /// the run is cancelled, so is the job.
    async fn ended(
        &self,
        job_id: &JobId,
        new: &NewJob,
        options: &StepOptions,
        pace: &StepPace<'_>,
    ) -> Result<Vec<JobRow>, Failure> {
        let limit = Duration::from_secs(new.timeout.into());
        let ended = self.jobs.wait(job_id);
        tokio::pin!(ended);
        let connections = &self.jobs.app().connections;
        let is_away = |minion: &MinionId| !minion.is_master() && !connections.is_connected(minion);
        let mut cancelled_by = None;
        loop {
            tokio::select! {
                ended = &mut ended => return ended.map(|(_, rows)| rows).map_err(failed),
                by = self.recorder.cancellation().requested(), if cancelled_by.is_none() => {
                    self.cancel_job(job_id, &by).await?;
                    cancelled_by = Some(by);
                    continue;
                }
                () = tokio::time::sleep(TICK) => {}
            }
            let pending = self.jobs.pending(job_id);
            if let Some(by) = &cancelled_by {
                if pending.iter().any(is_away) {
                    // The host was asked, and has disconnected since.
                    self.cancel_job(job_id, by).await?;
                }
                let stall = ending(job_id, by);
                let Some(until) = until(&pending, "has ended its work") else {
                    continue;
                };
                pace.say_with(until, stall.because, limit, &stall.remedy)
                    .await;
                continue;
            }
            let away: Vec<&MinionId> = pending.iter().filter(|minion| is_away(minion)).collect();
            let watched = Watched::Step {
                skips: options.skips_offline,
            };
            let queue = match away.as_slice() {
                [] => behind(&self.jobs, job_id).await,
                _ => None,
            };
            let (stall, hosts) = match queue {
                Some((first, hosts)) => (queued(job_id, &first, watched), hosts),
                None => (stall(job_id, new, &away, watched), pending),
            };
            let Some(until) = until(&hosts, "has returned") else {
                continue;
            };
            pace.say_with(until, stall.because, limit, &stall.remedy)
                .await;
        }
    }

    /// Ends a job of this step, unless it has ended.
    async fn cancel_job(&self, job_id: &JobId, by: &str) -> Result<(), Failure> {
        match self.jobs.cancel(job_id, by, false).await {
            Err(refusal) if refusal.kind != RefusalKind::Conflict => Err(failed(refusal)),
            _ => Ok(()),
        }
    }

    /// Makes a job of this step, recorded before it is made; fails if the run was cancelled.
    pub(super) async fn new_job(
        &self,
        index: usize,
        new: &NewJob,
        minions: &[MinionId],
    ) -> Result<JobId, Failure> {
        // The master may have become isolated since the step started.
        self.wait_while_isolated(index).await;
        self.recorder.cancellation().check()?;
        let job_id = self.jobs.next_job_id();
        self.recorder.note_job(index, &job_id).await?;
        let new = NewJob {
            job_id: Some(job_id),
            minions: minions.to_vec(),
            is_shipped_step: shipped::ORCHESTRATIONS.contains(&self.run.sls.as_str()),
            ..new.clone()
        };
        self.jobs.create(new).await.map_err(failed)
    }
}

/// The outcome of a batch.
#[derive(Default)]
struct BatchDone {
    /// The parts that succeeded.
    good: Vec<JobRow>,
    /// The minions that disconnected.
    gone: Vec<MinionId>,
}

/// A job of this step as it was made, as far as a report needs it.
fn as_made(job: &Job) -> NewJob {
    let limit = job.deadline.unwrap_or(job.created) - job.created;
    NewJob {
        function: job.function.clone(),
        args: serde_json::from_str(&job.args_json).unwrap_or_default(),
        timeout: u32::try_from(limit / 1000).unwrap_or_default(),
        ..NewJob::default()
    }
}

fn names(minions: &[MinionId]) -> String {
    some_of(minions)
}

/// The end of a wait for minions of a job. `None` after the last has returned, while the end of the
/// job is being recorded.
fn until(pending: &[MinionId], what: &str) -> Option<String> {
    (!pending.is_empty()).then(|| format!("{} {what}", names(pending)))
}

/// The bundle that minions are compiled from, if it is not their own.
fn bundle(chunk: &Chunk) -> Result<Option<BundleVersion>, Failure> {
    let version = Args::new(chunk).text("bundle")?.map(|text| text.parse());
    let version = version.transpose();
    version.map_err(|error: BundleVersionError| Failure::new(chain(&error)))
}

fn list_first(args: &Value) -> Value {
    args.pointer("/arg/0").cloned().unwrap_or_default()
}

/// Records the minions on which states have changed something.
fn note_changes(changes: &mut Map<String, Value>, done: Vec<JobRow>) {
    for row in done {
        let changed = changed(&row);
        if changed > 0 {
            changes.insert(row.minion.into(), json!({"changed": changed}));
        }
    }
}

/// The number of states of a minion's run that changed something.
fn changed(row: &JobRow) -> usize {
    let run = row
        .return_json
        .as_deref()
        .and_then(|text| serde_json::from_str::<RunReturn>(text).ok());
    run.map_or(0, |run| run.changed())
}

#[cfg(test)]
mod tests {
    use halite_core::names::minion;

    use super::until;

    #[test]
    fn a_job_whose_minions_have_all_returned_waits_for_none() {
        let pending = [minion("a"), minion("b")];
        let said = until(&pending, "has returned");
        assert_eq!(said.as_deref(), Some("a, b has returned"));
        assert_eq!(until(&[], "has returned"), None);
    }
}
