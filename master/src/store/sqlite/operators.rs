//! Operators.

use super::SqliteStore;
use super::turns::next_turn;
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
        let mut transaction = self.writer.begin().await?;
        let turn = next_turn(&mut transaction).await?;
        // A revocation is stored again with each change of its operator, and keeps its turn.
        sqlx::query(
            "INSERT OR REPLACE INTO operators (name, role, fingerprint, created, creator, expires, revoked, revoked_turn) \
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, iif(?7 IS NULL, NULL, \
             coalesce((SELECT revoked_turn FROM operators WHERE name = ?1), ?8)))",
        )
        .bind(&operator.name)
        .bind(operator.role.as_str())
        .bind(&operator.fingerprint)
        .bind(operator.created)
        .bind(&operator.creator)
        .bind(operator.expires)
        .bind(operator.revoked)
        .bind(turn)
        .execute(&mut *transaction)
        .await?;
        transaction.commit().await?;
        Ok(())
    }
}
