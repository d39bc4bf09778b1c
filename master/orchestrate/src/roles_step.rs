//! `halite.node_roles`: declares other roles of a host before its states follow; and
//! `halite.control_plane_joined`: records that they have.

use halite_core::declared::Stage;
use halite_errors::chain;
use halite_fleet::keys::host_root;
use halite_pillar::role::Role;
use halite_proto::identity::IdentityError;
use halite_proto::ids::MinionId;
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::step_runner::{StepOutcome, StepRunner, failed};

impl StepRunner<'_> {
    /// Records that a control plane runs.
    pub(super) async fn control_plane_joined(&self, chunk: &Chunk) -> Result<StepOutcome, Failure> {
        let node = Args::new(chunk).required("node")?;
        if self.run.test {
            return Ok((
                Map::new(),
                format!("a real run records that {node} serves the API"),
            ));
        }
        let recorded = self.jobs.declarations().record_joined(&node).await;
        recorded.map_err(failed)?;
        Ok((Map::new(), format!("{node} serves the API")))
    }

    /// Declares the roles of a host in its document.
    pub(super) async fn node_roles(&self, chunk: &Chunk) -> Result<StepOutcome, Failure> {
        let node = Args::new(chunk).required("node")?;
        let roles = roles(chunk)?;
        let names = roles.iter().map(|role| role.as_str());
        let names = names.collect::<Vec<_>>().join(", ");
        if self.run.test {
            return Ok((
                Map::new(),
                format!("a real run gives {node} the roles {names}"),
            ));
        }
        let stage = match Args::new(chunk).flag("left", false)? {
            true => Stage::Left,
            false => Stage::Before,
        };
        let declarations = self.jobs.declarations();
        let changed = declarations.set_roles(&node, &roles, stage).await;
        let changed = changed.map_err(failed)?;
        if !roles.contains(&Role::ControlPlane) {
            // Also when it has the roles already: the process may have ended in between.
            let id: MinionId =
                (node.parse()).map_err(|error: IdentityError| Failure::new(chain(&error)))?;
            let ended = host_root::end(self.jobs.app(), &id).await;
            ended.map_err(failed)?;
        }
        if changed {
            let changes = Map::from_iter([("roles".to_owned(), json!(roles))]);
            return Ok((changes, format!("{node} has the roles {names}")));
        }
        Ok((Map::new(), format!("{node} already has the roles {names}")))
    }
}

/// The argument `roles`, each role once.
pub(super) fn roles(chunk: &Chunk) -> Result<Vec<Role>, Failure> {
    let mut roles = Vec::new();
    for name in Args::new(chunk).list("roles")? {
        let Some(role) = Role::named(&name) else {
            let known = Role::ALL.map(Role::as_str).join(", ");
            return Err(Failure::new(format!(
                "there is no role {name:?}; there are {known}"
            )));
        };
        if !roles.contains(&role) {
            roles.push(role);
        }
    }
    Ok(roles)
}
