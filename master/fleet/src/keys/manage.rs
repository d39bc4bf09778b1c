//! An operator's actions on keys: list, accept, reject, delete.

use halite_api::{EventData, KeyAction, KeyChange, KeyChanged, KeyList, MinionKey, Time};
use halite_core::app::App;
use halite_core::refusal::Refusal;
use halite_proto::ids::MinionId;
use halite_store::{KeyState, StoredKey};
use serde_json::Value;

use super::enrol::{is_cut_off, issue, revoke_certificate};
use super::{host_root, pending};

/// An operator's order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyOrder {
    /// The minion's id.
    pub id: String,
    /// `accept`, `reject` or `delete`.
    pub action: String,
    /// The key's fingerprint, for `accept`; may be empty with `force`.
    pub fingerprint: String,
    /// The cluster's name, which confirms a destructive order.
    pub cluster: String,
    /// `true` to confirm a destructive order, or an acceptance without a fingerprint.
    pub force: bool,
}

/// Converts a key for display.
#[must_use]
pub fn status_of(key: &StoredKey, connected: bool) -> MinionKey {
    let facts: Value = serde_json::from_str(&key.grains_json).unwrap_or_default();
    let fact = |name: &str| facts.get(name)?.as_str().map(str::to_owned);
    MinionKey {
        minion: key.id.clone(),
        state: key.state.as_str().into(),
        fingerprint: key.fingerprint.clone(),
        connected,
        serial: key.serial.clone(),
        roles: key.roles.clone(),
        host: fact("fqdn"),
        os: fact("osfinger"),
        source: fact("source").filter(|source| !source.is_empty()),
        created: Time::from_millis(key.created),
        changed: Time::from_millis(key.changed),
    }
}

/// All keys.
///
/// # Errors
/// The store fails.
pub async fn list(app: &App) -> Result<KeyList, Refusal> {
    pending::expire(app).await?;
    let keys = app.store.keys().await?;
    let keys = keys
        .iter()
        .map(|key| status_of(key, app.connections.is_connected(&key.id)));
    Ok(KeyList {
        keys: keys.collect(),
    })
}

/// Carries out an operator's order.
///
/// # Errors
/// The key does not exist, the fingerprint differs, the order is unknown or needs confirmation, or
/// the store fails.
pub async fn change(app: &App, order: &KeyOrder) -> Result<KeyChange, Refusal> {
    let id: MinionId = order.id.parse()?;
    if matches!(order.action.as_str(), "reject" | "delete") {
        let key = find(app, &id).await?;
        confirm(app, &id, order)?;
        // Before anything that can wait or fail: the store may be slow or full.
        cut_off(app, &key);
    }
    let _turn = app.enrolling.lock().await;
    let key = find(app, &id).await?;
    let (state, tokens) = match order.action.as_str() {
        "accept" => (accept(app, key, order).await?, Vec::new()),
        "reject" => {
            cut_off(app, &key);
            let tokens = reject(app, key)
                .await
                .map_err(|error| half_done(&id, &error))?;
            (KeyState::Rejected.as_str(), tokens)
        }
        "delete" => {
            cut_off(app, &key);
            let tokens = delete(app, &key)
                .await
                .map_err(|error| half_done(&id, &error))?;
            ("deleted", tokens)
        }
        other => {
            return Err(Refusal::invalid(format!(
                "unknown action {other:?}; the actions are accept, reject and delete"
            )));
        }
    };
    app.events
        .publish(&EventData::KeyChanged(KeyChanged {
            minion: id.clone(),
            action: KeyAction::from(state),
            fingerprint: None,
            token: None,
            reason: None,
        }))
        .await?;
    tracing::info!(minion = %id, state, "key changed");
    Ok(KeyChange {
        minion: id,
        state: state.into(),
        revoked_tokens: tokens,
    })
}

async fn find(app: &App, id: &MinionId) -> Result<StoredKey, Refusal> {
    app.store.key(id).await?.ok_or_else(|| {
        Refusal::not_found(format!(
            "there is no key of {id:?}; `ctl key list` shows them"
        ))
    })
}

/// The refusal of an order that closed the gate but could not be stored.
fn half_done(id: &MinionId, error: &Refusal) -> Refusal {
    Refusal::new(
        error.kind,
        format!(
            "{id} is cut off until the master restarts, but the order cannot be stored: {}; then repeat the order",
            error.message
        ),
    )
}

/// Refuses to disconnect a live minion unless the operator names the cluster.
fn confirm(app: &App, id: &MinionId, order: &KeyOrder) -> Result<(), Refusal> {
    if !app.connections.is_connected(id) || (order.force && order.cluster == app.config.cluster) {
        return Ok(());
    }
    Err(Refusal::conflict(format!(
        "{0} is connected and would be cut off; to do it anyway: ctl key {1} {0} --force --cluster {2}",
        order.id,
        order.action,
        if order.force {
            "NAME, with this cluster's name"
        } else {
            "NAME"
        }
    )))
}

/// Accepts a key; does nothing if it already is accepted.
async fn accept(app: &App, mut key: StoredKey, order: &KeyOrder) -> Result<&'static str, Refusal> {
    let plain = |text: &str| text.to_ascii_lowercase().replace(':', "");
    if order.fingerprint.is_empty() && !order.force {
        // The error omits the fingerprint: the operator must read it on the host.
        return Err(Refusal::conflict(format!(
            "cannot accept the key of {0}: its fingerprint was not given; compare `ctl key list` with the output on the host, \
             then: ctl key accept {0} --fingerprint FINGERPRINT (or --force, which trusts the network)",
            key.id
        )));
    }
    if !order.fingerprint.is_empty() && plain(&order.fingerprint) != plain(&key.fingerprint) {
        return Err(Refusal::conflict(format!(
            "the key of {} has the fingerprint {}, not the given one; compare it with the output on the host",
            key.id, key.fingerprint
        )));
    }
    if key.state != KeyState::Accepted || is_cut_off(app, &key) {
        let now = app.clock.now();
        let issued = issue(app, &key, now).await?;
        key.state = KeyState::Accepted;
        key.serial = Some(issued.serial);
        key.certificate_pem = Some(issued.certificate_pem);
        key.changed = now;
        app.store.put_key(&key).await?;
    }
    // Also for an accepted key: the process may have ended between the store and the gate.
    app.gate.open(&key.id, &key.fingerprint);
    Ok(KeyState::Accepted.as_str())
}

/// Rejects a key; returns the ids of the tokens that were revoked with it.
async fn reject(app: &App, mut key: StoredKey) -> Result<Vec<String>, Refusal> {
    let now = app.clock.now();
    host_root::revoke(app, &key, now).await?;
    revoke_certificate(app, &key, "rejected by an operator", now).await?;
    let tokens = take_tokens(app, &key).await?;
    key.state = KeyState::Rejected;
    key.changed = now;
    key.serial = None;
    key.certificate_pem = None;
    app.store.put_key(&key).await?;
    Ok(tokens)
}

/// Deletes a key; returns the ids of the tokens that were revoked with it.
async fn delete(app: &App, key: &StoredKey) -> Result<Vec<String>, Refusal> {
    let now = app.clock.now();
    host_root::revoke(app, key, now).await?;
    revoke_certificate(app, key, "deleted by an operator", now).await?;
    let tokens = take_tokens(app, key).await?;
    app.store.delete_key(&key.id).await?;
    Ok(tokens)
}

/// Revokes the token with which an accepted key enrolled, because its host knows it, and the tokens
/// for its id. A pending key is a stranger's: a token for that id is meant for another host.
async fn take_tokens(app: &App, key: &StoredKey) -> Result<Vec<String>, Refusal> {
    if key.state != KeyState::Accepted {
        return Ok(Vec::new());
    }
    Ok(app.store.take_tokens(&key.id, key.token.as_deref()).await?)
}

/// Closes the gate for a key and for the operator of its host, and ends their connections.
fn cut_off(app: &App, key: &StoredKey) {
    host_root::cut_off(app, key);
    app.gate.close(&key.id, key.serial.as_deref());
    app.connections.disconnect(&key.id);
}
