//! Events, audit, facts, blobs.

use halite_proto::ids::MinionId;
use sqlx::Row as _;

use super::SqliteStore;
use crate::store::records::{Audit, AuditFilter, Event, Facts};
use crate::store::{Millis, StoreError};

type Outcome<T> = Result<T, StoreError>;

impl SqliteStore {
    pub(super) async fn add_event(&self, event: &Event) -> Outcome<i64> {
        let done = sqlx::query(
            "INSERT INTO events (tag, time, data_json, last, retcode) VALUES (?, ?, ?, ?, ?)",
        )
        .bind(&event.tag)
        .bind(event.time)
        .bind(&event.data_json)
        .bind(event.last)
        .bind(event.retcode)
        .execute(&self.writer)
        .await?;
        Ok(done.last_insert_rowid())
    }

    pub(super) async fn get_events(
        &self,
        prefix: &str,
        after: i64,
        limit: u32,
    ) -> Outcome<Vec<Event>> {
        // Compared as text, not with LIKE or GLOB: a prefix may hold their wildcards.
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

    pub(super) async fn remove_old(&self, before: Millis) -> Outcome<u64> {
        let mut transaction = self.writer.begin().await?;
        let events = sqlx::query("DELETE FROM events WHERE time < ?").bind(before);
        let events = events.execute(&mut *transaction).await?.rows_affected();
        let audit = sqlx::query("DELETE FROM audit WHERE time < ?").bind(before);
        let audit = audit.execute(&mut *transaction).await?.rows_affected();
        transaction.commit().await?;
        Ok(events + audit)
    }

    pub(super) async fn add_audit(&self, line: &Audit) -> Outcome<()> {
        sqlx::query("INSERT INTO audit (time, who, method, what, outcome) VALUES (?, ?, ?, ?, ?)")
            .bind(line.time)
            .bind(&line.who)
            .bind(&line.method)
            .bind(&line.what)
            .bind(&line.outcome)
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    pub(super) async fn get_audit(&self, filter: &AuditFilter) -> Outcome<Vec<Audit>> {
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

    pub(super) async fn set_facts(&self, facts: &Facts) -> Outcome<()> {
        sqlx::query(
            "INSERT OR REPLACE INTO facts (minion, grains_json, version, last_seen) VALUES (?, ?, ?, ?)",
        )
        .bind(facts.minion.as_str())
        .bind(&facts.grains_json)
        .bind(&facts.version)
        .bind(facts.last_seen)
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    pub(super) async fn set_seen(&self, minion: &MinionId, now: Millis) -> Outcome<()> {
        sqlx::query("UPDATE facts SET last_seen = ? WHERE minion = ?")
            .bind(now)
            .bind(minion.as_str())
            .execute(&self.writer)
            .await?;
        Ok(())
    }

    pub(super) async fn get_facts(&self, minion: &MinionId) -> Outcome<Option<Facts>> {
        Ok(sqlx::query_as("SELECT * FROM facts WHERE minion = ?")
            .bind(minion.as_str())
            .fetch_optional(&self.reader)
            .await?)
    }

    pub(super) async fn get_all_facts(&self) -> Outcome<Vec<Facts>> {
        Ok(sqlx::query_as("SELECT * FROM facts ORDER BY minion")
            .fetch_all(&self.reader)
            .await?)
    }

    pub(super) async fn add_blob(&self, sha256: &str, content: &[u8], now: Millis) -> Outcome<()> {
        sqlx::query(
            "INSERT INTO blobs (sha256, content, used) VALUES (?, ?, ?) \
             ON CONFLICT (sha256) DO UPDATE SET used = excluded.used",
        )
        .bind(sha256)
        .bind(content)
        .bind(now)
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    pub(super) async fn get_blob(&self, sha256: &str) -> Outcome<Option<Vec<u8>>> {
        let row = sqlx::query("SELECT content FROM blobs WHERE sha256 = ?")
            .bind(sha256)
            .fetch_optional(&self.reader)
            .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }
}
