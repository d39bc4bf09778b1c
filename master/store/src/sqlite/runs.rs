//! Orchestrations and their steps.

use halite_proto::ids::JobId;
use sqlx::SqliteConnection;

use super::Store;
use crate::records::{Run, RunStatus, Step};
use crate::{Created, Millis, StoreError};

type Outcome<T> = Result<T, StoreError>;

async fn write_step(to: &mut SqliteConnection, step: &Step) -> Outcome<()> {
    sqlx::query(
        "INSERT OR REPLACE INTO steps (run, position, name, status, detail_json, started, ended) \
         VALUES (?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(step.run.as_str())
    .bind(step.index)
    .bind(&step.name)
    .bind(step.status.as_str())
    .bind(&step.detail_json)
    .bind(step.started)
    .bind(step.ended)
    .execute(to)
    .await?;
    Ok(())
}

impl Store {
    /// Stores a run and its steps in one transaction; handles the request id like
    /// [`Store::create_job`].
    pub async fn create_run(&self, run: &Run, steps: &[Step]) -> Outcome<Created<Run>> {
        let mut write = self.writer.begin().await?;
        if let Some(id) = &run.request_id {
            let there = sqlx::query_as("SELECT * FROM runs WHERE request_id = ?")
                .bind(id)
                .fetch_optional(&mut *write)
                .await?;
            if let Some(there) = there {
                write.commit().await?;
                return Ok(Created::Existing(there));
            }
        }
        sqlx::query(
            "INSERT INTO runs (id, sls, pillar_json, test, operator, request_id, low_json, status, current, \
             cancelled_by, paused_by, created, changed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(run.id.as_str())
        .bind(&run.sls)
        .bind(&run.pillar_json)
        .bind(run.test)
        .bind(&run.operator)
        .bind(&run.request_id)
        .bind(&run.low_json)
        .bind(run.status.as_str())
        .bind(run.current)
        .bind(&run.cancelled_by)
        .bind(&run.paused_by)
        .bind(run.created)
        .bind(run.changed)
        .execute(&mut *write)
        .await?;
        for step in steps {
            write_step(&mut write, step).await?;
        }
        write.commit().await?;
        Ok(Created::New)
    }

    /// A run.
    pub async fn run(&self, id: &JobId) -> Outcome<Option<Run>> {
        Ok(sqlx::query_as("SELECT * FROM runs WHERE id = ?")
            .bind(id.as_str())
            .fetch_optional(&self.reader)
            .await?)
    }

    /// The newest runs first, at most `limit`.
    pub async fn runs(&self, limit: u32) -> Outcome<Vec<Run>> {
        Ok(
            sqlx::query_as("SELECT * FROM runs ORDER BY id DESC LIMIT ?")
                .bind(limit)
                .fetch_all(&self.reader)
                .await?,
        )
    }

    /// The runs of one orchestration that were created at `since` or later, newest first.
    pub async fn runs_of(&self, sls: &str, since: Millis) -> Outcome<Vec<Run>> {
        Ok(
            sqlx::query_as("SELECT * FROM runs WHERE sls = ? AND created >= ? ORDER BY id DESC")
                .bind(sls)
                .bind(since)
                .fetch_all(&self.reader)
                .await?,
        )
    }

    /// The newest runs of one orchestration that change something, newest first, at most `limit`.
    pub async fn newest_runs_of(&self, sls: &str, limit: u32) -> Outcome<Vec<Run>> {
        Ok(
            sqlx::query_as(
                "SELECT * FROM runs WHERE sls = ? AND test = 0 ORDER BY id DESC LIMIT ?",
            )
            .bind(sls)
            .bind(limit)
            .fetch_all(&self.reader)
            .await?,
        )
    }

    /// The newest runs of one orchestration, also in test mode, newest first, at most `limit`.
    pub async fn newest_of(&self, sls: &str, limit: u32) -> Outcome<Vec<Run>> {
        Ok(
            sqlx::query_as("SELECT * FROM runs WHERE sls = ? ORDER BY id DESC LIMIT ?")
                .bind(sls)
                .bind(limit)
                .fetch_all(&self.reader)
                .await?,
        )
    }

    /// The creation time of the oldest run or job; `None` in an empty store. Nothing is known about
    /// the time before it.
    pub async fn oldest(&self) -> Outcome<Option<Millis>> {
        // Ids sort by age. The times themselves have no index.
        Ok(sqlx::query_scalar(
            "SELECT MIN(created) FROM (SELECT * FROM (SELECT created FROM runs ORDER BY id LIMIT 1) \
             UNION ALL SELECT * FROM (SELECT created FROM jobs ORDER BY jid LIMIT 1))",
        )
        .fetch_one(&self.reader)
        .await?)
    }

    /// Runs whose status is running, oldest first.
    pub async fn open_runs(&self) -> Outcome<Vec<Run>> {
        Ok(
            sqlx::query_as("SELECT * FROM runs WHERE status = 'running' ORDER BY id")
                .fetch_all(&self.reader)
                .await?,
        )
    }

    /// Changes a run's status and current step.
    pub async fn update_run(
        &self,
        id: &JobId,
        status: RunStatus,
        current: u32,
        now: Millis,
    ) -> Outcome<()> {
        let mut write = self.writer.begin().await?;
        sqlx::query("UPDATE runs SET status = ?, current = ?, changed = ? WHERE id = ?")
            .bind(status.as_str())
            .bind(current)
            .bind(now)
            .bind(id.as_str())
            .execute(&mut *write)
            .await?;
        write.commit().await?;
        Ok(())
    }

    /// Records the operator who cancels a run; the first one counts. Returns `false`, with nothing
    /// stored, if the run has ended or does not exist.
    pub async fn cancel_run(&self, id: &JobId, operator: &str, now: Millis) -> Outcome<bool> {
        let mut write = self.writer.begin().await?;
        let done = sqlx::query(
            "UPDATE runs SET cancelled_by = coalesce(cancelled_by, ?), changed = ? WHERE id = ? AND status = 'running'",
        )
        .bind(operator)
        .bind(now)
        .bind(id.as_str())
        .execute(&mut *write)
        .await?;
        write.commit().await?;
        Ok(done.rows_affected() > 0)
    }

    /// Records the operator who pauses a run; the first one counts. Returns `false`, with nothing
    /// stored, if the run is cancelled, has ended or does not exist.
    pub async fn pause_run(&self, id: &JobId, operator: &str, now: Millis) -> Outcome<bool> {
        let mut write = self.writer.begin().await?;
        let done = sqlx::query(
            "UPDATE runs SET paused_by = coalesce(paused_by, ?), changed = ? \
             WHERE id = ? AND status = 'running' AND cancelled_by IS NULL",
        )
        .bind(operator)
        .bind(now)
        .bind(id.as_str())
        .execute(&mut *write)
        .await?;
        write.commit().await?;
        Ok(done.rows_affected() > 0)
    }

    /// Stores one step, replacing any step with the same index.
    pub async fn put_step(&self, step: &Step) -> Outcome<()> {
        let mut write = self.writer.begin().await?;
        write_step(&mut write, step).await?;
        write.commit().await
    }

    /// A run's steps, in order.
    pub async fn steps(&self, run: &JobId) -> Outcome<Vec<Step>> {
        Ok(
            sqlx::query_as("SELECT * FROM steps WHERE run = ? ORDER BY position")
                .bind(run.as_str())
                .fetch_all(&self.reader)
                .await?,
        )
    }

    /// Takes a lock for a run, unless another run that has not ended holds it; then returns that
    /// run. A run keeps a lock that it already holds. A lock whose run has ended is taken over.
    pub async fn take_lock(&self, name: &str, run: &JobId, now: Millis) -> Outcome<Option<Run>> {
        let mut write = self.writer.begin().await?;
        let holder = sqlx::query_as(
            "SELECT runs.* FROM locks JOIN runs ON runs.id = locks.run \
             WHERE locks.name = ? AND locks.run <> ? AND runs.status = 'running'",
        )
        .bind(name)
        .bind(run.as_str())
        .fetch_optional(&mut *write)
        .await?;
        if holder.is_some() {
            write.commit().await?;
            return Ok(holder);
        }
        sqlx::query(
            "INSERT INTO locks (name, run, since) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE \
             SET run = excluded.run, since = excluded.since WHERE run <> excluded.run",
        )
        .bind(name)
        .bind(run.as_str())
        .bind(now)
        .execute(&mut *write)
        .await?;
        write.commit().await?;
        Ok(None)
    }

    /// Releases a run's lock before the run has ended. Does nothing if the run does not hold it.
    pub async fn release_lock(&self, name: &str, run: &JobId) -> Outcome<()> {
        let mut write = self.writer.begin().await?;
        sqlx::query("DELETE FROM locks WHERE name = ? AND run = ?")
            .bind(name)
            .bind(run.as_str())
            .execute(&mut *write)
            .await?;
        write.commit().await?;
        Ok(())
    }
}
