//! The changes of a command on the hosts that it is not about, by the records of its jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_states::low::RunReturn;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::kills::jobs;

/// The state with the firewall's sets of addresses.
const SETS: &str = "halite-sets";
/// The state with the names that are restored in `/etc/hosts` at boot.
const NAMES: &str = "/var/lib/halite/restore-names.sh";

/// The states that changed something, with their changes, by host.
type Changed = BTreeMap<String, BTreeMap<String, Map<String, Value>>>;

/// The jobs of a host's master since a moment.
pub struct Since<'a> {
    first: &'a Host,
    newest: String,
}

impl<'a> Since<'a> {
    /// Starts now.
    ///
    /// # Errors
    /// The master does not answer.
    pub fn now(first: &'a Host) -> Result<Self> {
        let newest = jobs::newest(first)?;
        Ok(Self { first, newest })
    }

    /// The returns of hosts to orchestrations since then: minion and run.
    fn returned(&self) -> Result<Vec<(String, RunReturn)>> {
        let mut all = Vec::new();
        for job in jobs::list(self.first)? {
            let of_a_run = job.operator.starts_with("run:");
            if job.job.as_str() <= self.newest.as_str() || !of_a_run || job.test {
                continue;
            }
            let job = jobs::show(self.first, &job.job)?;
            for part in job.returns.context("no returns")? {
                let run = part.answer.and_then(|answer| answer.states());
                all.push((part.minion.to_string(), run.unwrap_or_default()));
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

    /// The hosts on which orchestrations have changed something since then.
    ///
    /// # Errors
    /// The master does not answer.
    pub fn touched(&self) -> Result<BTreeSet<String>> {
        let mut changed = self.changed()?;
        changed.retain(|_, states| !states.is_empty());
        Ok(changed.into_keys().collect())
    }

    /// The time that each host has since spent on states that orchestrations sent it: the sum of
    /// the durations that its minion has measured, including waits for its own pods and services.
    ///
    /// # Errors
    /// The master does not answer, or a state has no duration.
    pub fn work(&self) -> Result<BTreeMap<String, Duration>> {
        let mut work = BTreeMap::new();
        for (minion, run) in self.returned()? {
            *work.entry(minion).or_default() += spent(&run);
        }
        Ok(work)
    }

    /// Checks that orchestrations have sent states since then, and that no state has changed
    /// anything.
    pub(crate) fn changed_nothing(&self) -> Result<()> {
        let mut changed = self.changed()?;
        ensure!(!changed.is_empty(), "no states were sent");
        changed.retain(|_, states| !states.is_empty());
        ensure!(changed.is_empty(), "{changed:#?}");
        Ok(())
    }

    /// Checks that the addition of a host has changed on each other host only its name and its
    /// entries in the sets of addresses: no service was reloaded, and no file written except
    /// `/etc/hosts` and the names that are restored in it at boot.
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

/// The time that the states of a run took; their durations are in milliseconds.
fn spent(run: &RunReturn) -> Duration {
    let states = run.states.iter();
    states
        .map(|state| Duration::from_secs_f64(state.duration / 1000.0))
        .sum()
}

/// Adds the states of a run that changed something.
fn note(changed: &mut BTreeMap<String, Map<String, Value>>, run: &RunReturn) {
    for state in run.states.iter().filter(|state| !state.changes.is_empty()) {
        let own = changed.entry(state.id.clone()).or_default();
        own.extend(state.changes.clone());
    }
}

/// The changes of one set in one configuration, if they are additions only.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AddedEntries {
    added: Vec<String>,
}

/// Checks that the changes of sets are additions of these addresses.
fn only_adds(sets: &Map<String, Value>, addresses: &[String]) -> Result<()> {
    for (set, change) in sets {
        let wrong = || format!("{set}: {change} is not an addition of {addresses:?}");
        let both = BTreeMap::<String, AddedEntries>::deserialize(change).with_context(wrong)?;
        for AddedEntries { added } in both.values() {
            let is_own = added.iter().all(|entry| addresses.contains(entry));
            ensure!(!added.is_empty() && is_own, wrong());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use halite_states::low::StateReturn;
    use serde_json::json;

    use super::*;

    fn state(id: &str, changes: &Value, duration: f64) -> StateReturn {
        serde_json::from_value(json!({
            "index": 0, "__id__": id, "name": id, "function": "f", "__sls__": "s", "result": true, "changes": changes,
            "comment": "", "start_time": "", "duration": duration, "__run_num__": 0, "__state_ran__": true,
        }))
        .unwrap()
    }

    #[test]
    fn the_durations_of_a_run_are_added() {
        let none = json!({});
        let states = vec![state("a", &none, 1.5), state("b", &none, 1000.0)];
        let run = RunReturn { states };
        assert_eq!(spent(&run), Duration::from_micros(1_001_500));
        assert_eq!(spent(&RunReturn::default()), Duration::ZERO);
    }

    #[test]
    fn states_that_changed_nothing_are_left_out_and_sets_may_only_grow_by_the_new_host() {
        let grown = json!({"halite-nodes": {"permanent": {"added": ["10.10.0.14"]}, "runtime": {"added": ["10.10.0.14"]}}});
        let mut changed = BTreeMap::new();
        let states = vec![
            state("firewalld", &json!({}), 0.0),
            state(SETS, &grown, 0.0),
        ];
        note(&mut changed, &RunReturn { states });
        note(&mut changed, &RunReturn::default());
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
