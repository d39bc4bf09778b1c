//! Jobs and their rows.

use halite_proto::ids::{JobId, MinionId};
use sqlx::SqliteConnection;

use super::Store;
use super::rows::json;
use crate::parts::{OpenPart, StoredPart};
use crate::records::{Job, JobRow, MinionBundle, StoredAnswer};
use crate::{Created, Millis, StoreError};

type Outcome<T> = Result<T, StoreError>;

pub(super) async fn write_return(
    to: &mut SqliteConnection,
    job_id: &JobId,
    minion: &MinionId,
    answer: &StoredAnswer,
) -> Outcome<bool> {
    let done = sqlx::query(
        "UPDATE job_rows SET state = 'returned', return_json = ?, retcode = ?, error = ?, ended = ? \
         WHERE jid = ? AND minion = ? AND state <> 'returned'",
    )
    .bind(&answer.return_json)
    .bind(answer.retcode)
    .bind(&answer.error)
    .bind(answer.when)
    .bind(job_id.as_str())
    .bind(minion.as_str())
    .execute(&mut *to)
    .await?;
    let first = done.rows_affected() > 0;
    if first {
        // For a late answer, update the job's return code.
        sqlx::query(
            "UPDATE jobs SET retcode = EXISTS ( \
               SELECT 1 FROM job_rows WHERE job_rows.jid = jobs.jid AND (state <> 'returned' OR retcode <> 0)) \
             WHERE jid = ? AND status = 'finished'",
        )
        .bind(job_id.as_str())
        .execute(&mut *to)
        .await?;
    }
    if first && answer.retcode == 0 {
        note_highstate(to, job_id, minion).await?;
    }
    Ok(first)
}

/// Finishes a job once all answers have arrived.
pub(super) async fn finish_job(
    to: &mut SqliteConnection,
    job_id: &JobId,
    now: Millis,
) -> Outcome<()> {
    sqlx::query(
        "UPDATE jobs SET status = 'finished', finished = ?, retcode = EXISTS ( \
           SELECT 1 FROM job_rows WHERE job_rows.jid = jobs.jid AND (state <> 'returned' OR retcode <> 0)) \
         WHERE jid = ? AND status = 'running' AND NOT EXISTS ( \
           SELECT 1 FROM job_rows WHERE job_rows.jid = jobs.jid AND state IN ('queued', 'sent', 'started'))",
    )
    .bind(now)
    .bind(job_id.as_str())
    .execute(to)
    .await?;
    Ok(())
}

/// A successful highstate leaves nothing of the previous bundles on the minion.
async fn note_highstate(
    to: &mut SqliteConnection,
    job_id: &JobId,
    minion: &MinionId,
) -> Outcome<()> {
    let bundle: Option<Option<String>> = sqlx::query_scalar(
        "SELECT coalesce(job_rows.bundle, jobs.bundle) FROM jobs JOIN job_rows ON job_rows.jid = jobs.jid \
         WHERE jobs.jid = ? AND minion = ? AND function = 'state.highstate' AND test = 0",
    )
    .bind(job_id.as_str())
    .bind(minion.as_str())
    .fetch_optional(&mut *to)
    .await?;
    let Some(bundle) = bundle.flatten() else {
        return Ok(());
    };
    sqlx::query("DELETE FROM minion_bundles WHERE minion = ? AND jid < ?")
        .bind(minion.as_str())
        .bind(job_id.as_str())
        .execute(&mut *to)
        .await?;
    // A highstate that expired may be answered after its successor.
    sqlx::query(
        "UPDATE minion_bundles SET highstate = ?1 \
         WHERE minion = ?2 AND bundle = ?3 AND coalesce(highstate, '') < ?1",
    )
    .bind(job_id.as_str())
    .bind(minion.as_str())
    .bind(bundle)
    .execute(to)
    .await?;
    Ok(())
}

impl Store {
    /// Stores a job and its rows in one transaction, before anything is sent. If the request id
    /// exists already, nothing is stored and the job with that id is returned.
    pub async fn create_job(&self, job: &Job, rows: &[JobRow]) -> Outcome<Created<Job>> {
        let mut write = self.writer.begin().await?;
        if let Some(id) = &job.request_id {
            let there = sqlx::query_as("SELECT * FROM jobs WHERE request_id = ?")
                .bind(id)
                .fetch_optional(&mut *write)
                .await?;
            if let Some(there) = there {
                write.commit().await?;
                return Ok(Created::Existing(there));
            }
        }
        sqlx::query(
            "INSERT INTO jobs (jid, function, args_json, test, operator, target, minions, created, deadline, request_id, \
             status, retcode, finished, bundle, minion_order, boot, boot_deadline) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(job.job_id.as_str())
        .bind(&job.function)
        .bind(&job.args_json)
        .bind(job.test)
        .bind(&job.operator)
        .bind(&job.target)
        .bind(json(&job.minions)?)
        .bind(job.created)
        .bind(job.deadline)
        .bind(&job.request_id)
        .bind(job.status.as_str())
        .bind(job.retcode)
        .bind(job.finished)
        .bind(job.bundle.as_deref())
        .bind(json(&job.order)?)
        .bind(job.steady_deadline.as_ref().map(|known| &known.boot))
        .bind(job.steady_deadline.as_ref().map(|known| known.millis))
        .execute(&mut *write)
        .await?;
        for row in rows {
            sqlx::query(
                "INSERT INTO job_rows (jid, minion, state, return_json, retcode, error, sent, started, ended, bundle) \
                 VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            )
            .bind(row.job_id.as_str())
            .bind(row.minion.as_str())
            .bind(row.state.as_str())
            .bind(&row.return_json)
            .bind(row.retcode)
            .bind(&row.error)
            .bind(row.sent)
            .bind(row.started)
            .bind(row.ended)
            .bind(row.bundle.as_deref())
            .execute(&mut *write)
            .await?;
            if let Some(low_json) = &row.low_json {
                sqlx::query("INSERT INTO low_states (jid, minion, low_json) VALUES (?, ?, ?)")
                    .bind(row.job_id.as_str())
                    .bind(row.minion.as_str())
                    .bind(low_json)
                    .execute(&mut *write)
                    .await?;
            }
            let bundle = row.bundle.as_ref().or(job.bundle.as_ref());
            if let Some(bundle) = bundle.filter(|_| !job.test) {
                sqlx::query(
                    "INSERT INTO minion_bundles (minion, bundle, jid) VALUES (?, ?, ?) \
                     ON CONFLICT (minion, bundle) DO UPDATE SET jid = max(jid, excluded.jid)",
                )
                .bind(row.minion.as_str())
                .bind(bundle.as_str())
                .bind(job.job_id.as_str())
                .execute(&mut *write)
                .await?;
            }
        }
        write.commit().await?;
        Ok(Created::New)
    }

    /// A job.
    pub async fn job(&self, job_id: &JobId) -> Outcome<Option<Job>> {
        Ok(sqlx::query_as("SELECT * FROM jobs WHERE jid = ?")
            .bind(job_id.as_str())
            .fetch_optional(&self.reader)
            .await?)
    }

    /// The newest jobs first, at most `limit`.
    pub async fn jobs(&self, limit: u32) -> Outcome<Vec<Job>> {
        Ok(
            sqlx::query_as("SELECT * FROM jobs ORDER BY jid DESC LIMIT ?")
                .bind(limit)
                .fetch_all(&self.reader)
                .await?,
        )
    }

    /// Jobs that are not finished, oldest first, which a restarted master resumes.
    pub async fn open_jobs(&self) -> Outcome<Vec<Job>> {
        Ok(
            sqlx::query_as("SELECT * FROM jobs WHERE status = 'running' ORDER BY jid")
                .fetch_all(&self.reader)
                .await?,
        )
    }

    /// A job's parts, by minion.
    pub async fn parts(&self, job_id: &JobId) -> Outcome<Vec<StoredPart>> {
        Ok(sqlx::query_as(
            "SELECT minion, state, retcode, error, ended FROM job_rows WHERE jid = ? ORDER BY minion",
        )
        .bind(job_id.as_str())
        .fetch_all(&self.reader)
        .await?)
    }

    /// A job's rows of these minions, sorted by minion, with their returns; their low states are
    /// not read.
    pub async fn returns(&self, job_id: &JobId, of: &[MinionId]) -> Outcome<Vec<JobRow>> {
        Ok(sqlx::query_as(
            "SELECT jid, minion, NULL AS low_json, state, return_json, retcode, error, sent, started, ended, bundle \
             FROM job_rows WHERE jid = ? AND minion IN (SELECT value FROM json_each(?)) ORDER BY minion",
        )
        .bind(job_id.as_str())
        .bind(json(of)?)
        .fetch_all(&self.reader)
        .await?)
    }

    /// One row.
    pub async fn row(&self, job_id: &JobId, minion: &MinionId) -> Outcome<Option<JobRow>> {
        Ok(sqlx::query_as(
            "SELECT job_rows.jid, job_rows.minion, coalesce(low_states.low_json, job_rows.low_json) AS low_json, \
             state, return_json, retcode, error, sent, started, ended, bundle \
             FROM job_rows LEFT JOIN low_states USING (jid, minion) \
             WHERE job_rows.jid = ? AND job_rows.minion = ?",
        )
        .bind(job_id.as_str())
        .bind(minion.as_str())
        .fetch_optional(&self.reader)
        .await?)
    }

    /// One part of a job.
    pub async fn part(&self, job_id: &JobId, minion: &MinionId) -> Outcome<Option<StoredPart>> {
        Ok(sqlx::query_as(
            "SELECT minion, state, retcode, error, ended FROM job_rows WHERE jid = ? AND minion = ?",
        )
        .bind(job_id.as_str())
        .bind(minion.as_str())
        .fetch_optional(&self.reader)
        .await?)
    }

    /// The parts of these minions that are queued, sent or started, oldest job first. They are sent
    /// again after a reconnect.
    pub async fn open_parts(&self, of: &[MinionId]) -> Outcome<Vec<OpenPart>> {
        Ok(sqlx::query_as(
            "SELECT jid, minion, state, low_json IS NOT NULL OR EXISTS ( \
               SELECT 1 FROM low_states WHERE low_states.jid = job_rows.jid AND low_states.minion = job_rows.minion \
             ) AS has_low_state FROM job_rows \
             WHERE minion IN (SELECT value FROM json_each(?)) AND state IN ('queued', 'sent', 'started') \
             ORDER BY jid, minion",
        )
        .bind(json(of)?)
        .fetch_all(&self.reader)
        .await?)
    }

    /// The bundles of which minions may have something, by minion and bundle: the bundle of a
    /// minion's last successful highstate, and each bundle from which a later job was made, from
    /// the moment in which that job is stored. Neither the age of a job nor the removal of a key
    /// removes an entry.
    pub async fn minion_bundles(&self) -> Outcome<Vec<MinionBundle>> {
        Ok(
            sqlx::query_as("SELECT * FROM minion_bundles ORDER BY minion, bundle")
                .fetch_all(&self.reader)
                .await?,
        )
    }

    /// Marks a job as finished, with its overall return code.
    pub async fn finish_job(&self, job_id: &JobId, retcode: i32, now: Millis) -> Outcome<()> {
        let mut write = self.writer.begin().await?;
        sqlx::query("UPDATE jobs SET status = 'finished', retcode = ?, finished = ? WHERE jid = ?")
            .bind(retcode)
            .bind(now)
            .bind(job_id.as_str())
            .execute(&mut *write)
            .await?;
        write.commit().await?;
        Ok(())
    }

    /// Removes finished jobs and ended runs, oldest first, at most `limit` of each; returns their
    /// number. These stay:
    ///
    /// - those that ended at `before` or later, and the last `keep` jobs and `keep_runs` runs
    ///   whatever their age;
    /// - those that have not ended, and the jobs of a run that has not ended;
    /// - paused runs, and the upgrades since the last one that has succeeded: they say what
    ///   continues, and what leads back;
    /// - a job of which an answer may still come: a part has not ended, or was sent and has timed
    ///   out while its minion is accepted.
    pub async fn prune_jobs(
        &self,
        before: Millis,
        keep: u32,
        keep_runs: u32,
        limit: u32,
    ) -> Outcome<u64> {
        let mut write = self.writer.begin().await?;
        // The rows and steps of a job or run are removed with it (ON DELETE CASCADE).
        let jobs = sqlx::query(
            "DELETE FROM jobs WHERE jid IN ( \
               SELECT jid FROM jobs AS old WHERE status = 'finished' AND finished < ? \
               AND jid NOT IN (SELECT jid FROM jobs ORDER BY jid DESC LIMIT ?) \
               AND NOT EXISTS (SELECT 1 FROM job_rows WHERE job_rows.jid = old.jid AND state <> 'returned' \
                 AND NOT (state = 'lost' AND (sent IS NULL AND started IS NULL \
                   OR minion NOT IN (SELECT id FROM keys WHERE keys.state = 'accepted')))) \
               AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.status = 'running' AND old.operator = 'run:' || runs.id) \
               ORDER BY jid LIMIT ?)",
        )
        .bind(before)
        .bind(keep)
        .bind(limit);
        let jobs = jobs.execute(&mut *write).await?.rows_affected();
        let runs = sqlx::query(
            "DELETE FROM runs WHERE id IN ( \
               SELECT id FROM runs WHERE status NOT IN ('running', 'paused') AND changed < ? \
               AND NOT (sls = 'halite.orchestrate.upgrade' AND test = 0 AND id >= coalesce(( \
                 SELECT max(id) FROM runs WHERE sls = 'halite.orchestrate.upgrade' AND test = 0 \
                 AND status = 'succeeded'), '')) \
               AND id NOT IN (SELECT id FROM runs ORDER BY id DESC LIMIT ?) ORDER BY id LIMIT ?)",
        )
        .bind(before)
        .bind(keep_runs)
        .bind(limit);
        let runs = runs.execute(&mut *write).await?.rows_affected();
        write.commit().await?;
        Ok(jobs + runs)
    }
}
