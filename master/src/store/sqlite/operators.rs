//! Operators.

use super::SqliteStore;
use crate::store::StoreError;
use crate::store::records::Operator;

type Outcome<T> = Result<T, StoreError>;

impl SqliteStore {
    pub(super) async fn get_operators(&self) -> Outcome<Vec<Operator>> {
        Ok(sqlx::query_as("SELECT * FROM operators ORDER BY name")
            .fetch_all(&self.reader)
            .await?)
    }

    pub(super) async fn set_operator(&self, operator: &Operator) -> Outcome<()> {
        let all = self.get_operators().await?;
        let before = all.iter().find(|other| other.name == operator.name);
        self.note_operator(before, operator).await?;
        sqlx::query(
            "INSERT OR REPLACE INTO operators (name, role, fingerprint, created, creator, expires, revoked) \
             VALUES (?, ?, ?, ?, ?, ?, ?)",
        )
        .bind(&operator.name)
        .bind(operator.role.as_str())
        .bind(&operator.fingerprint)
        .bind(operator.created)
        .bind(&operator.creator)
        .bind(operator.expires)
        .bind(operator.revoked)
        .execute(&self.writer)
        .await?;
        Ok(())
    }
}
