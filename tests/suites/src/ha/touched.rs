//! What a command has changed on the hosts that it is not about, by the records of its jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use serde_json::{Map, Value};

use crate::kills::jobs;

/// The state with the firewall's sets of addresses.
const SETS: &str = "halite-sets";
/// The state with the names that come back into `/etc/hosts` at a boot.
const NAMES: &str = "/var/lib/halite/restore-names.sh";

/// The states that changed something, with their changes, by host.
type Changed = BTreeMap<String, BTreeMap<String, Map<String, Value>>>;

/// The jobs of a host's master from a moment on.
pub struct Since<'a> {
    first: &'a Host,
    newest: String,
}

impl<'a> Since<'a> {
    /// From now on.
    ///
    /// # Errors
    /// The master does not answer.
    pub fn now(first: &'a Host) -> Result<Self> {
        let newest = jobs::newest(first)?;
        Ok(Self { first, newest })
    }

    /// What hosts have returned to orchestrations since then: minion and run.
    fn returned(&self) -> Result<Vec<(String, Value)>> {
        let mut all = Vec::new();
        for job in jobs::list(self.first)? {
            let jid = jobs::jid(&job);
            let of_a_run = (job["operator"].as_str()).is_some_and(|of| of.starts_with("run:"));
            if jid <= self.newest || !of_a_run || job["test"] == true {
                continue;
            }
            let mut job = jobs::show(self.first, &jid)?;
            for row in job["returns"].as_array_mut().context("no returns")? {
                let minion = row["minion"].as_str().context("no minion")?.to_owned();
                all.push((minion, row["return"].take()));
            }
        }
        Ok(all)
    }

    /// The states that orchestrations have changed since then.
    fn changed(&self) -> Result<Changed> {
        let mut changed = Changed::new();
        for (minion, run) in self.returned()? {
            note(changed.entry(minion).or_default(), &run);
        }
        Ok(changed)
    }

    /// The time that each host has spent since then on states that orchestrations sent it: the sum of the
    /// durations that its minion has measured, waits for its own pods and services included.
    ///
    /// # Errors
    /// The master does not answer, or a state has no duration.
    pub fn work(&self) -> Result<BTreeMap<String, Duration>> {
        let mut work = BTreeMap::new();
        for (minion, run) in self.returned()? {
            *work.entry(minion).or_default() += spent(&run)?;
        }
        Ok(work)
    }

    /// Checks that orchestrations have sent states since then, and that none has changed anything.
    pub(crate) fn changed_nothing(&self) -> Result<()> {
        let mut changed = self.changed()?;
        ensure!(!changed.is_empty(), "no states were sent");
        changed.retain(|_, states| !states.is_empty());
        ensure!(changed.is_empty(), "{changed:#?}");
        Ok(())
    }

    /// Checks that the addition of a host has changed on each other host its name and its entries in the
    /// sets of addresses, and nothing else: no service was reloaded, and no file written but `/etc/hosts` and the
    /// names that come back into it at a boot.
    pub(super) fn added_only(&self, cluster: &Cluster, added: &Host) -> Result<()> {
        let new = added.spec.name.as_str();
        let named = format!("node-name-{new}");
        let wanted = BTreeSet::from([SETS, named.as_str(), NAMES]);
        let addresses = [added.control_plane_address(), added.workload_address()];
        let changed = self.changed()?;
        ensure!(
            changed.get(new).is_some_and(|states| states.len() > 20),
            "the jobs do not show what changed on {new}: {changed:#?}"
        );
        for host in cluster.hosts() {
            let name = host.spec.name.as_str();
            if name == new {
                continue;
            }
            let own = changed.get(name).cloned().unwrap_or_default();
            let ids: BTreeSet<&str> = own.keys().map(String::as_str).collect();
            ensure!(
                ids == wanted,
                "on {name} {new} has changed {ids:?}, not {wanted:?}: {own:#?}"
            );
            let sets = own.get(SETS).context("no sets")?;
            only_adds(sets, &addresses).with_context(|| format!("{SETS} on {name}"))?;
        }
        Ok(())
    }
}

/// The time that the states of a run took, whose durations are in milliseconds.
fn spent(run: &Value) -> Result<Duration> {
    let mut spent = Duration::ZERO;
    for state in run["states"].as_array().into_iter().flatten() {
        let time = state["duration"].as_f64().context("no duration")?;
        spent += Duration::from_secs_f64(time / 1000.0);
    }
    Ok(spent)
}

/// Adds the states of a run that changed something.
fn note(changed: &mut BTreeMap<String, Map<String, Value>>, run: &Value) {
    for state in run["states"].as_array().into_iter().flatten() {
        let changes = state["changes"].as_object().cloned().unwrap_or_default();
        if !changes.is_empty() {
            let id = state["__id__"].as_str().unwrap_or_default();
            changed.entry(id.to_owned()).or_default().extend(changes);
        }
    }
}

/// Checks that the changes of sets are additions of these addresses.
fn only_adds(sets: &Map<String, Value>, addresses: &[String]) -> Result<()> {
    for (set, change) in sets {
        let both = change.as_object().context("no changes")?;
        for (configuration, change) in both {
            let change = change.as_object().context("no changes")?;
            let entries = change.get("added").and_then(Value::as_array);
            let entries = entries.into_iter().flatten().filter_map(Value::as_str);
            let entries: Vec<&str> = entries.collect();
            ensure!(
                change.len() == 1
                    && !entries.is_empty()
                    && (entries.iter()).all(|entry| addresses.iter().any(|own| own == entry)),
                "{set}, {configuration}: {change:?} is no addition of {addresses:?}"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_durations_of_a_run_are_added_and_none_may_be_missing() {
        let run = json!({"states": [{"duration": 1.5}, {"duration": 1000.0}]});
        assert_eq!(spent(&run).unwrap(), Duration::from_micros(1_001_500));
        assert_eq!(spent(&Value::Null).unwrap(), Duration::ZERO);
        spent(&json!({"states": [{"duration": 1.0}, {}]})).unwrap_err();
    }

    #[test]
    fn states_that_changed_nothing_are_left_out_and_sets_may_only_grow_by_the_new_host() {
        let grown = json!({"halite-nodes": {"permanent": {"added": ["10.10.0.14"]}, "runtime": {"added": ["10.10.0.14"]}}});
        let mut changed = BTreeMap::new();
        let state = |id: &str, changes: &Value| json!({"__id__": id, "changes": changes});
        let run = json!({"states": [state("firewalld", &json!({})), state(SETS, &grown)]});
        note(&mut changed, &run);
        note(&mut changed, &Value::Null);
        assert_eq!(changed.keys().collect::<Vec<_>>(), [SETS]);
        let own = ["10.10.0.14".to_owned(), "10.20.0.14".to_owned()];
        only_adds(&changed[SETS], &own).unwrap();
        only_adds(&changed[SETS], &own[1..]).unwrap_err();
        for worse in [
            json!({"x": {"runtime": {"removed": ["10.10.0.14"]}}}),
            json!({"x": {"runtime": {"added": ["10.10.0.14"], "new": true}}}),
        ] {
            only_adds(worse.as_object().unwrap(), &own).unwrap_err();
        }
    }
}
