//! The containers that run on a host, compared with the status of its pods.
//!
//! One difference is the kubelet's own and is only printed: a kubelet that stops while containerd
//! starts a container, as after a power cut, starts that container of the same pod once more, and
//! stops neither before the pod ends (kubernetes/kubernetes issues 98520, 122585). The first may
//! only have been created: the kubelet keeps one stopped container of each. Halite starts no
//! container; it could only leave behind a pod of an earlier manifest, which has another uid.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, bail};
use halite_lab::host::Host;
use serde_json::Value;

/// The ids of containers and sandboxes whose task exists, sorted.
pub fn running(host: &Host) -> Result<Vec<String>> {
    let text = host.sh("ctr -n k8s.io tasks ls -q | sort")?;
    Ok(text.lines().map(str::to_owned).collect())
}

/// Fails unless exactly the containers in the status of `pods` run on the host, and one sandbox of
/// each pod; the error names each leftover container. Comparing numbers is not enough: after a
/// power cut the API shows the earlier containers until the kubelet reports the new ones.
pub fn are_of_pods(host: &Host, pods: &[&Value]) -> Result<()> {
    let difference = Difference::of(pods, &running(host)?);
    if difference.is_none(pods.len()) {
        return Ok(());
    }
    let facts = |ids: &[String]| -> Vec<Found> {
        ids.iter().map(|id| (id.clone(), facts(host, id))).collect()
    };
    let tasks = host.sh("ctr -n k8s.io tasks ls").unwrap_or_default();
    let (known, others) = (facts(&difference.known), facts(&difference.others));
    let (twice, others) = started_twice(others, &known, &tasks);
    if others.len() == pods.len() && difference.gone.is_empty() {
        for (id, facts) in twice {
            println!(
                "  on {} the kubelet started {id} twice: {}",
                host.spec.name, facts.text
            );
        }
        return Ok(());
    }
    let others = [others, twice].concat();
    let names = pods.iter().map(|pod| name(pod)).collect();
    let mut lines = wrong(&others, &names, &tasks);
    let gone = difference.gone.iter();
    lines.extend(gone.map(|id| format!("{id} is in the status of a pod and does not run")));
    bail!(
        "{} containers of {} pods run on {}, and {} others:\n  {}",
        difference.known.len(),
        pods.len(),
        host.spec.name,
        others.len(),
        lines.join("\n  ")
    )
}

/// A comparison of running containers with the status of pods.
#[derive(Debug, Default, PartialEq, Eq)]
struct Difference {
    /// Containers that run and are in the status of a pod.
    known: Vec<String>,
    /// Containers that run and are in no status: the API does not name sandboxes.
    others: Vec<String>,
    /// Containers that are in the status of a pod and do not run.
    gone: Vec<String>,
}

impl Difference {
    fn of(pods: &[&Value], running: &[String]) -> Self {
        let known: BTreeSet<&str> = pods
            .iter()
            .filter_map(|pod| pod["status"]["containerStatuses"].as_array())
            .flatten()
            .filter_map(|container| container["containerID"].as_str()?.rsplit('/').next())
            .collect();
        let running: BTreeSet<&str> = running.iter().map(String::as_str).collect();
        let owned = |id: &&str| (*id).to_owned();
        Self {
            known: known.intersection(&running).map(owned).collect(),
            others: running.difference(&known).map(owned).collect(),
            gone: known.difference(&running).map(owned).collect(),
        }
    }

    fn is_none(&self, pods: usize) -> bool {
        self.others.len() == pods && self.gone.is_empty()
    }
}

/// containerd's facts about a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Facts {
    /// Namespace and name of its pod.
    pod: String,
    /// `true` for the sandbox of a pod.
    is_sandbox: bool,
    /// The uid of its pod, and its name there; `None` if containerd does not report them.
    place: Option<(String, String)>,
    /// Everything that helps to find it in a journal.
    text: String,
}

/// The id of a container, and its facts.
type Found = (String, Facts);

fn name(pod: &Value) -> String {
    let text = |key: &str| pod["metadata"][key].as_str().unwrap_or_default();
    format!("{}/{}", text("namespace"), text("name"))
}

fn facts(host: &Host, id: &str) -> Facts {
    let info = || -> Result<Value> {
        let text = host.run(&["ctr", "-n", "k8s.io", "containers", "info", id])?;
        serde_json::from_str(&text).context("ctr did not print JSON")
    };
    match info() {
        Ok(info) => from_info(&info),
        // It may have ended in the meantime.
        Err(error) => Facts {
            text: format!("{error:#}"),
            ..Facts::default()
        },
    }
}

fn from_info(info: &Value) -> Facts {
    let label = |name: &str| info["Labels"][name].as_str().unwrap_or_default().to_owned();
    let kind = label("io.cri-containerd.kind");
    let pod = format!(
        "{}/{}",
        label("io.kubernetes.pod.namespace"),
        label("io.kubernetes.pod.name")
    );
    let text = format!(
        "{kind} {} of {pod}, uid {}, made at {}",
        label("io.kubernetes.container.name"),
        label("io.kubernetes.pod.uid"),
        info["CreatedAt"].as_str().unwrap_or_default()
    );
    let place = (
        label("io.kubernetes.pod.uid"),
        label("io.kubernetes.container.name"),
    );
    Facts {
        pod,
        is_sandbox: kind == "sandbox",
        place: (kind == "container" && !place.0.is_empty()).then_some(place),
        text,
    }
}

/// The state of a container in the list that `ctr tasks ls` prints.
fn state<'a>(tasks: &'a str, id: &str) -> &'a str {
    let line = tasks.lines().find(|line| line.starts_with(id));
    line.and_then(|line| line.split_whitespace().last())
        .unwrap_or("ended")
}

/// Separates containers that run, or were created, in addition to one of the same pod and name that
/// the API knows, from all others. A stopped one is being removed.
fn started_twice(others: Vec<Found>, known: &[Found], tasks: &str) -> (Vec<Found>, Vec<Found>) {
    let places: BTreeSet<_> = known
        .iter()
        .filter_map(|(_, facts)| facts.place.as_ref())
        .collect();
    let is_second = |facts: &Facts| facts.place.as_ref().is_some_and(|p| places.contains(p));
    others.into_iter().partition(|(id, facts)| {
        is_second(facts) && ["RUNNING", "CREATED"].contains(&state(tasks, id))
    })
}

/// A line for each container that should not run, with its state in the list `tasks`, and for each
/// pod without a sandbox. Of two sandboxes of one pod both are named.
fn wrong(others: &[Found], pods: &BTreeSet<String>, tasks: &str) -> Vec<String> {
    let mut sandboxes: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, facts) in others.iter().filter(|(_, facts)| facts.is_sandbox) {
        *sandboxes.entry(facts.pod.as_str()).or_default() += 1;
    }
    let is_right = |facts: &Facts| {
        facts.is_sandbox && pods.contains(&facts.pod) && sandboxes[facts.pod.as_str()] == 1
    };
    let mut lines: Vec<String> = others
        .iter()
        .filter(|(_, facts)| !is_right(facts))
        .map(|(id, facts)| format!("{id} ({}): {}", state(tasks, id), facts.text))
        .collect();
    let without = pods
        .iter()
        .filter(|pod| !sandboxes.contains_key(pod.as_str()));
    lines.extend(without.map(|pod| format!("{pod} has no sandbox")));
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, ids: &[&str]) -> Value {
        let statuses: Vec<Value> = ids
            .iter()
            .map(|id| json!({"containerID": format!("containerd://{id}")}))
            .collect();
        json!({
            "metadata": {"namespace": "ns", "name": name},
            "status": {"containerStatuses": statuses},
        })
    }

    fn compared(pods: &[Value], running: &[&str]) -> Difference {
        let running: Vec<String> = running.iter().map(|id| (*id).to_owned()).collect();
        Difference::of(&pods.iter().collect::<Vec<_>>(), &running)
    }

    fn other(id: &str, kind: &str, pod: &str) -> (String, Facts) {
        let info = json!({"CreatedAt": "2026-01-02T03:04:05Z", "Labels": {
            "io.cri-containerd.kind": kind, "io.kubernetes.container.name": "it",
            "io.kubernetes.pod.namespace": "ns", "io.kubernetes.pod.name": pod,
            "io.kubernetes.pod.uid": "u"}});
        (id.to_owned(), from_info(&info))
    }

    #[test]
    fn a_sandbox_of_each_pod_beside_its_containers_is_right() {
        let pods = [pod("a", &["1"]), pod("b", &["2", "3"])];
        assert!(compared(&pods, &["1", "2", "3", "s", "t"]).is_none(2));
        let more = compared(&pods, &["1", "2", "3", "s", "t", "u"]);
        assert!(!more.is_none(2));
        assert_eq!((more.known.len(), more.others.len()), (3, 3));
    }

    #[test]
    fn a_status_from_before_a_restart_is_a_difference_although_as_many_run() {
        let before = compared(&[pod("a", &["1"])], &["new", "s"]);
        assert!(!before.is_none(1));
        assert_eq!(before.gone, ["1"]);
        assert_eq!(before.others, ["new", "s"]);
    }

    #[test]
    fn only_a_container_of_the_same_pod_and_name_was_started_twice() {
        let known = [other("1", "container", "a")];
        let mut before = other("old", "container", "a");
        before.1.place = Some(("uid of the earlier manifest".to_owned(), "it".to_owned()));
        let others = vec![
            other("s", "sandbox", "a"),
            other("2", "container", "a"),
            other("3", "container", "a"),
            other("4", "container", "a"),
            before,
            ("gone".to_owned(), Facts::default()),
        ];
        let tasks = "TASK PID STATUS\n2 7 RUNNING\n3 8 STOPPED\n4 8 CREATED\nold 9 RUNNING\n";
        let (twice, others) = started_twice(others, &known, tasks);
        let ids = |all: Vec<Found>| all.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(twice), ["2", "4"]);
        assert_eq!(ids(others), ["s", "3", "old", "gone"]);
    }

    #[test]
    fn a_leftover_is_named_with_its_state_and_pod() {
        let others = [
            other("s", "sandbox", "a"),
            other("t", "sandbox", "b"),
            other("u", "sandbox", "b"),
            other("v", "container", "a"),
            other("w", "sandbox", "gone"),
        ];
        let pods = ["ns/a", "ns/b", "ns/c"].map(str::to_owned).into();
        let tasks = "TASK PID STATUS\nt 7 RUNNING\nu 8 RUNNING\nv 9 STOPPED\n";
        let lines = wrong(&others, &pods, tasks);
        let begins: Vec<&str> = lines
            .iter()
            .map(|line| line.split(", uid").next().unwrap())
            .collect();
        assert_eq!(
            begins,
            [
                "t (RUNNING): sandbox it of ns/b",
                "u (RUNNING): sandbox it of ns/b",
                "v (STOPPED): container it of ns/a",
                "w (ended): sandbox it of ns/gone",
                "ns/c has no sandbox",
            ]
        );
    }
}
