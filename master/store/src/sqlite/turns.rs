//! The order of changes of keys, tokens and operators. Their times are for people: after a clock is
//! set back, later changes look earlier.

use halite_proto::ids::MinionId;
use sqlx::SqliteConnection;

use super::Store;
use crate::StoreError;

type Outcome<T> = Result<T, StoreError>;

/// The number of the next change, which is larger than all before it.
pub(super) async fn next_turn(store: &mut SqliteConnection) -> Outcome<i64> {
    let turn = sqlx::query_scalar("UPDATE turns SET last = last + 1 RETURNING last");
    Ok(turn.fetch_one(store).await?)
}

impl Store {
    /// Returns whether a token was made after the last change of a minion's key, whatever the clock
    /// said.
    pub async fn is_token_newer(&self, token: &str, key: &MinionId) -> Outcome<bool> {
        let later = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM tokens, keys \
             WHERE tokens.id = ? AND keys.id = ? AND tokens.turn > keys.last_turn)",
        );
        let later = later.bind(token).bind(key.as_str());
        Ok(later.fetch_one(&self.reader).await?)
    }

    /// Returns whether a minion's id got its key after an operator was revoked, whatever the clock
    /// said.
    pub async fn is_key_newer(&self, key: &MinionId, operator: &str) -> Outcome<bool> {
        let later = sqlx::query_scalar(
            "SELECT EXISTS (SELECT 1 FROM keys, operators \
             WHERE keys.id = ? AND operators.name = ? AND keys.first_turn > operators.revoked_turn)",
        );
        let later = later.bind(key.as_str()).bind(operator);
        Ok(later.fetch_one(&self.reader).await?)
    }
}

#[cfg(test)]
mod tests {
    use crate::records::KeyState;
    use crate::samples::minion;
    use crate::sqlite::tests::of_version;
    use crate::{Store, samples};

    /// Until the migration the order of the times counts; later changes are later in any case.
    #[tokio::test]
    async fn a_store_of_an_earlier_version_keeps_the_order_that_its_times_say() {
        let (earlier, directory) = of_version(10).await;
        for (id, created, changed) in [("a", 10, 20), ("b", 60, 70)] {
            sqlx::query(
                "INSERT INTO keys (id, state, fingerprint, csr_pem, roles, grains_json, created, changed) \
                 VALUES (?, 'rejected', 'x', '', '[]', '{}', ?, ?)",
            )
            .bind(id)
            .bind(created)
            .bind(changed)
            .execute(&earlier)
            .await
            .unwrap();
        }
        for (id, created) in [("before", 20), ("after", 21)] {
            sqlx::query("INSERT INTO tokens VALUES (?, '', 9, 1, '[]', 'a', ?, 'root')")
                .bind(id)
                .bind(created)
                .execute(&earlier)
                .await
                .unwrap();
        }
        sqlx::query("INSERT INTO operators VALUES ('eve', 'admin', NULL, 1, 'root', NULL, 50)")
            .execute(&earlier)
            .await
            .unwrap();
        earlier.close().await;
        let path = directory.path().join("store.db");
        let store = Store::open(&path).await.unwrap();
        let (a, b) = (minion("a"), minion("b"));
        assert!(!store.is_token_newer("before", &a).await.unwrap());
        assert!(store.is_token_newer("after", &a).await.unwrap());
        assert!(!store.is_key_newer(&a, "eve").await.unwrap());
        assert!(store.is_key_newer(&b, "eve").await.unwrap());
        // Later than all of them, whatever its time.
        store.put_token(&samples::token("next", 1)).await.unwrap();
        assert!(store.is_token_newer("next", &b).await.unwrap());
        // The first turn of a key stays when the key changes.
        let key = samples::key("a", KeyState::Accepted);
        store.put_key(&key).await.unwrap();
        assert!(!store.is_key_newer(&a, "eve").await.unwrap());
        assert!(!store.is_token_newer("next", &a).await.unwrap());
    }
}
