//! The roles with which a host is declared, and the tokens that admit it.

use std::io::ErrorKind;

use halite_core::app::App;
use halite_core::refusal::Refusal;
use halite_pillar::role::Role;
use halite_proto::ids::MinionId;
use halite_store::Token;
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
pub(super) fn declared_roles(app: &App, id: &MinionId) -> Result<Vec<String>, Refusal> {
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
