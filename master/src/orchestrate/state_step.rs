//! `halite.state` and `halite.function`: steps that make one job, or one for each batch.

use std::time::Duration;

use halite_errors::chain;
use halite_etcd::Pace as _;
use halite_names::{BundleVersion, BundleVersionError};
use halite_proto::identity::IdentityError;
use halite_proto::ids::{JobId, MinionId};
use halite_states::engine::Failure;
use halite_states::low::{Chunk, RunReturn};
use serde_json::{Map, Value, json};

use super::pace::StepPace;
use super::stall::stall;
use super::step_runner::{Outcome, StepRunner, failed, required, text, texts, timeout};
use crate::due::SAY;
use crate::jobs::NewJob;
use crate::jobs::failure::failure;
use crate::jobs::function::Function;
use crate::jobs::target::resolve;
use crate::store::{JobRow, RowState};

/// The time that a step with `offline: skip` gives a minion to reconnect after a restart.
const RECONNECT: Duration = Duration::from_secs(5);
/// The number of attempts with minions that were interrupted during a job.
const ATTEMPTS: usize = 3;

impl StepRunner<'_> {
    /// Runs `halite.state`.
    pub(super) async fn state(&self, chunk: &Chunk, index: usize) -> Result<Outcome, Failure> {
        let sls = texts(chunk, "sls");
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
            ..new
        };
        self.on_minions(chunk, index, new).await
    }

    /// Runs `halite.function`.
    pub(super) async fn function(&self, chunk: &Chunk, index: usize) -> Result<Outcome, Failure> {
        let function = required(chunk, "fun")?;
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
    ) -> Result<Outcome, Failure> {
        let target = required(chunk, "tgt")?;
        let kind = text(chunk, "tgt_type").unwrap_or_default();
        let named = resolve(
            self.jobs.app(),
            self.jobs.declarations(),
            &kind,
            &target,
            true,
        )
        .await
        .map_err(failed)?;
        let skips = skips_offline(chunk)?;
        let size = batch_size(named.len(), text(chunk, "batch").as_deref())?;
        let mut minions = named;
        let mut changes = Map::new();
        // The parts that this step has already done, before a restart of the master: they are not
        // repeated, whichever minions are connected now.
        let done = self.done_earlier(index, &minions).await?;
        let (mut left, mut left_out) = (minions.clone(), Vec::new());
        left.retain(|minion| !done.iter().any(|row| row.minion == *minion));
        self.record_bundle(&new, &done).await?;
        note_changes(&mut changes, done);
        if skips {
            (left, left_out) = self.reachable(left).await;
        }
        let new = NewJob {
            test: self.run.test,
            operator: format!("run:{}", self.run.id),
            target,
            timeout: u32::try_from(timeout(chunk).as_secs()).unwrap_or(u32::MAX),
            ..new
        };
        for batch in left.chunks(size) {
            let done = self.one_job(index, &new, batch, skips).await?;
            note_changes(&mut changes, done.good);
            left_out.extend(done.gone);
        }
        minions.retain(|minion| !left_out.contains(minion));
        let done = (!minions.is_empty())
            .then(|| format!("{} on {}: done", new.function, minions.join(", ")));
        let missing = (!left_out.is_empty()).then(|| {
            // A highstate gives a host the bundle that it has.
            let later = match &new.bundle {
                None => "the next highstate of these makes up for it",
                Some(_) => "run this again when they are",
            };
            format!(
                "not connected, so left out: {}; {later}",
                left_out.join(", ")
            )
        });
        if missing.is_some() {
            self.recorder
                .note(index, "left_out", json!(left_out))
                .await?;
            tracing::warn!(run = %self.run.id, step = %chunk.id, ?left_out, "minions are not connected and left out");
        }
        Ok((
            changes,
            [done, missing]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join("; "),
        ))
    }

    /// Separates the minions that are connected, or reconnect in time, from the others. `master` is
    /// always connected.
    pub(super) async fn reachable(&self, minions: Vec<MinionId>) -> (Vec<MinionId>, Vec<MinionId>) {
        let connections = &self.jobs.app().connections;
        let patience = if self.run.test {
            Duration::ZERO
        } else {
            RECONNECT
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

    /// Whether a minion is connected, or reconnects in time.
    pub(super) async fn is_reachable(&self, name: &str) -> Result<bool, Failure> {
        let id = name.parse();
        let id: MinionId = id.map_err(|error: IdentityError| Failure::new(chain(&error)))?;
        let (there, _) = self.reachable(vec![id]).await;
        Ok(!there.is_empty())
    }

    /// The parts of these minions that succeeded in jobs that this step made before the master
    /// restarted. Such a job may still run: it is waited for.
    async fn done_earlier(
        &self,
        index: usize,
        minions: &[MinionId],
    ) -> Result<Vec<JobRow>, Failure> {
        let mut rows = self.rows(index).await?;
        rows.retain(|row| succeeded(row) && minions.contains(&row.minion));
        Ok(rows)
    }

    /// The parts of all jobs that this step has made, when these have ended.
    pub(super) async fn rows(&self, index: usize) -> Result<Vec<JobRow>, Failure> {
        let detail = self.recorder.detail(index);
        let jobs = detail.get("jobs").and_then(Value::as_array);
        let jobs = jobs.into_iter().flatten().filter_map(Value::as_str);
        let jids: Vec<JobId> = jobs.filter_map(|jid| jid.parse().ok()).collect();
        let mut all = Vec::new();
        for jid in jids {
            let store = &self.jobs.app().store;
            let job = store.job(&jid).await;
            // Recorded, but the master ended before the job was made: there is no such job.
            if job.map_err(|error| Failure::new(chain(&error)))?.is_none() {
                continue;
            }
            let (_, rows) = self.jobs.wait(&jid).await.map_err(failed)?;
            all.extend(rows);
        }
        Ok(all)
    }

    /// Runs one batch: its job, and another job with the minions that were interrupted. With
    /// `skips`, a minion that disconnects during the job is no failure.
    async fn one_job(
        &self,
        index: usize,
        new: &NewJob,
        batch: &[MinionId],
        skips: bool,
    ) -> Result<BatchDone, Failure> {
        let mut left: Vec<MinionId> = batch.to_vec();
        let mut done = BatchDone::default();
        for attempt in 1.. {
            let jid = self.new_job(index, new, &left).await?;
            let rows = self.ended(index, &jid, new).await?;
            let (good, mut bad): (Vec<JobRow>, Vec<JobRow>) = rows.into_iter().partition(succeeded);
            self.record_bundle(new, &good).await?;
            done.good.extend(good);
            let connections = &self.jobs.app().connections;
            bad.retain(|row| {
                let gone =
                    skips && row.state == RowState::Lost && !connections.is_connected(&row.minion);
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

    /// Records that minions have another bundle: a highstate gave them all of it.
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

    /// The rows of a job when it has ended; says meanwhile which minions have not returned.
    async fn ended(&self, index: usize, jid: &JobId, new: &NewJob) -> Result<Vec<JobRow>, Failure> {
        let pace = StepPace::new(self.recorder, index, SAY);
        let limit = Duration::from_secs(new.timeout.into());
        let ended = self.jobs.wait(jid);
        tokio::pin!(ended);
        loop {
            tokio::select! {
                ended = &mut ended => return ended.map(|(_, rows)| rows).map_err(failed),
                () = pace.pause() => {}
            }
            let pending = self.jobs.pending(jid);
            let until = format!("{} has returned", pending.join(", "));
            let connections = &self.jobs.app().connections;
            let is_away =
                |minion: &&MinionId| !minion.is_master() && !connections.is_connected(minion);
            let away: Vec<&MinionId> = pending.iter().filter(is_away).collect();
            let stall = stall(jid, new, &away);
            pace.say_with(until, stall.because, limit, &stall.remedy)
                .await;
        }
    }

    /// Makes a job of this step, recorded before it is made.
    pub(super) async fn new_job(
        &self,
        index: usize,
        new: &NewJob,
        minions: &[MinionId],
    ) -> Result<JobId, Failure> {
        let jid = self.jobs.next_jid();
        self.recorder.note_job(index, &jid).await?;
        let new = NewJob {
            jid: Some(jid),
            minions: minions.to_vec(),
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

/// The bundle that minions are compiled from, where it is not the one that they have.
fn bundle(chunk: &Chunk) -> Result<Option<BundleVersion>, Failure> {
    let version = text(chunk, "bundle").map(|text| text.parse());
    let version = version.transpose();
    version.map_err(|error: BundleVersionError| Failure::new(chain(&error)))
}

/// True when `offline` is `skip`: targets that are not connected are left out.
pub(super) fn skips_offline(chunk: &Chunk) -> Result<bool, Failure> {
    match text(chunk, "offline").as_deref() {
        None | Some("fail") => Ok(false),
        Some("skip") => Ok(true),
        Some(other) => Err(Failure::new(format!(
            "offline: {other:?} is neither `fail` nor `skip`"
        ))),
    }
}

fn list_first(args: &Value) -> Value {
    args.pointer("/arg/0").cloned().unwrap_or_default()
}

/// The size of a batch by the argument `batch`: a number of minions, or a percentage of all; at
/// least one.
fn batch_size(minions: usize, batch: Option<&str>) -> Result<usize, Failure> {
    let Some(text) = batch else {
        return Ok(minions.max(1));
    };
    let number = |text: &str| {
        text.trim().parse::<usize>().map_err(|_| {
            Failure::new(format!(
                "batch: {text:?} is neither a number nor a percentage"
            ))
        })
    };
    let size = match text.strip_suffix('%') {
        Some(percent) => minions.saturating_mul(number(percent)?) / 100,
        None => number(text)?,
    };
    Ok(size.max(1))
}

pub(super) fn succeeded(row: &JobRow) -> bool {
    row.state == RowState::Returned && row.retcode == Some(0)
}

/// Notes the minions on which states have changed something.
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
    use super::*;

    #[test]
    fn batches_by_number_and_percentage() {
        let size = |batch| batch_size(5, batch).unwrap();
        assert_eq!(size(None), 5);
        assert_eq!(size(Some("2")), 2);
        assert_eq!(size(Some("40%")), 2);
        assert_eq!(size(Some("1%")), 1);
        assert_eq!(batch_size(0, None).unwrap(), 1);
        assert!(batch_size(5, Some("half")).is_err());
    }
}
