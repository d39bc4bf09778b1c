//! The operator of each control-plane host: root there, as `root@HOST`, with a key that was
//! generated on that host. A state requests the certificate like any other, by a chunk of a job.

use halite_core::app::App;
use halite_core::ca::{HALITE, Issued, Profile};
use halite_core::clock::rfc3339;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_pillar::declaration::Declaration;
use halite_pillar::role::Role as HostRole;
use halite_proto::identity::{Identity, IdentityKind, root_of};
use halite_proto::ids::MinionId;
use halite_proto::role::Role;
use halite_states::low::Chunk;
use halite_store::{Audit, KeyState, Millis, Operator, StoredKey};
use serde_json::Value;

use super::operators::find;

/// Returns whether a chunk requests the certificate of an operator.
#[must_use]
pub fn is_asked_for(chunk: &Chunk) -> bool {
    chunk.function() == "x509.certificate" && chunk.args.get("ca").is_some_and(|ca| ca == HALITE)
}

/// Refuses a host that may not have an operator.
///
/// # Errors
/// The host is not a control plane, whose root has the CAs of the cluster in any case.
pub fn check_host(declaration: &Declaration, host: &MinionId) -> Result<(), Refusal> {
    let node = declaration.nodes.get(host.as_str());
    if node.is_some_and(|node| node.has(HostRole::ControlPlane)) {
        return Ok(());
    }
    Err(Refusal::denied(format!(
        "{host} cannot have an operator's certificate: only hosts with the role {} can",
        HostRole::ControlPlane
    )))
}

/// Signs the certificate of root on this host, whatever subject the chunk has, and admits that key
/// as administrator. The host's previous key is no longer admitted.
///
/// # Errors
/// The chunk names another identity, the request is invalid, the operator was revoked since the
/// host enrolled, or the store fails.
pub async fn sign(
    app: &App,
    host: &MinionId,
    chunk: &Chunk,
    csr_pem: &str,
) -> Result<Issued, Refusal> {
    let name = root_of(host.as_str());
    let identity = Identity::new(&app.config.cluster, IdentityKind::Operator, &name)
        .map_err(|error| Refusal::invalid(chain(&error)))?;
    if !names_only(chunk, &identity) {
        return Err(Refusal::denied(format!(
            "sans_uri: a state on {host} can request only [{identity}] from the CA {HALITE:?}"
        )));
    }
    let _turn = app.enrolling.lock().await;
    let now = app.clock.now();
    let issued = app
        .cas
        .sign(HALITE, csr_pem, &Profile::identity(&identity), now)
        .map_err(|error| Refusal::invalid(chain(&error)))?;
    let known = find(app, &name).await?;
    if let Some(revoked) = known.as_ref().and_then(|known| known.revoked)
        && !app.store.is_key_newer(host, &name).await?
    {
        return Err(Refusal::denied(format!(
            "cannot sign a certificate for the operator {name}: it was revoked on {}; replace the host to create it again (ctl node replace {host})",
            rfc3339(revoked)
        )));
    }
    let is_admitted = known.is_some_and(|known| {
        known.is_valid(now) && known.fingerprint.as_ref() == Some(&issued.fingerprint)
    });
    if !is_admitted {
        admit(app, host, name, issued.fingerprint.clone(), now).await?;
    }
    Ok(issued)
}

/// Stores the operator and opens the gate for the key.
async fn admit(
    app: &App,
    host: &MinionId,
    name: String,
    fingerprint: String,
    now: Millis,
) -> Result<(), Refusal> {
    let line = Audit {
        time: now,
        who: host.to_string(),
        method: "Operator/CreateOperator".to_owned(),
        what: format!("{name} as {}, by the state of its host", Role::Admin),
        outcome: "ok".to_owned(),
    };
    app.store.append_audit(&line).await?;
    let operator = Operator {
        name,
        role: Role::Admin,
        fingerprint: Some(fingerprint),
        created: now,
        creator: host.to_string(),
        // Its certificate expires by itself, and the host's highstate renews it.
        expires: None,
        revoked: None,
    };
    app.store.put_operator(&operator).await?;
    app.gate.open_for_operator(&operator);
    tracing::info!(operator = operator.name, "operator of a host made");
    Ok(())
}

/// Removes the operator of a host that stays without a control plane: its key no longer admits a
/// caller, and with a new control plane the host gets another key. Does nothing if it is already
/// removed.
///
/// # Errors
/// The store fails.
pub async fn end(app: &App, host: &MinionId) -> Result<(), Refusal> {
    let _turn = app.enrolling.lock().await;
    let now = app.clock.now();
    let name = root_of(host.as_str());
    let Some(mut operator) = find(app, &name).await? else {
        return Ok(());
    };
    if operator.is_valid(now) {
        operator.expires = Some(now);
        app.store.put_operator(&operator).await?;
        tracing::info!(
            operator = operator.name,
            "operator ended with the control plane of its host"
        );
    }
    app.gate.remove_host_root(&name);
    Ok(())
}

fn names_only(chunk: &Chunk, identity: &Identity) -> bool {
    let own = identity.to_string();
    match chunk.args.get("sans_uri") {
        Some(Value::String(one)) => *one == own,
        Some(Value::Array(all)) => matches!(all.as_slice(), [one] if *one == own),
        _ => false,
    }
}

/// Cuts off the operator of a host whose key is rejected or deleted: only in memory, before
/// anything that can fail.
pub(super) fn cut_off(app: &App, key: &StoredKey) {
    if key.state != KeyState::Pending {
        app.gate.remove_host_root(&root_of(key.id.as_str()));
    }
}

/// Records that the operator of such a host is revoked.
///
/// # Errors
/// The store fails.
pub(super) async fn revoke(app: &App, key: &StoredKey, now: Millis) -> Result<(), Refusal> {
    if key.state == KeyState::Pending {
        return Ok(());
    }
    let Some(mut operator) = find(app, &root_of(key.id.as_str())).await? else {
        return Ok(());
    };
    if operator.revoked.is_none() {
        operator.revoked = Some(now);
        app.store.put_operator(&operator).await?;
        tracing::info!(operator = operator.name, "operator of a host revoked");
    }
    Ok(())
}
