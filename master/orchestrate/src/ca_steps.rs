//! `halite.ca_stage` and `halite.ca_pods`: the steps of the rotation of a CA, or of the key pair
//! that signs tokens of service accounts (docs/decisions/0102).

use std::sync::Arc;
use std::time::Duration;

use halite_cluster::kubernetes::old_pods::{OldPods, Replaced, key_id};
use halite_core::declared::{CaStep, in_background};
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_pillar::ca_rotation::{RotationStage, SERVICE_ACCOUNTS};
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::pace::StepPace;
use super::rotation_hosts::Rotation;
use super::step_runner::{StepOutcome, StepRunner, failed, timeout};

/// The pause between two looks at all pods.
const PAUSE: Duration = Duration::from_secs(5);
/// The step that ends a rotation.
const END: &str = "end";

fn rotation(ca: &str, compromised: bool) -> Rotation {
    let option = if compromised { " --compromised" } else { "" };
    Rotation {
        command: format!("ctl certs rotate {ca}{option}"),
        what: match ca {
            SERVICE_ACCOUNTS => "key pair",
            _ => "CA",
        },
        has_members: ca == "etcd",
    }
}

impl StepRunner<'_> {
    /// Takes a step of a rotation, if each declared control plane, and with the CA of etcd each
    /// member, and each standby is connected. The states that are compiled afterwards follow it.
    pub(super) async fn ca_stage(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let args = Args::new(chunk);
        let (ca, stage) = (args.required("ca")?, args.required("stage")?);
        let (nodes, compromised) = (args.list("nodes")?, args.flag("compromised", false)?);
        let step = match (stage.as_str(), RotationStage::named(&stage)) {
            (END, _) => CaStep::End,
            (_, Some(stage)) => CaStep::Begin(stage),
            (other, None) => {
                return Err(Failure::new(format!(
                    "invalid stage {other:?}; the stages are trust, sign, only and end"
                )));
            }
        };
        if self.run.test {
            let comment = format!("a real run takes the stage `{stage}` of {ca}");
            return Ok((Map::new(), comment));
        }
        // Before a compromised CA of identities leaves, the connected hosts get the next one.
        let prepares = compromised && step == CaStep::Begin(RotationStage::Trust);
        if prepares && self.jobs.app().cas.rotation(&ca) == Some(RotationStage::Only) {
            let comment = format!("{ca} already has a later stage");
            return Ok((Map::new(), comment));
        }
        let (declarations, limit) = (self.jobs.declarations(), timeout(chunk)?);
        let rotation = rotation(&ca, compromised);
        let loaded = declarations.load().await.map_err(failed)?;
        self.all_take_part(&rotation, &loaded, &nodes).await?;
        self.standbys_follow(&rotation, &loaded, index, limit)
            .await?;
        let changed = declarations.step_ca(&ca, step).await.map_err(failed)?;
        // This commit is answered when each standby that follows has the stage. No host gets it
        // before, also after a restart of the master in between.
        self.recorder.note(index, "stage", json!(stage)).await?;
        let loaded = declarations.load().await.map_err(failed)?;
        self.standbys_follow(&rotation, &loaded, index, limit)
            .await?;
        if !changed {
            let comment = format!("{ca} already has the stage `{stage}`, or a later one");
            return Ok((Map::new(), comment));
        }
        let comment = match step {
            CaStep::Begin(RotationStage::Trust) => format!("{ca}: both are trusted"),
            CaStep::Begin(RotationStage::Sign) => format!("{ca}: the new one signs"),
            CaStep::Begin(RotationStage::Only) => format!("{ca}: only the new one is trusted"),
            CaStep::End => format!("{ca}: the rotation has ended"),
        };
        let changes = Map::from_iter([(ca, json!(stage))]);
        Ok((changes, comment))
    }

    /// Waits until no pod depends on what is replaced.
    pub(super) async fn ca_pods(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let ca = Args::new(chunk).required("ca")?;
        let stage = Args::new(chunk).required("stage")?;
        let restart = Args::new(chunk).flag("restart", false)?;
        if self.run.test {
            let action = if restart { "restarts" } else { "waits for" };
            let comment = format!("a real run {action} the pods that depend on the old one");
            return Ok((Map::new(), comment));
        }
        let cas = &self.jobs.app().cas;
        // A run before this one has waited, and the next stage changes what pods read.
        if cas.rotation(&ca) != RotationStage::named(&stage) {
            let comment = format!("{ca} already has a later stage");
            return Ok((Map::new(), comment));
        }
        let replaced = if ca == SERVICE_ACCOUNTS {
            Replaced::Tokens {
                since: self.all_sign(&ca).await?,
                key_id: key_id(cas.sa_public_pem()).unwrap_or_default(),
            }
        } else {
            let trusted = cas.certificates(&ca);
            let trusted = trusted.map_err(|error| Failure::new(chain(&error)))?;
            Replaced::Ca(trusted.into_iter().map(str::to_owned).collect())
        };
        let api = self.api().await?;
        let pace = StepPace::new(self.recorder, index, PAUSE).remedy(match restart {
            true => {
                "delete the pods that no Deployment, StatefulSet or DaemonSet with rolling updates replaces"
            }
            false => {
                "restart each with `kubectl rollout restart`, or delete the pod; `--restart-pods` in another run does it"
            }
        });
        let wait = OldPods {
            api: api.as_ref(),
            pace: &pace,
            clock: self.jobs.app().clock.as_ref(),
            replaced: &replaced,
            restart,
            limit: timeout(chunk)?,
        };
        let restarted = wait.run().await;
        let restarted = restarted.map_err(|error| {
            let why = chain(&error);
            Failure::new(format!(
                "{why}; restart or delete them, then run the command again: it continues here"
            ))
        })?;
        let comment = match restarted.len() {
            0 => "no pod depends on the old one".to_owned(),
            number => format!("{number} workloads were restarted; no pod depends on the old one"),
        };
        let changes = restarted.into_iter();
        let changes = changes.map(|owner| (owner, json!("restarted")));
        Ok((changes.collect(), comment))
    }

    /// The time from which on all API servers sign with the new key. A repeated run waits only for
    /// the rest.
    async fn all_sign(&self, ca: &str) -> Result<i64, Failure> {
        let app = self.jobs.app();
        let (cas, ca, now) = (Arc::clone(&app.cas), ca.to_owned(), app.clock.now());
        let reached = in_background(move || {
            let reached = cas.stage_reached(&ca, now);
            reached.map_err(|error| Refusal::internal(chain(&error)))
        });
        Ok(reached.await.map_err(failed)?.unwrap_or(now))
    }
}
