//! `halite.encryption_keys` and `halite.encryption_rewrite`: the steps of the keys that encrypt
//! objects in etcd.

use std::time::Duration;

use halite_cluster::kubernetes::rewrite::Rewrite;
use halite_core::declared::KeyStep;
use halite_errors::chain;
use halite_pillar::api_hardening::ENCRYPTED_KINDS;
use halite_pillar::role::Role;
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::pace::StepPace;
use super::step_runner::{StepOutcome, StepRunner, failed, timeout};

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

impl StepRunner<'_> {
    /// Takes the keys one step further. The states of the control planes have them afterwards.
    pub(super) async fn encryption_keys(&self, chunk: &Chunk) -> Result<StepOutcome, Failure> {
        let stage = Args::new(chunk).required("stage")?;
        let step = match stage.as_str() {
            "next" => KeyStep::Next,
            "write" => KeyStep::Write,
            "only" => KeyStep::Only,
            other => {
                return Err(Failure::new(format!(
                    "invalid stage {other:?}; the stages are next, write and only"
                )));
            }
        };
        if self.run.test {
            let comment = format!("a real run takes the stage `{stage}`");
            return Ok((Map::new(), comment));
        }
        let declarations = self.jobs.declarations();
        let loaded = declarations.load().await.map_err(failed)?;
        let nodes = loaded.declaration().nodes.iter();
        let planes: Vec<&str> = nodes
            .filter(|(_, node)| node.has(Role::ControlPlane))
            .map(|(name, _)| name.as_str())
            .collect();
        if planes.len() > 1 {
            return Err(Failure::new(format!(
                "this version rotates keys only with one control plane; the cluster declares {}",
                planes.join(", ")
            )));
        }
        let (snapshot, changed) = declarations.step_keys(step).await.map_err(failed)?;
        let keys = snapshot.encryption_keys().unwrap_or_default();
        let writer = keys.writer.as_deref().unwrap_or("none");
        let comment = format!("keys: {}; {writer} encrypts", keys.names.join(", "));
        let mut changes = Map::new();
        if changed {
            changes.insert("keys".to_owned(), json!(keys.names));
            changes.insert("encrypts".to_owned(), json!(writer));
        }
        Ok((changes, comment))
    }

    /// Writes all encrypted objects again.
    pub(super) async fn encryption_rewrite(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        if self.run.test {
            let comment = "a real run writes all encrypted objects again".to_owned();
            return Ok((Map::new(), comment));
        }
        let api = self.api().await?;
        let pace = StepPace::new(self.recorder, index, PAUSE)
            .remedy("`ctl health` names the API servers and members of etcd that do not serve");
        let rewrite = Rewrite {
            api: api.as_ref(),
            pace: &pace,
            limit: timeout(chunk)?,
        };
        // Each kind, and not only the declared ones: an object of a resource that has left the list
        // is still encrypted with the older key.
        let (mut changes, mut words) = (Map::new(), Vec::new());
        for (resource, kind) in ENCRYPTED_KINDS {
            let written = rewrite.kind(kind).await;
            let written = written.map_err(|error| Failure::new(chain(&error)))?;
            changes.insert(resource.to_owned(), json!(written));
            words.push(format!("{written} {resource}"));
        }
        Ok((
            changes,
            format!("{} are written again", words.join(" and ")),
        ))
    }
}
