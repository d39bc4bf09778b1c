//! Orchestrations and their steps.

use halite_proto::ids::JobId;
use sqlx::{Executor, Sqlite};

use super::SqliteStore;
use crate::store::records::{Run, RunStatus, Step};
use crate::store::{Created, Millis, StoreError};

type Outcome<T> = Result<T, StoreError>;

async fn write_step<'e>(to: impl Executor<'e, Database = Sqlite>, step: &Step) -> Outcome<()> {
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

impl SqliteStore {
    pub(super) async fn add_run(&self, run: &Run, steps: &[Step]) -> Outcome<Created<Run>> {
        let mut transaction = self.writer.begin().await?;
        if let Some(id) = &run.request_id {
            let there = sqlx::query_as("SELECT * FROM runs WHERE request_id = ?")
                .bind(id)
                .fetch_optional(&mut *transaction)
                .await?;
            if let Some(there) = there {
                return Ok(Created::Existing(there));
            }
        }
        sqlx::query(
            "INSERT INTO runs (id, sls, pillar_json, test, operator, request_id, low_json, status, current, \
             cancelled_by, created, changed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
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
        .bind(run.created)
        .bind(run.changed)
        .execute(&mut *transaction)
        .await?;
        for step in steps {
            write_step(&mut *transaction, step).await?;
        }
        transaction.commit().await?;
        Ok(Created::New)
    }

    pub(super) async fn get_run(&self, id: &JobId) -> Outcome<Option<Run>> {
        Ok(sqlx::query_as("SELECT * FROM runs WHERE id = ?")
            .bind(id.as_str())
            .fetch_optional(&self.reader)
            .await?)
    }

    pub(super) async fn get_runs(&self, limit: u32) -> Outcome<Vec<Run>> {
        Ok(
            sqlx::query_as("SELECT * FROM runs ORDER BY id DESC LIMIT ?")
                .bind(limit)
                .fetch_all(&self.reader)
                .await?,
        )
    }

    pub(super) async fn get_runs_of(&self, sls: &str, since: Millis) -> Outcome<Vec<Run>> {
        Ok(
            sqlx::query_as("SELECT * FROM runs WHERE sls = ? AND created >= ? ORDER BY id DESC")
                .bind(sls)
                .bind(since)
                .fetch_all(&self.reader)
                .await?,
        )
    }

    pub(super) async fn get_oldest(&self) -> Outcome<Option<Millis>> {
        // Ids sort by age. The times themselves have no index.
        Ok(sqlx::query_scalar(
            "SELECT MIN(created) FROM (SELECT * FROM (SELECT created FROM runs ORDER BY id LIMIT 1) \
             UNION ALL SELECT * FROM (SELECT created FROM jobs ORDER BY jid LIMIT 1))",
        )
        .fetch_one(&self.reader)
        .await?)
    }

    pub(super) async fn get_open_runs(&self) -> Outcome<Vec<Run>> {
        Ok(
            sqlx::query_as("SELECT * FROM runs WHERE status = 'running' ORDER BY id")
                .fetch_all(&self.reader)
                .await?,
        )
    }

    pub(super) async fn set_run(
        &self,
        id: &JobId,
        status: RunStatus,
        current: u32,
        now: Millis,
    ) -> Outcome<()> {
        sqlx::query("UPDATE runs SET status = ?, current = ?, changed = ? WHERE id = ?")
            .bind(status.as_str())
            .bind(current)
            .bind(now)
            .bind(id.as_str())
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    pub(super) async fn set_cancelled(
        &self,
        id: &JobId,
        operator: &str,
        now: Millis,
    ) -> Outcome<bool> {
        let done = sqlx::query(
            "UPDATE runs SET cancelled_by = coalesce(cancelled_by, ?), changed = ? WHERE id = ? AND status = 'running'",
        )
        .bind(operator)
        .bind(now)
        .bind(id.as_str())
        .execute(&self.writer)
        .await?;
        Ok(done.rows_affected() > 0)
    }

    pub(super) async fn set_step(&self, step: &Step) -> Outcome<()> {
        write_step(&self.writer, step).await
    }

    pub(super) async fn get_steps(&self, run: &JobId) -> Outcome<Vec<Step>> {
        Ok(
            sqlx::query_as("SELECT * FROM steps WHERE run = ? ORDER BY position")
                .bind(run.as_str())
                .fetch_all(&self.reader)
                .await?,
        )
    }

    pub(super) async fn set_lock(
        &self,
        name: &str,
        run: &JobId,
        now: Millis,
    ) -> Outcome<Option<Run>> {
        let mut transaction = self.writer.begin().await?;
        let holder = sqlx::query_as(
            "SELECT runs.* FROM locks JOIN runs ON runs.id = locks.run \
             WHERE locks.name = ? AND locks.run <> ? AND runs.status = 'running'",
        )
        .bind(name)
        .bind(run.as_str())
        .fetch_optional(&mut *transaction)
        .await?;
        if holder.is_some() {
            return Ok(holder);
        }
        sqlx::query(
            "INSERT INTO locks (name, run, since) VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE \
             SET run = excluded.run, since = excluded.since WHERE run <> excluded.run",
        )
        .bind(name)
        .bind(run.as_str())
        .bind(now)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(None)
    }

    pub(super) async fn remove_lock(&self, name: &str, run: &JobId) -> Outcome<()> {
        sqlx::query("DELETE FROM locks WHERE name = ? AND run = ?")
            .bind(name)
            .bind(run.as_str())
            .execute(&self.writer)
            .await?;
        Ok(())
    }
}
