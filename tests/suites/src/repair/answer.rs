//! The answer of `ctl highstate`.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail};
use halite_lab::cluster::{CTL, Cluster};
use serde_json::Value;

use super::low::{Tag, tag};

/// A finished highstate.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// States that changed something, or would.
    pub changed: BTreeSet<Tag>,
    /// Changed states that can be known for certain only after an apply.
    pub open: BTreeSet<Tag>,
    /// Failures, as text for messages.
    pub failed: Vec<String>,
    /// Hosts whose minion was updated before the other states, or would be.
    pub updated_first: BTreeSet<String>,
}

impl Answer {
    /// Parses the document that `ctl highstate -o json` prints.
    pub fn parse(text: &str) -> Result<Self> {
        let document: Value =
            serde_json::from_str(text).context("`ctl highstate -o json` did not print JSON")?;
        let mut answer = Self::default();
        for (minion, part) in document["minions"]
            .as_object()
            .context("an answer without minions")?
        {
            if let Some(error) = part["error"].as_str() {
                answer.failed.push(format!("{minion}: {error}"));
            }
            let states = part["states"].as_array().cloned().unwrap_or_default();
            if states.is_empty() {
                answer
                    .failed
                    .push(format!("{minion} returned no states: {}", part["return"]));
            }
            for state in &states {
                answer.take(minion, state);
            }
        }
        for update in document["minionUpdates"].as_array().into_iter().flatten() {
            let hosts = update["hosts"].as_array().into_iter().flatten();
            let hosts = hosts.filter_map(Value::as_str).map(str::to_owned);
            answer.updated_first.extend(hosts);
        }
        if document["retcode"] != 0 && answer.failed.is_empty() {
            answer
                .failed
                .push(format!("return code {}", document["retcode"]));
        }
        Ok(answer)
    }

    fn take(&mut self, minion: &str, state: &Value) {
        let text = |key: &str| state[key].as_str().unwrap_or_default();
        let tag = tag(minion, text("function"), text("name"), text("__id__"));
        if state["result"] == false {
            self.failed.push(format!("{tag}: {}", text("comment")));
        }
        let changes = state["changes"]
            .as_object()
            .is_some_and(|changes| !changes.is_empty());
        if changes || state["result"].is_null() {
            if state.to_string().contains("known after apply") {
                self.open.insert(tag.clone());
            }
            self.changed.insert(tag);
        }
    }
}

/// Runs `ctl highstate -o json` with further arguments; an error if a state fails.
pub fn highstate(cluster: &Cluster, args: &[&str]) -> Result<Answer> {
    highstate_by(cluster, CTL, args)
}

/// The same as [`highstate`], with the given `ctl`.
pub fn highstate_by(cluster: &Cluster, ctl: &str, args: &[&str]) -> Result<Answer> {
    let mut all = vec![ctl, "highstate", "-o", "json"];
    all.extend(args);
    let output = cluster.bootstrap.output(&all)?;
    let text = String::from_utf8_lossy(&output.stdout);
    let answer = Answer::parse(&text).with_context(|| {
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
    use super::*;

    #[test]
    fn changes_and_failures_are_distinguished() {
        let text = r#"{"retcode": 1, "minionUpdates": [{"hosts": ["a"], "because": "", "then": ""}], "minions": {
            "a": {"states": [
                {"function": "file.managed", "name": "/x", "__id__": "/x", "result": true, "changes": {"diff": "d"}, "comment": ""},
                {"function": "file.managed", "name": "/y", "__id__": "/y", "result": true, "changes": {}, "comment": ""},
                {"function": "image.present", "name": "i", "__id__": "i", "result": null, "changes": {"i": 1}, "comment": "would: known after apply"},
                {"function": "pkg.installed", "name": "p", "__id__": "p", "result": false, "changes": {}, "comment": "no"}]},
            "b": {"error": "not connected", "return": null}}}"#;
        let answer = Answer::parse(text).unwrap();
        assert!(answer.updated_first.iter().eq(["a"]));
        assert_eq!(answer.changed.len(), 2);
        assert_eq!(answer.open.iter().next().unwrap(), "a: image.present i [i]");
        assert_eq!(answer.failed.len(), 3, "{:?}", answer.failed);
    }
}
