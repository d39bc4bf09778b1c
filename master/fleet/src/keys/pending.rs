//! Pending keys, which wait for an operator. Every host that reaches the port can create one, so
//! they are few and small, and expire.

use halite_api::{EventData, KeyAction, KeyChanged};
use halite_core::app::App;
use halite_core::refusal::{Refusal, RefusalKind};
use halite_store::{KeyState, Millis, StoredKey};

use super::host_facts;

/// The maximum number of pending keys.
const PENDING_MAX: usize = 256;
/// The maximum number of pending keys from one address.
const PENDING_EACH: usize = 16;
/// The time after which a pending key is removed. A host that still waits asks again and gets a new
/// place.
const PENDING_LIFE: Millis = 24 * 60 * 60 * 1000;

/// Stores a new key that no token accepts; returns whether it is new. `known` is the key of that
/// id, if any.
///
/// # Errors
/// Too many keys are pending, or the store fails.
pub(super) async fn wait_for_operator(
    app: &App,
    key: StoredKey,
    known: Option<&StoredKey>,
    source: &str,
) -> Result<bool, Refusal> {
    let fingerprint = &key.fingerprint;
    let new = known.is_none();
    if new {
        expire(app).await?;
        let keys = app.store.keys().await?;
        let waiting = keys.iter().filter(|key| key.state == KeyState::Pending);
        let own = waiting
            .clone()
            .filter(|key| host_facts::source(&key.grains_json) == source);
        if waiting.count() >= PENDING_MAX {
            return Err(Refusal::new(
                RefusalKind::Unavailable,
                format!("{PENDING_MAX} keys wait for an operator already; enrol with a token"),
            ));
        }
        if own.count() >= PENDING_EACH {
            return Err(Refusal::new(
                RefusalKind::Unavailable,
                format!(
                    "{PENDING_EACH} keys from this address wait for an operator already; enrol with a token"
                ),
            ));
        }
        app.store.put_key(&key).await?;
        tracing::info!(minion = %key.id, fingerprint, "key waits for an operator");
        let pending = KeyChanged {
            minion: key.id.clone(),
            action: KeyAction::Pending,
            fingerprint: Some(fingerprint.clone()),
            token: None,
            reason: None,
        };
        app.events.publish(&EventData::KeyChanged(pending)).await?;
    }
    Ok(new)
}

/// Removes the keys that have been pending too long.
///
/// # Errors
/// The store fails.
pub(super) async fn expire(app: &App) -> Result<(), Refusal> {
    let now = app.clock.now();
    for key in app.store.keys().await? {
        if key.state == KeyState::Pending && now - key.created >= PENDING_LIFE {
            app.store.delete_key(&key.id).await?;
            tracing::info!(minion = %key.id, "a key that waited for an operator expired");
        }
    }
    Ok(())
}
