//! `halite.encryption_keys` and `halite.encryption_rewrite`: the steps of the keys that encrypt
//! objects in etcd.

use std::time::Duration;

use halite_cluster::kubernetes::rewrite::Rewrite;
use halite_core::declared::{KeyStep, Snapshot};
use halite_core::roster::FollowState;
use halite_errors::chain;
use halite_etcd::Pace as _;
use halite_pillar::api_hardening::ENCRYPTED_KINDS;
use halite_pillar::role::Role;
use halite_proto::identity::IdentityError;
use halite_proto::ids::MinionId;
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::pace::StepPace;
use super::step_runner::{StepOutcome, StepRunner, failed, timeout};

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// The end of each failure: the way to continue.
const AGAIN: &str = "then run `ctl certs rotate encryption` again: it continues with the same keys";

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
        self.all_take_part(&loaded, &nodes).await?;
        let limit = timeout(chunk)?;
        self.standbys_follow(&loaded, index, limit).await?;
        let (snapshot, changed) = match step {
            Some(step) => declarations.step_keys(step).await.map_err(failed)?,
            None => (loaded, false),
        };
        let keys = snapshot.encryption_keys().unwrap_or_default();
        // This commit is answered when each standby that follows has the keys. No host gets them
        // before, also after a restart of the master in between.
        let stage = json!(keys.stage);
        self.recorder.note(index, "stage", stage).await?;
        self.standbys_follow(&snapshot, index, limit).await?;
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

    /// Fails unless the declared control planes are those of this run, and each is connected. An API
    /// server that missed a stage could not decrypt what another one writes in the next.
    async fn all_take_part(&self, snapshot: &Snapshot, nodes: &[String]) -> Result<(), Failure> {
        let declared = snapshot.declaration().nodes.iter();
        let planes = declared.filter(|(_, node)| node.has(Role::ControlPlane));
        let planes: Vec<_> = planes.collect();
        let mut problems = Vec::new();
        let (mut minions, mut names) = (Vec::new(), Vec::new());
        for (name, node) in planes {
            let id = name.as_str().parse::<MinionId>();
            let id = id.map_err(|error: IdentityError| Failure::new(chain(&error)))?;
            names.push(name.as_str().to_owned());
            if node.serves_api() {
                minions.push(id);
            } else {
                problems.push(format!(
                    "{name} is declared as a control plane and has not joined: finish `ctl node add {name}`, or remove it with \
                     `ctl node remove {name}`"
                ));
            }
        }
        if names != nodes {
            return Err(Failure::new(format!(
                "the control planes have changed: this run began with {}, and now {} are declared; run `ctl certs rotate encryption` \
                 again: it continues with the same keys",
                nodes.join(", "),
                names.join(", ")
            )));
        }
        let cluster = snapshot.cluster();
        let (_, gone) = self.reachable(minions).await;
        problems.extend(gone.into_iter().map(|name| {
            format!(
                "{name} is not connected: switch it on, or, if it is lost for good, replace it with `ctl node replace {name} --force \
                 --cluster {cluster}`, or remove it with `ctl node remove {name} --dead --force --cluster {cluster}`"
            )
        }));
        if problems.is_empty() {
            return Ok(());
        }
        let problems = problems.join("; ");
        Err(Failure::new(format!(
            "not every control plane can take part: {problems}; {AGAIN}"
        )))
    }

    /// Waits until each standby follows. One that has missed a stage would have older keys than the
    /// cluster when it becomes the master.
    async fn standbys_follow(
        &self,
        snapshot: &Snapshot,
        index: usize,
        limit: Duration,
    ) -> Result<(), Failure> {
        let remedy =
            "switch them on, or remove hosts that are lost for good; `ctl master list` shows them";
        let pace = StepPace::new(self.recorder, index, PAUSE).remedy(remedy);
        loop {
            let seen = self.jobs.app().standbys.seen();
            let behind = snapshot.declaration().standbys().into_iter();
            let behind = behind.map(|node| node.metadata.name.to_string());
            let behind = behind.filter_map(|name| match seen.get(&name) {
                Some(seen) if seen.state == FollowState::Following => None,
                Some(seen) if seen.reason.is_empty() => {
                    Some(format!("{name} ({})", seen.state.as_str()))
                }
                Some(seen) => Some(format!("{name} ({}: {})", seen.state.as_str(), seen.reason)),
                None => Some(format!("{name} (not connected)")),
            });
            let behind: Vec<String> = behind.collect();
            if behind.is_empty() {
                return Ok(());
            }
            let because = format!("these do not follow the master: {}", behind.join(", "));
            if pace.now() >= limit {
                let waited = limit.as_secs();
                return Err(Failure::new(format!(
                    "a standby would lack the keys: {because} (waited {waited} s); {remedy}; {AGAIN}"
                )));
            }
            let until = "each standby has the keys".to_owned();
            pace.say(until, because, limit).await;
            pace.pause().await;
        }
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
