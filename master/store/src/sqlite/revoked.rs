//! Revocations beside the store. Revocations survive the opening of any store, even of an older
//! copy: a line is on disk before the store has the revocation.
//!
//! A line is `certificate SERIAL`, `key FINGERPRINT` (of a minion or an operator, which may not
//! connect), `end FINGERPRINT` (of root on a host that has lost its control plane, and may get
//! another one) or `back FINGERPRINT` (which was accepted again). The last line of a key counts.

use std::collections::BTreeSet;
use std::future::pending;
use std::path::{Path, PathBuf};

use sqlx::SqliteConnection;

use super::files::{append, beside, read};
use super::turns::next_turn;
use super::{Store, StoreError};
use crate::records::{KeyState, Operator, StoredKey};

/// The prefix of the name of an operator who may have any key, instead of a fingerprint.
const ANY_KEY: &str = "operator:";

fn file(path: &Path) -> PathBuf {
    beside(path, ".revoked")
}

/// The revoked certificates and keys.
#[derive(Default)]
struct Revoked {
    certificates: BTreeSet<String>,
    keys: BTreeSet<String>,
    ended: BTreeSet<String>,
}

fn revoked(path: &Path) -> Result<Revoked, StoreError> {
    let mut revoked = Revoked::default();
    for line in read(&file(path))?.unwrap_or_default().lines() {
        match line.split_once(' ') {
            Some(("certificate", serial)) => drop(revoked.certificates.insert(serial.to_owned())),
            Some(("key", fingerprint)) => drop(revoked.keys.insert(fingerprint.to_owned())),
            Some(("end", fingerprint)) => drop(revoked.ended.insert(fingerprint.to_owned())),
            Some(("back", fingerprint)) => {
                revoked.keys.remove(fingerprint);
                revoked.ended.remove(fingerprint);
            }
            // The last line of a write that a power cut interrupted: the store never had it.
            _ => {}
        }
    }
    Ok(revoked)
}

/// Revokes the certificates and keys of the file in the store.
pub(super) async fn merge(path: &Path, store: &mut SqliteConnection) -> Result<(), StoreError> {
    let revoked = revoked(path)?;
    for serial in revoked.certificates {
        sqlx::query(
            "INSERT OR IGNORE INTO revocations (serial, owner, time, reason) \
             VALUES (?, '', 0, 'revoked before the store went back')",
        )
        .bind(serial)
        .execute(&mut *store)
        .await?;
    }
    // Newer than everything that the store knows, so that no token of it undoes a rejection.
    let turn = next_turn(store).await?;
    for fingerprint in revoked.keys {
        sqlx::query(
            "UPDATE keys SET state = 'rejected', last_turn = ? WHERE fingerprint = ? AND state = 'accepted'",
        )
        .bind(turn)
        .bind(&fingerprint)
        .execute(&mut *store)
        .await?;
        sqlx::query(
            "UPDATE operators SET revoked = 0, revoked_turn = ? \
             WHERE revoked IS NULL AND coalesce(fingerprint, ? || name) = ?",
        )
        .bind(turn)
        .bind(ANY_KEY)
        .bind(&fingerprint)
        .execute(&mut *store)
        .await?;
    }
    for fingerprint in revoked.ended {
        sqlx::query("UPDATE operators SET expires = 0 WHERE expires IS NULL AND fingerprint = ?")
            .bind(fingerprint)
            .execute(&mut *store)
            .await?;
    }
    Ok(())
}

impl Store {
    pub(super) async fn note_certificate(&self, serial: &str) -> Result<(), StoreError> {
        self.note(vec![format!("certificate {serial}")]).await
    }

    /// Records the keys that a change from the record `before` to `after` revokes or accepts again.
    pub(super) async fn note_keys(
        &self,
        before: Option<&StoredKey>,
        after: Option<&StoredKey>,
    ) -> Result<(), StoreError> {
        let mut lines = Vec::new();
        let ends = |old: &&StoredKey| {
            after.is_none_or(|new| new.fingerprint != old.fingerprint)
                && old.state != KeyState::Pending
        };
        if let Some(old) = before.filter(ends) {
            lines.push(format!("key {}", old.fingerprint));
        }
        match after {
            Some(key) if key.state == KeyState::Rejected => {
                lines.push(format!("key {}", key.fingerprint));
            }
            Some(key) if key.state == KeyState::Accepted => {
                lines.push(format!("back {}", key.fingerprint));
            }
            _ => {}
        }
        self.note(lines).await
    }

    /// Like [`Store::note_keys`], for an operator's record.
    pub(super) async fn note_operator(
        &self,
        before: Option<&Operator>,
        after: &Operator,
    ) -> Result<(), StoreError> {
        let mut lines = Vec::new();
        let replaced = before.filter(|old| old.fingerprint != after.fingerprint);
        if let Some(old) = replaced.and_then(|old| old.fingerprint.as_ref()) {
            lines.push(format!("key {old}"));
        }
        // Only an operator without an end can get one: the certificates of the others contain it.
        let has_no_end = |old: &Operator| old.expires.is_none() && old.revoked.is_none();
        let word = match after.expires {
            _ if after.revoked.is_some() => "key",
            Some(_) if before.is_some_and(has_no_end) => "end",
            _ => "back",
        };
        lines.push(match &after.fingerprint {
            Some(fingerprint) => format!("{word} {fingerprint}"),
            None => format!("{word} {ANY_KEY}{}", after.name),
        });
        self.note(lines).await
    }

    /// Appends the lines that change something.
    async fn note(&self, lines: Vec<String>) -> Result<(), StoreError> {
        if lines.is_empty() {
            return Ok(());
        }
        let path = self.path.clone();
        let noted = tokio::task::spawn_blocking(move || {
            let known = revoked(&path)?;
            for line in lines {
                let is_known = match line.split_once(' ') {
                    Some(("certificate", serial)) => known.certificates.contains(serial),
                    Some(("key", fingerprint)) => known.keys.contains(fingerprint),
                    Some(("end", fingerprint)) => known.ended.contains(fingerprint),
                    Some((_, fingerprint)) => {
                        !known.keys.contains(fingerprint) && !known.ended.contains(fingerprint)
                    }
                    None => false,
                };
                if !is_known {
                    append(&file(&path), &line)?;
                }
            }
            Ok(())
        });
        match noted.await {
            Ok(noted) => noted,
            // The process ends: callers resume after the next start, and have not failed.
            Err(error) if error.is_cancelled() => pending().await,
            Err(_) => Err(StoreError::Corrupt(
                "cannot write the record of revocations".to_owned(),
            )),
        }
    }
}
