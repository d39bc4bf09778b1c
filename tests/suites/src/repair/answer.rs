//! The answer of `ctl highstate`.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail};
use halite_api::{JobOutcome, from_text};
use halite_lab::cluster::{CTL, Cluster};
use halite_states::low::StateReturn;

use super::low::{Tag, tag};

/// A finished highstate.
#[derive(Debug, Clone, Default)]
pub struct HighstateAnswer {
    /// States that changed something, or would.
    pub changed: BTreeSet<Tag>,
    /// Changed states that can be known for certain only after an apply.
    pub open: BTreeSet<Tag>,
    /// Failures, as text for messages.
    pub failed: Vec<String>,
    /// Hosts whose minion was updated before the other states, or would be.
    pub updated_first: BTreeSet<String>,
}

impl HighstateAnswer {
    /// Parses the document that `ctl highstate -o json` prints.
    pub fn parse(text: &str) -> Result<Self> {
        let document: JobOutcome =
            from_text(text).context("cannot read the answer of `ctl highstate -o json`")?;
        let mut answer = Self::default();
        for (minion, part) in document.minions {
            if let Some(error) = part.error {
                answer.failed.push(format!("{minion}: {error}"));
            }
            let states = part.states.unwrap_or_default();
            if states.is_empty() {
                answer
                    .failed
                    .push(format!("{minion} returned no states: {:?}", part.answer));
            }
            for state in &states {
                answer.take(&minion, state);
            }
        }
        for update in document.minion_updates {
            let hosts = update.hosts.into_iter().map(String::from);
            answer.updated_first.extend(hosts);
        }
        if document.retcode != 0 && answer.failed.is_empty() {
            answer
                .failed
                .push(format!("return code {}", document.retcode));
        }
        Ok(answer)
    }

    fn take(&mut self, minion: &str, state: &StateReturn) {
        let tag = tag(minion, &state.function, &state.name, &state.id);
        if state.result == Some(false) {
            self.failed.push(format!("{tag}: {}", state.comment));
        }
        if !state.changes.is_empty() || state.result.is_none() {
            if format!("{state:?}").contains("known after apply") {
                self.open.insert(tag.clone());
            }
            self.changed.insert(tag);
        }
    }
}

/// Runs `ctl highstate -o json` with further arguments; an error if a state fails.
pub fn highstate(cluster: &Cluster, args: &[&str]) -> Result<HighstateAnswer> {
    highstate_by(cluster, CTL, args)
}

/// The same as [`highstate`], with the given `ctl`.
pub fn highstate_by(cluster: &Cluster, ctl: &str, args: &[&str]) -> Result<HighstateAnswer> {
    let mut all = vec![ctl, "highstate", "-o", "json"];
    all.extend(args);
    let output = cluster.bootstrap.output(&all)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let answer = HighstateAnswer::parse(&text).with_context(|| {
        format!(
            "ctl ended with {}: {}{text}",
            output.status,
            String::from_utf8_lossy(&output.stderr)
        )
    })?;
    if !answer.failed.is_empty() || !output.status.success() {
        bail!(
            "{} ended with {}:\n{}",
            all.join(" "),
            output.status,
            answer.failed.join("\n")
        );
    }
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use halite_api::{MinionOutcome, MinionUpdate, to_text};

    use super::*;

    #[test]
    fn changes_and_failures_are_distinguished() {
        let state = |function: &str, id: &str, result: Option<bool>, is_changed: bool| {
            let changes = is_changed.then(|| ("diff".to_owned(), "d".into()));
            StateReturn {
                index: 0,
                id: id.to_owned(),
                name: id.to_owned(),
                function: function.to_owned(),
                sls: "s".to_owned(),
                result,
                changes: changes.into_iter().collect(),
                comment: match result {
                    None => "would: known after apply".to_owned(),
                    Some(_) => "no".to_owned(),
                },
                start_time: String::new(),
                duration: 0.0,
                run_num: 0,
                ran: true,
                fail_run: true,
            }
        };
        let a = MinionOutcome {
            states: Some(vec![
                state("file.managed", "/x", Some(true), true),
                state("file.managed", "/y", Some(true), false),
                state("image.present", "i", None, true),
                state("pkg.installed", "p", Some(false), false),
            ]),
            ..MinionOutcome::default()
        };
        let b = MinionOutcome {
            error: Some("not connected".to_owned()),
            ..MinionOutcome::default()
        };
        let outcome = JobOutcome {
            retcode: 1,
            minions: [("a".parse().unwrap(), a), ("b".parse().unwrap(), b)].into(),
            minion_updates: vec![MinionUpdate {
                job: "20261121000000123000".parse().unwrap(),
                hosts: vec!["a".parse().unwrap()],
                because: String::new(),
                then: String::new(),
            }],
            ..JobOutcome::default()
        };
        let text = &to_text(&outcome);
        let answer = HighstateAnswer::parse(text).unwrap();
        assert!(answer.updated_first.iter().eq(["a"]));
        assert_eq!(answer.changed.len(), 2);
        assert_eq!(answer.open.iter().next().unwrap(), "a: image.present i [i]");
        assert_eq!(answer.failed.len(), 3, "{:?}", answer.failed);
    }
}
