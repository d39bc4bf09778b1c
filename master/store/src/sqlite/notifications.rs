//! The knowledge of the receivers of notifications.

use super::Store;
use crate::StoreError;

impl Store {
    /// Stores the ledger of the notifications in the place of the previous one. The store does not
    /// interpret the text.
    pub async fn put_notifications(&self, ledger: &str) -> Result<(), StoreError> {
        let mut write = self.writer.begin().await?;
        sqlx::query("INSERT OR REPLACE INTO notifications (id, ledger) VALUES (1, ?)")
            .bind(ledger)
            .execute(&mut *write)
            .await?;
        write.commit().await
    }

    /// The stored ledger of the notifications.
    pub async fn notifications(&self) -> Result<Option<String>, StoreError> {
        Ok(sqlx::query_scalar("SELECT ledger FROM notifications")
            .fetch_optional(&self.reader)
            .await?)
    }
}
