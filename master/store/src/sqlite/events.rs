//! Events, audit, facts, blobs.

use std::collections::BTreeMap;

use halite_proto::ids::MinionId;
use sqlx::{Row as _, SqliteConnection};

use super::Store;
use crate::records::{Audit, AuditFilter, Event, Facts};
use crate::{AUDIT_TARGET, Millis, StoreError};

type Outcome<T> = Result<T, StoreError>;

/// Bytes of new files after which another commit starts: a standby must receive each commit within
/// seconds.
const MOST_IN_A_COMMIT: usize = 4 << 20;

/// Stores a minion's report about itself. Unlike a new row with the same key, an equal report in
/// place of the old one changes only the page with the time.
pub(super) async fn write_facts(to: &mut SqliteConnection, facts: &Facts) -> Outcome<()> {
    sqlx::query(
        "INSERT INTO facts (minion, grains_json, version, last_seen) VALUES (?, ?, ?, ?) \
         ON CONFLICT (minion) DO UPDATE SET grains_json = excluded.grains_json, version = excluded.version, \
         last_seen = excluded.last_seen",
    )
    .bind(facts.minion.as_str())
    .bind(&facts.grains_json)
    .bind(&facts.version)
    .bind(facts.last_seen)
    .execute(to)
    .await?;
    Ok(())
}

/// Sets the time of a minion's last message.
pub(super) async fn write_last_seen(
    to: &mut SqliteConnection,
    minion: &MinionId,
    now: Millis,
) -> Outcome<()> {
    sqlx::query("UPDATE facts SET last_seen = ? WHERE minion = ?")
        .bind(now)
        .bind(minion.as_str())
        .execute(to)
        .await?;
    Ok(())
}

/// Stores a file, or renews its retention; returns the number of bytes that are new.
async fn write_blob(
    to: &mut SqliteConnection,
    sha256: &str,
    content: &[u8],
    now: Millis,
) -> Outcome<usize> {
    let known = sqlx::query("UPDATE blobs SET used = ? WHERE sha256 = ?")
        .bind(now)
        .bind(sha256)
        .execute(&mut *to)
        .await?;
    if known.rows_affected() > 0 {
        return Ok(0);
    }
    sqlx::query("INSERT INTO blobs (sha256, content, used) VALUES (?, ?, ?)")
        .bind(sha256)
        .bind(content)
        .bind(now)
        .execute(to)
        .await?;
    Ok(content.len())
}

impl Store {
    /// Appends an event; its `seq` is ignored, and the new one returned. Sequence numbers only
    /// grow.
    pub async fn append_event(&self, event: &Event) -> Outcome<i64> {
        let mut write = self.writer.begin().await?;
        let done = sqlx::query(
            "INSERT INTO events (tag, time, data_json, last, retcode) VALUES (?, ?, ?, ?, ?)",
        )
        .bind(&event.tag)
        .bind(event.time)
        .bind(&event.data_json)
        .bind(event.last)
        .bind(event.retcode)
        .execute(&mut *write)
        .await?;
        write.commit().await?;
        Ok(done.last_insert_rowid())
    }

    /// The sequence number of the last event ever appended; 0 before the first. A store that was
    /// restored from a backup may know a lower one than its readers.
    pub async fn last_event(&self) -> Outcome<i64> {
        let row = sqlx::query("SELECT seq FROM sqlite_sequence WHERE name = 'events'")
            .fetch_optional(&self.reader)
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?.unwrap_or(0))
    }

    /// Events with a sequence number above `after` whose tag starts with `prefix`, oldest first, at
    /// most `limit`.
    pub async fn events(&self, prefix: &str, after: i64, limit: u32) -> Outcome<Vec<Event>> {
        // Compared as text, not with LIKE or GLOB: a prefix may contain their wildcards.
        Ok(sqlx::query_as(
            "SELECT * FROM events WHERE seq > ? AND substr(tag, 1, length(?)) = ? ORDER BY seq LIMIT ?",
        )
        .bind(after)
        .bind(prefix)
        .bind(prefix)
        .bind(limit)
        .fetch_all(&self.reader)
        .await?)
    }

    /// Removes events and audit lines older than `before`; returns their number.
    pub async fn prune(&self, before: Millis) -> Outcome<u64> {
        let mut write = self.writer.begin().await?;
        let events = sqlx::query("DELETE FROM events WHERE time < ?").bind(before);
        let events = events.execute(&mut *write).await?.rows_affected();
        let audit = sqlx::query("DELETE FROM audit WHERE time < ?").bind(before);
        let audit = audit.execute(&mut *write).await?.rows_affected();
        write.commit().await?;
        Ok(events + audit)
    }

    /// Appends an audit line, and logs it: the log has it even if the store is full.
    pub async fn append_audit(&self, line: &Audit) -> Outcome<()> {
        let time = jiff::Timestamp::from_millisecond(line.time);
        tracing::info!(
            target: AUDIT_TARGET,
            time = time.map_or_else(|_| line.time.to_string(), |time| format!("{time:.3}")),
            who = line.who,
            action = line.method,
            what = line.what,
            outcome = line.outcome,
        );
        let mut write = self.writer.begin().await?;
        sqlx::query("INSERT INTO audit (time, who, method, what, outcome) VALUES (?, ?, ?, ?, ?)")
            .bind(line.time)
            .bind(&line.who)
            .bind(&line.method)
            .bind(&line.what)
            .bind(&line.outcome)
            .execute(&mut *write)
            .await?;
        write.commit().await?;
        Ok(())
    }

    /// Audit lines, the newest first.
    pub async fn audit(&self, filter: &AuditFilter) -> Outcome<Vec<Audit>> {
        Ok(sqlx::query_as(
            "SELECT * FROM audit WHERE (?1 IS NULL OR time >= ?1) AND (?2 IS NULL OR time < ?2) \
             AND (?3 IS NULL OR who = ?3) AND (?4 IS NULL OR method = ?4) ORDER BY seq DESC LIMIT ?5",
        )
        .bind(filter.since)
        .bind(filter.until)
        .bind(&filter.who)
        .bind(&filter.method)
        .bind(filter.limit)
        .fetch_all(&self.reader)
        .await?)
    }

    /// A minion's last report about itself.
    pub async fn facts(&self, minion: &MinionId) -> Outcome<Option<Facts>> {
        Ok(sqlx::query_as("SELECT * FROM facts WHERE minion = ?")
            .bind(minion.as_str())
            .fetch_optional(&self.reader)
            .await?)
    }

    /// All facts, by minion.
    pub async fn all_facts(&self) -> Outcome<Vec<Facts>> {
        Ok(sqlx::query_as("SELECT * FROM facts ORDER BY minion")
            .fetch_all(&self.reader)
            .await?)
    }

    /// Stores a rendered file like [`Store::put_blobs`].
    pub async fn put_blob(&self, sha256: &str, content: &[u8], now: Millis) -> Outcome<()> {
        let mut write = self.writer.begin().await?;
        write_blob(&mut write, sha256, content, now).await?;
        write.commit().await
    }

    /// Stores rendered files under the SHA-256 (hex) of their content, or renews their retention,
    /// so that a stored job can be sent again. They share one commit, unless they are large.
    pub async fn put_blobs(&self, blobs: &BTreeMap<String, Vec<u8>>, now: Millis) -> Outcome<()> {
        let mut blobs = blobs.iter().peekable();
        while blobs.peek().is_some() {
            let mut write = self.writer.begin().await?;
            let mut bytes = 0;
            while let Some((sha256, content)) = blobs.next_if(|_| bytes < MOST_IN_A_COMMIT) {
                bytes += write_blob(&mut write, sha256, content, now).await?;
            }
            write.commit().await?;
        }
        Ok(())
    }

    /// A stored file.
    pub async fn blob(&self, sha256: &str) -> Outcome<Option<Vec<u8>>> {
        let row = sqlx::query("SELECT content FROM blobs WHERE sha256 = ?")
            .bind(sha256)
            .fetch_optional(&self.reader)
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }
}
