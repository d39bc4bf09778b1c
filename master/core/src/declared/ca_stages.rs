//! The stages of a CA's rotation, and low states that were compiled before one.

use std::sync::Arc;

use halite_errors::chain;
use halite_pillar::ca_rotation::{ROTATED_CAS, RotationStage, SERVICE_ACCOUNTS};
use serde_json::Value;

use super::{Declarations, Snapshot, in_background};
use crate::ca::{CaError, Cas};
use crate::refusal::Refusal;

/// A step of a rotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaStep {
    /// A stage begins.
    Begin(RotationStage),
    /// The rotation ends.
    End,
}

impl Declarations {
    /// Takes a step of the rotation of a CA, or of `sa`. Compiled states follow it from now on.
    /// Returns `false` if it had been taken already.
    ///
    /// # Errors
    /// The CA cannot be rotated now, such as in the middle of an upgrade, or a file cannot be written.
    pub async fn step_ca(&self, name: &str, step: CaStep) -> Result<bool, Refusal> {
        let _writing = self.writing.lock().await;
        let snapshot = self.load().await?;
        if name == "etcd" && snapshot.declaration().cluster.external_etcd().is_some() {
            return Err(Refusal::conflict(
                "cannot rotate the CA of etcd: etcd is outside the cluster; rotate its CA there, then change `etcd.external` in the \
                 cluster document",
            ));
        }
        let (cas, name) = (Arc::clone(self.reader.cas()), name.to_owned());
        if step != CaStep::End && cas.rotation(&name).is_none() {
            snapshot.refuse_two_bundles(&name)?;
        }
        let (cluster, now) = (snapshot.cluster().to_owned(), self.clock.now());
        let changed = in_background(move || {
            let done = match step {
                CaStep::Begin(stage) => cas.begin_stage(&name, stage, &cluster, now),
                CaStep::End => cas.end_rotation(&name),
            };
            done.map_err(|error| match error {
                CaError::NotRotated(_)
                | CaError::NoRotation { .. }
                | CaError::StillTrusted(_)
                | CaError::Compromised(_) => Refusal::conflict(error.to_string()),
                error => Refusal::internal(format!("cannot rotate {name}: {}", chain(&error))),
            })
        });
        let changed = changed.await?;
        // The next job is compiled with the new stage.
        self.load().await?;
        Ok(changed)
    }
}

impl Snapshot {
    /// Refuses to begin a rotation in the middle of an upgrade: the states of an older bundle may not
    /// know its stages.
    pub(super) fn refuse_two_bundles(&self, name: &str) -> Result<(), Refusal> {
        let bundles = self.declaration().bundles_in_use();
        if bundles.len() < 2 {
            return Ok(());
        }
        let bundles: Vec<&str> = bundles.iter().map(|bundle| bundle.as_str()).collect();
        let bundles = bundles.join(" and ");
        Err(Refusal::conflict(format!(
            "cannot begin to rotate {name} during an upgrade: the hosts have the bundles {bundles}; complete the upgrade first \
             (`ctl upgrade resume` continues one that is paused, `ctl upgrade status` shows how to continue one that has stopped), \
             then run the command again"
        )))
    }

    /// Refuses a low state that was compiled before the present stage of a rotation: a host would
    /// lose a CA that others already use.
    pub(super) fn refuse_earlier_stage(&self, low: &Value) -> Result<(), Refusal> {
        let rotated = ROTATED_CAS.into_iter().chain([SERVICE_ACCOUNTS]);
        let rotated: Vec<&str> = rotated
            .filter(|name| self.cas.rotation(name).is_some())
            .collect();
        if rotated.is_empty() {
            return Ok(());
        }
        let text = low.to_string();
        match rotated
            .iter()
            .find(|name| is_earlier(&self.cas, name, &text))
        {
            None => Ok(()),
            Some(name) => Err(Refusal::conflict(format!(
                "these states were compiled before the present stage of the rotation of {name}; run the command again"
            ))),
        }
    }
}

/// Returns whether a text of JSON has one of two certificates, but not both in the present order, or
/// one that is not trusted any more.
fn is_earlier(cas: &Cas, name: &str, text: &str) -> bool {
    let has = |pem: &str| {
        let escaped = Value::from(pem.trim()).to_string();
        text.contains(escaped.trim_matches('"'))
    };
    let Some(two) = cas.two(name) else {
        return cas.dropped(name).is_some_and(has);
    };
    two.iter().any(|pem| has(pem)) && !has(&format!("{}\n{}", two[0].trim(), two[1].trim()))
}

#[cfg(test)]
mod tests {
    use halite_pillar::ca_rotation::RotationStage::{Only, Sign, Trust};
    use serde_json::json;

    use super::*;

    #[test]
    fn states_of_an_earlier_stage_are_recognised_by_their_certificates() {
        let directory = tempfile::tempdir().unwrap();
        let now = 1_800_000_000_000;
        let cas = Cas::create_or_load(directory.path(), "prod", now).unwrap();
        let low = |cas: &Cas| {
            let ca = cas.certificate_pem("kubernetes").unwrap();
            json!({"chunks": [{"args": {"contents": ca}}]}).to_string()
        };
        let before = low(&cas);
        assert!(!is_earlier(&cas, "kubernetes", &before));
        cas.begin_stage("kubernetes", Trust, "prod", now).unwrap();
        let trust = low(&cas);
        cas.begin_stage("kubernetes", Sign, "prod", now).unwrap();
        let sign = low(&cas);
        for (low, earlier) in [(&before, true), (&trust, true), (&sign, false)] {
            assert_eq!(is_earlier(&cas, "kubernetes", low), earlier);
        }
        cas.begin_stage("kubernetes", Only, "prod", now).unwrap();
        let only = low(&cas);
        for (low, earlier) in [(&before, true), (&sign, true), (&only, false)] {
            assert_eq!(is_earlier(&cas, "kubernetes", low), earlier);
        }
        assert!(!is_earlier(&cas, "kubernetes", "{}"));
        assert!(!is_earlier(&cas, "etcd", &before));
    }
}
