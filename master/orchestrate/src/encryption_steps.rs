//! `halite.encryption_keys` and `halite.encryption_rewrite`: the steps of the keys that encrypt
//! objects in etcd.

use halite_cluster::kubernetes::rewrite::Rewrite;
use halite_core::declared::KeyStep;
use halite_errors::chain;
use halite_pillar::api_hardening::ENCRYPTED_KINDS;
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::pace::StepPace;
use super::rotation_hosts::{PAUSE, Rotation};
use super::step_runner::{StepOutcome, StepRunner, failed, timeout};

fn rotation() -> Rotation {
    Rotation {
        command: "ctl certs rotate encryption".to_owned(),
        what: "keys",
        has_members: false,
    }
}

impl StepRunner<'_> {
    /// Takes the keys one step further, if each declared control plane and each standby is
    /// connected. The states of the control planes have them afterwards.
    pub(super) async fn encryption_keys(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let args = Args::new(chunk);
        let (stage, nodes) = (args.required("stage")?, args.list("nodes")?);
        let step = match stage.as_str() {
            "check" => None,
            "next" => Some(KeyStep::Next),
            "write" => Some(KeyStep::Write),
            "only" => Some(KeyStep::Only),
            "end" => Some(KeyStep::End),
            other => {
                return Err(Failure::new(format!(
                    "invalid stage {other:?}; the stages are check, next, write, only and end"
                )));
            }
        };
        if self.run.test {
            let comment = format!("a real run takes the stage `{stage}`");
            return Ok((Map::new(), comment));
        }
        let declarations = self.jobs.declarations();
        let loaded = declarations.load().await.map_err(failed)?;
        let rotation = rotation();
        self.all_take_part(&rotation, &loaded, &nodes).await?;
        let limit = timeout(chunk)?;
        self.standbys_follow(&rotation, &loaded, index, limit)
            .await?;
        let (snapshot, changed) = match step {
            Some(step) => declarations.step_keys(step).await.map_err(failed)?,
            None => (loaded, false),
        };
        let keys = snapshot.encryption_keys().unwrap_or_default();
        // This commit is answered when each standby that follows has the keys. No host gets them
        // before, also after a restart of the master in between.
        let stage = json!(keys.stage);
        self.recorder.note(index, "stage", stage).await?;
        self.standbys_follow(&rotation, &snapshot, index, limit)
            .await?;
        let writer = keys.writer.as_deref().unwrap_or("none");
        let (number, names) = (keys.stage, keys.names.join(", "));
        let comment = format!("stage {number}; keys: {names}; {writer} encrypts");
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
