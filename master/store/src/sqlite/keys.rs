//! Keys, tokens, certificates.

use halite_proto::ids::MinionId;
use sqlx::SqliteConnection;

use super::Store;
use super::rows::json;
use super::turns::next_turn;
use crate::records::{Certificate, KUBECONFIG, Revocation, StoredKey, Token};
use crate::{Millis, StoreError};

type Outcome<T> = Result<T, StoreError>;

async fn write_key(to: &mut SqliteConnection, key: &StoredKey) -> Outcome<()> {
    let turn = next_turn(to).await?;
    sqlx::query(
        "INSERT OR REPLACE INTO keys \
         (id, state, fingerprint, csr_pem, serial, certificate_pem, roles, grains_json, token, created, changed, \
         first_turn, last_turn) \
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, \
         coalesce((SELECT first_turn FROM keys WHERE id = ?1), ?12), ?12)",
    )
    .bind(key.id.as_str())
    .bind(key.state.as_str())
    .bind(&key.fingerprint)
    .bind(&key.csr_pem)
    .bind(&key.serial)
    .bind(&key.certificate_pem)
    .bind(json(&key.roles)?)
    .bind(&key.grains_json)
    .bind(&key.token)
    .bind(key.created)
    .bind(key.changed)
    .bind(turn)
    .execute(to)
    .await?;
    Ok(())
}

impl Store {
    /// The key of a minion id, in any state.
    pub async fn key(&self, id: &MinionId) -> Outcome<Option<StoredKey>> {
        Ok(sqlx::query_as("SELECT * FROM keys WHERE id = ?")
            .bind(id.as_str())
            .fetch_optional(&self.reader)
            .await?)
    }

    /// All keys, by id.
    pub async fn keys(&self) -> Outcome<Vec<StoredKey>> {
        Ok(sqlx::query_as("SELECT * FROM keys ORDER BY id")
            .fetch_all(&self.reader)
            .await?)
    }

    /// Stores a key, replacing any key with the same id.
    pub async fn put_key(&self, key: &StoredKey) -> Outcome<()> {
        let before = self.key(&key.id).await?;
        self.note_keys(before.as_ref(), Some(key)).await?;
        let mut write = self.writer.begin().await?;
        write_key(&mut write, key).await?;
        write.commit().await?;
        Ok(())
    }

    /// Stores a key and takes one use of a token in one transaction. Returns `false`, with nothing
    /// stored, if the token is missing, used up or expired at `now`.
    pub async fn put_key_with_token(
        &self,
        key: &StoredKey,
        token: &str,
        now: Millis,
    ) -> Outcome<bool> {
        let before = self.key(&key.id).await?;
        let mut write = self.writer.begin().await?;
        let taken = sqlx::query(
            "UPDATE tokens SET uses_left = uses_left - 1 WHERE id = ? AND uses_left > 0 AND expires > ?",
        )
        .bind(token)
        .bind(now)
        .execute(&mut *write)
        .await?;
        if taken.rows_affected() != 1 {
            write.commit().await?;
            return Ok(false);
        }
        self.note_keys(before.as_ref(), Some(key)).await?;
        write_key(&mut write, key).await?;
        write.commit().await?;
        Ok(true)
    }

    /// Removes a key and its minion's facts; returns `false` if there was no key.
    pub async fn delete_key(&self, id: &MinionId) -> Outcome<bool> {
        let before = self.key(id).await?;
        self.note_keys(before.as_ref(), None).await?;
        let mut write = self.writer.begin().await?;
        sqlx::query("DELETE FROM facts WHERE minion = ?")
            .bind(id.as_str())
            .execute(&mut *write)
            .await?;
        let gone = sqlx::query("DELETE FROM keys WHERE id = ?")
            .bind(id.as_str())
            .execute(&mut *write)
            .await?;
        write.commit().await?;
        Ok(gone.rows_affected() > 0)
    }

    /// Stores a token.
    pub async fn put_token(&self, token: &Token) -> Outcome<()> {
        let mut write = self.writer.begin().await?;
        let turn = next_turn(&mut write).await?;
        sqlx::query(
            "INSERT OR REPLACE INTO tokens \
             (id, secret_sha256, expires, uses_left, roles, bound_id, created, operator, turn) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(&token.id)
        .bind(&token.secret_sha256)
        .bind(token.expires)
        .bind(token.uses_left)
        .bind(json(&token.roles)?)
        .bind(token.bound_id.as_deref())
        .bind(token.created)
        .bind(&token.operator)
        .bind(turn)
        .execute(&mut *write)
        .await?;
        write.commit().await?;
        Ok(())
    }

    /// A token by its public id.
    pub async fn token(&self, id: &str) -> Outcome<Option<Token>> {
        Ok(sqlx::query_as("SELECT * FROM tokens WHERE id = ?")
            .bind(id)
            .fetch_optional(&self.reader)
            .await?)
    }

    /// All tokens, newest first.
    pub async fn tokens(&self) -> Outcome<Vec<Token>> {
        Ok(
            sqlx::query_as("SELECT * FROM tokens ORDER BY created DESC, id")
                .fetch_all(&self.reader)
                .await?,
        )
    }

    /// Removes a token; returns `false` if there was none.
    pub async fn delete_token(&self, id: &str) -> Outcome<bool> {
        let mut write = self.writer.begin().await?;
        let gone = sqlx::query("DELETE FROM tokens WHERE id = ?")
            .bind(id)
            .execute(&mut *write)
            .await?;
        write.commit().await?;
        Ok(gone.rows_affected() > 0)
    }

    /// Removes the named token, and all tokens with remaining uses that only this minion id may
    /// use; returns the ids of all removed tokens.
    pub async fn take_tokens(
        &self,
        minion: &MinionId,
        token: Option<&str>,
    ) -> Outcome<Vec<String>> {
        let mut write = self.writer.begin().await?;
        let taken = sqlx::query_scalar(
            "DELETE FROM tokens WHERE uses_left > 0 AND (bound_id = ? OR id = ?) RETURNING id",
        )
        .bind(minion.as_str())
        .bind(token)
        .fetch_all(&mut *write)
        .await?;
        write.commit().await?;
        Ok(taken)
    }

    /// Records an issued certificate.
    pub async fn put_certificate(&self, certificate: &Certificate) -> Outcome<()> {
        let mut write = self.writer.begin().await?;
        sqlx::query(
            "INSERT OR REPLACE INTO certificates (serial, ca, subject, owner, job, tag, created, not_after, pem) \
             VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(&certificate.serial)
        .bind(&certificate.ca)
        .bind(&certificate.subject)
        .bind(&certificate.owner)
        .bind(certificate.job.as_deref().unwrap_or_default())
        .bind(&certificate.tag)
        .bind(certificate.created)
        .bind(certificate.not_after)
        .bind(&certificate.pem)
        .execute(&mut *write)
        .await?;
        write.commit().await?;
        Ok(())
    }

    /// The certificates of operators with the tag [`KUBECONFIG`], newest first.
    pub async fn kubeconfigs(&self) -> Outcome<Vec<Certificate>> {
        Ok(sqlx::query_as(
            "SELECT * FROM certificates WHERE tag = ? AND owner LIKE 'operator:%' ORDER BY created DESC, serial",
        )
        .bind(KUBECONFIG)
        .fetch_all(&self.reader)
        .await?)
    }

    /// The certificate that a CA has signed last for an owner, whatever the clock said.
    pub async fn newest_certificate(&self, ca: &str, owner: &str) -> Outcome<Option<Certificate>> {
        Ok(sqlx::query_as(
            "SELECT * FROM certificates WHERE ca = ? AND owner = ? ORDER BY rowid DESC LIMIT 1",
        )
        .bind(ca)
        .bind(owner)
        .fetch_optional(&self.reader)
        .await?)
    }

    /// The issued certificates, newest first, at most `limit`.
    pub async fn certificates(&self, limit: u32) -> Outcome<Vec<Certificate>> {
        Ok(
            sqlx::query_as("SELECT * FROM certificates ORDER BY created DESC, serial LIMIT ?")
                .bind(limit)
                .fetch_all(&self.reader)
                .await?,
        )
    }

    /// Marks a serial number as revoked; does nothing if it already is.
    pub async fn revoke(&self, revocation: &Revocation) -> Outcome<()> {
        self.note_certificate(&revocation.serial).await?;
        let mut write = self.writer.begin().await?;
        sqlx::query(
            "INSERT OR IGNORE INTO revocations (serial, owner, time, reason) VALUES (?, ?, ?, ?)",
        )
        .bind(&revocation.serial)
        .bind(&revocation.owner)
        .bind(revocation.when)
        .bind(&revocation.reason)
        .execute(&mut *write)
        .await?;
        write.commit().await?;
        Ok(())
    }

    /// All revocations.
    pub async fn revocations(&self) -> Outcome<Vec<Revocation>> {
        Ok(
            sqlx::query_as("SELECT * FROM revocations ORDER BY time, serial")
                .fetch_all(&self.reader)
                .await?,
        )
    }
}
