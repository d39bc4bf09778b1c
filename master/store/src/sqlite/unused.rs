//! Removal of data that no record needs any more.

use std::sync::atomic::Ordering;

use sqlx::Row as _;

use super::Store;
use crate::{Millis, StoreError};

const DAY: Millis = 24 * 60 * 60 * 1000;
/// Retention of a rendered file that no open job names: the next job often names it again.
const FILES: Millis = 7 * DAY;
/// Retention of a low state after its part has ended, for operators who inspect it.
const LOW_STATES: Millis = DAY;
/// Retention of a certificate that has a successor, for the record.
const CERTIFICATES: Millis = 90 * DAY;
/// Retention of a token that admits no host, for the record.
const TOKENS: Millis = 30 * DAY;

/// The statements; their parameters are the cutoff time, the current time and a limit.
const STATEMENTS: [(Millis, &str); 4] = [
    (
        FILES,
        "DELETE FROM blobs WHERE sha256 IN ( \
           SELECT sha256 FROM blobs WHERE used < ?1 AND ?2 > 0 AND NOT EXISTS ( \
             SELECT 1 FROM job_rows LEFT JOIN low_states USING (jid, minion) \
             WHERE job_rows.state IN ('queued', 'sent', 'started') \
             AND instr(coalesce(low_states.low_json, job_rows.low_json), blobs.sha256)) LIMIT ?3)",
    ),
    (
        LOW_STATES,
        // CROSS JOIN: SQLite reads the few low states first, and not the parts of all jobs.
        "DELETE FROM low_states WHERE rowid IN ( \
           SELECT low_states.rowid FROM low_states CROSS JOIN job_rows USING (jid, minion) \
           WHERE ended < ?1 AND ?2 > 0 AND state IN ('returned', 'lost') LIMIT ?3)",
    ),
    (
        CERTIFICATES,
        "DELETE FROM certificates WHERE rowid IN ( \
           SELECT rowid FROM certificates AS old WHERE not_after < ?2 OR (created < ?1 AND EXISTS ( \
             SELECT 1 FROM certificates AS newer WHERE newer.ca = old.ca AND newer.owner = old.owner \
             AND NOT (old.tag = 'kubeconfig' AND old.owner LIKE 'operator:%') \
             AND newer.tag = old.tag AND newer.subject = old.subject AND newer.created > old.created)) \
           LIMIT ?3)",
    ),
    (
        TOKENS,
        "DELETE FROM tokens WHERE id IN ( \
           SELECT id FROM tokens WHERE (expires < ?1 OR (uses_left = 0 AND created < ?1)) AND ?2 > 0 \
           LIMIT ?3)",
    ),
];

/// Like the statement for [`LOW_STATES`], for the rows of earlier versions. It reads all rows.
const INLINE: &str = "UPDATE job_rows SET low_json = NULL WHERE rowid IN ( \
    SELECT rowid FROM job_rows WHERE low_json IS NOT NULL AND ended < ? \
    AND state IN ('returned', 'lost') LIMIT ?)";

impl Store {
    /// Removes data that no record needs any more, at most `limit` items of each kind; returns
    /// their number. These are removed:
    ///
    /// - rendered files that no open part of a job names and no job has named for a week;
    /// - low states a day after their part has ended;
    /// - certificates that have expired, and replaced ones after 90 days;
    /// - tokens 30 days after they have expired or were used up.
    pub async fn prune_unused(&self, now: Millis, limit: u32) -> Result<u64, StoreError> {
        let mut removed = 0;
        for (age, statement) in STATEMENTS {
            let mut write = self.writer.begin().await?;
            let done = sqlx::query(statement)
                .bind(now - age)
                .bind(now)
                .bind(limit)
                .execute(&mut *write)
                .await?;
            removed += done.rows_affected();
            write.commit().await?;
        }
        Ok(removed + self.prune_inline(now - LOW_STATES, limit).await?)
    }

    /// Removes low states from rows of an earlier version, until no row has one.
    async fn prune_inline(&self, before: Millis, limit: u32) -> Result<u64, StoreError> {
        if !self.has_inline_low_states.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let mut write = self.writer.begin().await?;
        let removed = sqlx::query(INLINE)
            .bind(before)
            .bind(limit)
            .execute(&mut *write)
            .await?
            .rows_affected();
        write.commit().await?;
        if removed == 0 {
            let any = "SELECT EXISTS (SELECT 1 FROM job_rows WHERE low_json IS NOT NULL)";
            let left: bool = sqlx::query_scalar(any).fetch_one(&self.reader).await?;
            self.has_inline_low_states.store(left, Ordering::Relaxed);
        }
        Ok(removed)
    }

    /// The bytes that the records take. Removed records do not shrink the file; new records reuse
    /// their space.
    pub async fn size(&self) -> Result<u64, StoreError> {
        let row = sqlx::query(
            "SELECT (page_count - freelist_count) * page_size \
             FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
        )
        .fetch_one(&self.reader)
        .await?;
        let bytes: i64 = row.try_get(0)?;
        Ok(bytes.unsigned_abs())
    }
}
