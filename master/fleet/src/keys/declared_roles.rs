//! The roles with which a host is declared, and the tokens that admit it.

use std::io::ErrorKind;

use halite_core::app::App;
use halite_core::refusal::Refusal;
use halite_pillar::role::Role;
use halite_proto::ids::MinionId;
use halite_store::{KeyState, Token};
use serde::Deserialize;

/// The part of a node document that is read here; the pillar checks the rest.
#[derive(Deserialize)]
struct Declared {
    #[serde(default)]
    roles: Vec<String>,
}

/// The roles with which a host gets keys of CAs, data of etcd, or the site's images. A token must
/// name them: otherwise any holder of a token could become a declared host with these roles that
/// has not enrolled yet.
const NAMED: [Role; 4] = [
    Role::Bootstrap,
    Role::ControlPlane,
    Role::Etcd,
    Role::Registry,
];

/// The roles with which a host is declared; empty if it is not declared.
pub(crate) fn declared_roles(app: &App, id: &MinionId) -> Result<Vec<String>, Refusal> {
    let path = app
        .config
        .config_dir
        .join("nodes")
        .join(format!("{id}.yaml"));
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        // An undeclared host has no roles.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Refusal::internal(format!("{}: {error}", path.display()))),
    };
    let declared: Declared = serde_saphyr::from_str(&text)
        .map_err(|e| Refusal::internal(format!("{}: {e}", path.display())))?;
    Ok(declared.roles)
}

/// Checks that a token admits a node: the token must name the node's declared roles; a token
/// without roles admits a node without [`NAMED`] roles.
pub(super) fn check_roles(app: &App, id: &MinionId, token: &Token) -> Result<(), Refusal> {
    let declared = declared_roles(app, id)?;
    let is_open = token.roles.is_empty();
    let is_refused = |role: &&String| {
        if is_open {
            NAMED.iter().any(|named| named.as_str() == role.as_str())
        } else {
            !token.roles.contains(role)
        }
    };
    let Some(role) = declared.iter().find(is_refused) else {
        return Ok(());
    };
    let allows = if is_open {
        "names no roles".to_owned()
    } else {
        format!("is for the roles {}", token.roles.join(", "))
    };
    Err(Refusal::denied(format!(
        "cannot enrol {id}: the token {allows}, but {id} is declared with {role}; use a token for this host: ctl token create --id {id}"
    )))
}

/// Refuses [`NAMED`] roles that a host does not have yet if its key came with a token that does not
/// name them: any holder of such a token could have enrolled with the name before it was declared.
/// A host that is already declared may get further roles if its token was for its name.
///
/// # Errors
/// The roles are refused, or the store or the host's document cannot be read.
pub async fn check_new_roles(app: &App, name: &str, roles: &[String]) -> Result<(), Refusal> {
    // An invalid name is refused elsewhere, with its reason.
    let Ok(id) = MinionId::for_host(name) else {
        return Ok(());
    };
    let key = app.store.key(&id).await?;
    let Some(key) = key.filter(|key| key.state == KeyState::Accepted) else {
        return Ok(());
    };
    let Some(token) = &key.token else {
        return Ok(());
    };
    let declared = declared_roles(app, &id)?;
    let is_refused = |role: &&String| {
        let is_named = NAMED.iter().any(|named| named.as_str() == role.as_str());
        is_named && !key.roles.contains(role) && !declared.contains(role)
    };
    let Some(role) = roles.iter().find(is_refused) else {
        return Ok(());
    };
    let is_for_host = match app.store.token(token).await? {
        Some(token) => token.bound_id.is_some(),
        // The record goes after a month. `ctl node add` names the roles.
        None => !key.roles.is_empty(),
    };
    if is_for_host && !declared.is_empty() {
        return Ok(());
    }
    Err(Refusal::denied(format!(
        "cannot give {id} the role {role}: its key came with a token that does not name this role, so another host may have this \
         name; delete the key (ctl key delete {id}), and enrol the host again with a token for it: ctl token create --id {id} \
         --roles {}",
        roles.join(",")
    )))
}

/// The pillar of the orchestration that gives a host other roles.
#[derive(Deserialize)]
struct RoleChange {
    node: String,
    roles: Vec<String>,
}

/// Like [`check_new_roles`], for the pillar of `halite.orchestrate.add_node`. Without roles it
/// changes none.
///
/// # Errors
/// As for [`check_new_roles`].
pub async fn check_role_change(app: &App, pillar_json: &str) -> Result<(), Refusal> {
    match serde_json::from_str::<RoleChange>(pillar_json) {
        Ok(change) => check_new_roles(app, &change.node, &change.roles).await,
        Err(_) => Ok(()),
    }
}
