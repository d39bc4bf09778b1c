//! The stages of a CA's rotation, and low states that were compiled before one.

use std::sync::Arc;

use halite_errors::chain;
use halite_pillar::ca_rotation::{ROTATED, RotationStage, SERVICE_ACCOUNTS};
use serde_json::Value;

use super::{Declarations, Snapshot, in_background};
use crate::ca::{CaError, Cas, Unfinished};
use crate::clock::rfc3339;
use crate::refusal::Refusal;

/// The names of the states with CAs begin like this.
const OWN_STATES: &str = "halite.";

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
    /// The CA cannot be rotated now, such as in the middle of an upgrade, or a file cannot be
    /// written.
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
                | CaError::RequestWaits(_)
                | CaError::Imported { .. }
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
    /// Refuses to begin a rotation in the middle of an upgrade: the states of an older bundle may
    /// not know its stages.
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

    /// The rotations that have begun and not ended, for operators: the CA, its stage, and the
    /// command that continues.
    #[must_use]
    pub fn unfinished_rotations(&self) -> Vec<String> {
        let each = ROTATED.into_iter();
        let texts = each.filter_map(|name| Some(unfinished(name, self.cas.unfinished(name)?)));
        texts.collect()
    }

    /// Refuses a low state that was compiled before the present stage of a rotation, or before one
    /// that has ended: a host would lose a CA that others already use, or get one back.
    pub(super) fn refuse_earlier_stage(&self, low: &Value) -> Result<(), Refusal> {
        let changed = |name: &&str| {
            self.cas.rotation(name).is_some() || self.cas.dropped(name).next().is_some()
        };
        let rotated: Vec<&str> = ROTATED.into_iter().filter(changed).collect();
        if rotated.is_empty() {
            return Ok(());
        }
        let (all, own) = (low.to_string(), of_halite(low));
        let is_old =
            |name: &&&str| is_earlier(&self.cas, name, &all) || has_dropped(&self.cas, name, &own);
        match rotated.iter().find(is_old) {
            None => Ok(()),
            Some(name) => Err(Refusal::conflict(format!(
                "these states were compiled before the last stage of the rotation of {name}; run the command again"
            ))),
        }
    }
}

fn unfinished(name: &str, rotation: Unfinished) -> String {
    let what = match name {
        SERVICE_ACCOUNTS => "the key pair of service accounts".to_owned(),
        name => format!("the CA {name}"),
    };
    let (stage, means) = match rotation.stage {
        RotationStage::Trust => ("trust", "both are trusted, and the old one signs"),
        RotationStage::Sign => ("sign", "both are trusted, and the new one signs"),
        RotationStage::Only => ("only", "the old one is leaving"),
    };
    let since = match rotation.began {
        0 => String::new(),
        began => format!(" since {}", rfc3339(began)),
    };
    let option = if rotation.compromised {
        " --compromised"
    } else {
        ""
    };
    format!(
        "the rotation of {what} has not ended: it has the stage `{stage}`{since} ({means}); \
         `ctl certs rotate {name}{option}` continues it, or shows the one that runs"
    )
}

/// The chunks of Halite's own states with CAs, as a text. Others may have an old CA for good.
fn of_halite(low: &Value) -> String {
    let chunks = low.get("chunks").and_then(Value::as_array);
    let is_own = |chunk: &&Value| {
        let sls = chunk.get("sls").and_then(Value::as_str);
        sls.is_some_and(|sls| sls.starts_with(OWN_STATES))
    };
    let own = chunks.into_iter().flatten().filter(is_own);
    own.map(Value::to_string).collect()
}

/// Returns whether a text of JSON has a certificate or a public key (PEM).
fn has(text: &str, pem: &str) -> bool {
    let escaped = Value::from(pem.trim()).to_string();
    text.contains(escaped.trim_matches('"'))
}

/// Returns whether a text of JSON has one of two certificates, but not both in the present order.
fn is_earlier(cas: &Cas, name: &str, text: &str) -> bool {
    let Some(two) = cas.two(name) else {
        return false;
    };
    let both = format!("{}\n{}", two[0].trim(), two[1].trim());
    two.iter().any(|pem| has(text, pem)) && !has(text, &both)
}

/// Returns whether a text of JSON has a certificate that is not trusted any more.
fn has_dropped(cas: &Cas, name: &str, text: &str) -> bool {
    cas.dropped(name).any(|pem| has(text, pem))
}

#[cfg(test)]
mod tests {
    use halite_pillar::ca_rotation::RotationStage::{Only, Sign, Trust};
    use serde_json::json;

    use super::*;

    /// As for a low state of Halite.
    fn is_old(cas: &Cas, name: &str, text: &str) -> bool {
        is_earlier(cas, name, text) || has_dropped(cas, name, text)
    }

    #[test]
    fn only_own_states_are_refused_for_good() {
        let chunk = |sls: &str| json!({"sls": sls, "args": {"contents": sls}});
        let low = json!({"chunks": [chunk("custom.kubeconfig"), chunk("halite.base.pki.etcd")]});
        let text = of_halite(&low);
        assert!(
            text.contains("halite.base.pki.etcd") && !text.contains("custom"),
            "{text}"
        );
        assert_eq!(of_halite(&json!({"fun": "x"})), "");
    }

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
        assert!(!is_old(&cas, "kubernetes", &before));
        cas.begin_stage("kubernetes", Trust, "prod", now).unwrap();
        let trust = low(&cas);
        cas.begin_stage("kubernetes", Sign, "prod", now).unwrap();
        let sign = low(&cas);
        for (low, earlier) in [(&before, true), (&trust, true), (&sign, false)] {
            assert_eq!(is_old(&cas, "kubernetes", low), earlier);
        }
        cas.begin_stage("kubernetes", Only, "prod", now).unwrap();
        let only = low(&cas);
        for (low, earlier) in [(&before, true), (&sign, true), (&only, false)] {
            assert_eq!(is_old(&cas, "kubernetes", low), earlier);
        }
        assert!(!is_old(&cas, "kubernetes", "{}"));
        assert!(!is_old(&cas, "etcd", &before));
        // A host that was off for the whole rotation gets its states afterwards.
        cas.end_rotation("kubernetes").unwrap();
        let ended = Cas::load(directory.path()).unwrap();
        for cas in [&cas, &ended] {
            for (low, earlier) in [
                (&before, true),
                (&trust, true),
                (&sign, true),
                (&only, false),
            ] {
                assert_eq!(is_old(cas, "kubernetes", low), earlier);
            }
        }
    }

    #[test]
    fn states_with_an_earlier_key_of_tokens_are_recognised_until_after_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let now = 1_800_000_000_000;
        let cas = Cas::create_or_load(directory.path(), "prod", now).unwrap();
        let low = |cas: &Cas| json!({"contents": cas.sa_public_pem()}).to_string();
        let mut lows = vec![low(&cas)];
        for stage in [Trust, Sign, Only] {
            cas.begin_stage("sa", stage, "prod", now).unwrap();
            lows.push(low(&cas));
        }
        let (only, earlier) = lows.split_last().unwrap();
        for ended in [false, true] {
            assert!(earlier.iter().all(|low| is_old(&cas, "sa", low)), "{ended}");
            assert!(!is_old(&cas, "sa", only), "{ended}");
            cas.end_rotation("sa").unwrap();
        }
    }

    #[test]
    fn an_unfinished_rotation_says_its_stage_its_time_and_its_command() {
        let directory = tempfile::tempdir().unwrap();
        let cas = Cas::create_or_load(directory.path(), "prod", 0).unwrap();
        cas.begin_stage("etcd", Only, "prod", 1_795_910_400_000)
            .unwrap();
        let text = unfinished("etcd", cas.unfinished("etcd").unwrap());
        let wanted = "the rotation of the CA etcd has not ended: it has the stage `only` since 2026-11-29T00:00:00.000Z (the old one is \
             leaving); `ctl certs rotate etcd --compromised` continues it, or shows the one that runs";
        assert_eq!(text, wanted);
        assert_eq!(cas.unfinished("sa"), None);
    }
}
