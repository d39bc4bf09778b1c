//! Keys, tokens, certificates.

use halite_proto::ids::MinionId;
use sqlx::SqliteConnection;

use super::SqliteStore;
use super::rows::json;
use super::turns::next_turn;
use crate::store::records::{Certificate, KUBECONFIG, Key, Revocation, Token};
use crate::store::{Millis, StoreError};

type Outcome<T> = Result<T, StoreError>;

async fn write_key(to: &mut SqliteConnection, key: &Key) -> Outcome<()> {
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

impl SqliteStore {
    pub(super) async fn get_key(&self, id: &MinionId) -> Outcome<Option<Key>> {
        Ok(sqlx::query_as("SELECT * FROM keys WHERE id = ?")
            .bind(id.as_str())
            .fetch_optional(&self.reader)
            .await?)
    }

    pub(super) async fn get_keys(&self) -> Outcome<Vec<Key>> {
        Ok(sqlx::query_as("SELECT * FROM keys ORDER BY id")
            .fetch_all(&self.reader)
            .await?)
    }

    pub(super) async fn set_key(&self, key: &Key) -> Outcome<()> {
        let before = self.get_key(&key.id).await?;
        self.note_keys(before.as_ref(), Some(key)).await?;
        let mut transaction = self.writer.begin().await?;
        write_key(&mut transaction, key).await?;
        transaction.commit().await?;
        Ok(())
    }

    pub(super) async fn set_key_with_token(
        &self,
        key: &Key,
        token: &str,
        now: Millis,
    ) -> Outcome<bool> {
        let before = self.get_key(&key.id).await?;
        let mut transaction = self.writer.begin().await?;
        let taken = sqlx::query(
            "UPDATE tokens SET uses_left = uses_left - 1 WHERE id = ? AND uses_left > 0 AND expires > ?",
        )
        .bind(token)
        .bind(now)
        .execute(&mut *transaction)
        .await?;
        if taken.rows_affected() != 1 {
            return Ok(false);
        }
        self.note_keys(before.as_ref(), Some(key)).await?;
        write_key(&mut transaction, key).await?;
        transaction.commit().await?;
        Ok(true)
    }

    pub(super) async fn remove_key(&self, id: &MinionId) -> Outcome<bool> {
        let before = self.get_key(id).await?;
        self.note_keys(before.as_ref(), None).await?;
        let mut transaction = self.writer.begin().await?;
        sqlx::query("DELETE FROM facts WHERE minion = ?")
            .bind(id.as_str())
            .execute(&mut *transaction)
            .await?;
        let gone = sqlx::query("DELETE FROM keys WHERE id = ?")
            .bind(id.as_str())
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(gone.rows_affected() > 0)
    }

    pub(super) async fn set_token(&self, token: &Token) -> Outcome<()> {
        let mut transaction = self.writer.begin().await?;
        let turn = next_turn(&mut transaction).await?;
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
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(())
    }

    pub(super) async fn get_token(&self, id: &str) -> Outcome<Option<Token>> {
        Ok(sqlx::query_as("SELECT * FROM tokens WHERE id = ?")
            .bind(id)
            .fetch_optional(&self.reader)
            .await?)
    }

    pub(super) async fn get_tokens(&self) -> Outcome<Vec<Token>> {
        Ok(
            sqlx::query_as("SELECT * FROM tokens ORDER BY created DESC, id")
                .fetch_all(&self.reader)
                .await?,
        )
    }

    pub(super) async fn remove_token(&self, id: &str) -> Outcome<bool> {
        let gone = sqlx::query("DELETE FROM tokens WHERE id = ?")
            .bind(id)
            .execute(&self.writer)
            .await?;
        Ok(gone.rows_affected() > 0)
    }

    pub(super) async fn remove_tokens(
        &self,
        minion: &MinionId,
        token: Option<&str>,
    ) -> Outcome<Vec<String>> {
        Ok(sqlx::query_scalar(
            "DELETE FROM tokens WHERE uses_left > 0 AND (bound_id = ? OR id = ?) RETURNING id",
        )
        .bind(minion.as_str())
        .bind(token)
        .fetch_all(&self.writer)
        .await?)
    }

    pub(super) async fn add_certificate(&self, certificate: &Certificate) -> Outcome<()> {
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
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    pub(super) async fn get_kubeconfigs(&self) -> Outcome<Vec<Certificate>> {
        Ok(sqlx::query_as(
            "SELECT * FROM certificates WHERE tag = ? AND owner LIKE 'operator:%' ORDER BY created DESC, serial",
        )
        .bind(KUBECONFIG)
        .fetch_all(&self.reader)
        .await?)
    }

    pub(super) async fn get_certificates(&self, limit: u32) -> Outcome<Vec<Certificate>> {
        Ok(
            sqlx::query_as("SELECT * FROM certificates ORDER BY created DESC, serial LIMIT ?")
                .bind(limit)
                .fetch_all(&self.reader)
                .await?,
        )
    }

    pub(super) async fn add_revocation(&self, revocation: &Revocation) -> Outcome<()> {
        self.note_certificate(&revocation.serial).await?;
        sqlx::query(
            "INSERT OR IGNORE INTO revocations (serial, owner, time, reason) VALUES (?, ?, ?, ?)",
        )
        .bind(&revocation.serial)
        .bind(&revocation.owner)
        .bind(revocation.when)
        .bind(&revocation.reason)
        .execute(&self.writer)
        .await?;
        Ok(())
    }

    pub(super) async fn get_revocations(&self) -> Outcome<Vec<Revocation>> {
        Ok(
            sqlx::query_as("SELECT * FROM revocations ORDER BY time, serial")
                .fetch_all(&self.reader)
                .await?,
        )
    }
}
