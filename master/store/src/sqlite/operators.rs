//! Operators.

use super::Store;
use super::turns::next_turn;
use crate::StoreError;
use crate::records::Operator;

type Outcome<T> = Result<T, StoreError>;

impl Store {
    /// All operators, by name.
    pub async fn operators(&self) -> Outcome<Vec<Operator>> {
        Ok(sqlx::query_as("SELECT * FROM operators ORDER BY name")
            .fetch_all(&self.reader)
            .await?)
    }

    /// Stores an operator, replacing any operator with the same name.
    pub async fn put_operator(&self, operator: &Operator) -> Outcome<()> {
        let all = self.operators().await?;
        let before = all.iter().find(|other| other.name == operator.name);
        self.note_operator(before, operator).await?;
        let mut write = self.writer.begin().await?;
        let turn = next_turn(&mut write).await?;
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
        .execute(&mut *write)
        .await?;
        write.commit().await?;
        Ok(())
    }
}
