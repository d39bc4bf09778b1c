//! Gates: steps that ask whether the work behind them may start. Their answers hold only for the
//! moment.
//!
//! A resumed run does not repeat a step whose success is recorded, but a gate is asked again until
//! the work behind it has begun: since its answer, another host may have gone away. Work that has
//! begun is completed without a question, because its own host may be what is missing by now.

use std::collections::BTreeSet;

use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::{Chunk, LowState};
use halite_store::{Step, StepStatus};

use super::step_detail::detail;
use super::step_runner::StepRunner;

/// The functions of gates. Some of them also move something off a host, which does nothing once
/// another host has it.
const GATES: [&str; 6] = [
    "etcd_leader_moved_off",
    "etcd_may_be_alone",
    "etcd_quorum_allows",
    "node_may_leave",
    "upgrade_turn",
    "vip_moved_off",
];

/// The first part of the operator's SLS around drains.
const HOOK: &str = "custom.hooks.";
/// The SLS that stops the API server of a host before the host reboots. The member of etcd on the
/// host still serves.
const API_SERVER_ASIDE: &str = "halite.base.control_plane.aside";

impl StepRunner<'_> {
    /// Returns whether a step that has succeeded is carried out again: it is a gate, and the work
    /// behind it has not begun.
    pub(super) fn asks_again(&self, index: usize) -> bool {
        self.between(index).is_some()
    }

    /// Waits for the jobs of the steps between a gate and the work behind it: if the gate refuses,
    /// its run ends and frees its locks, and then no host may still work for it.
    pub(super) async fn wait_for_jobs_behind(&self, index: usize) -> Result<(), Failure> {
        for between in self.between(index).unwrap_or_default() {
            let step = self.recorder.step(between);
            if step.is_some_and(|step| step.status == StepStatus::Running) {
                self.rows(between).await?;
            }
        }
        Ok(())
    }

    /// Adds to the failure of a gate that its run leaves the host cordoned, also by a drain that
    /// the end of the master has interrupted.
    pub(super) fn with_drained_host(&self, chunk: &Chunk, failure: Failure) -> Failure {
        let node_of = |chunk: &Chunk| Args::new(chunk).text("node").ok().flatten();
        let own = node_of(chunk).filter(|_| is_gate(chunk));
        let has_started = |index: usize| {
            let step = self.recorder.step(index);
            let status = step.map(|step| step.status);
            matches!(status, Some(StepStatus::Running | StepStatus::Succeeded))
        };
        let is_cordoned = self.low.chunks.iter().enumerate().any(|(index, other)| {
            other.state == "halite"
                && other.fun == "drain"
                && node_of(other) == own
                && has_started(index)
        });
        match own {
            Some(node) if is_cordoned => Failure::new(format!(
                "{}; {node} stays cordoned; run the same command again to continue",
                failure.text()
            )),
            _ => failure,
        }
    }

    fn between(&self, index: usize) -> Option<BTreeSet<usize>> {
        steps_between(self.low, index, |index| self.recorder.step(index))
    }
}

/// The steps between a gate and the work behind it; `None` for other steps, and if this work has
/// begun or none is left.
fn steps_between(
    low: &LowState,
    gate: usize,
    recorded: impl Fn(usize) -> Option<Step>,
) -> Option<BTreeSet<usize>> {
    let own = low.chunks.get(gate).filter(|chunk| is_gate(chunk))?;
    let (mut between, mut open, mut is_left) = (BTreeSet::new(), vec![gate], false);
    while let Some(place) = open.pop() {
        let chunks = low.chunks.iter().enumerate();
        for (index, chunk) in chunks.filter(|(_, chunk)| requires(chunk, place)) {
            if precedes_work(chunk, own) {
                if between.insert(index) {
                    open.push(index);
                }
                continue;
            }
            let step = recorded(index)?;
            if has_begun(chunk, &step) {
                return None;
            }
            is_left |= step.status != StepStatus::Skipped;
        }
    }
    is_left.then_some(between)
}

fn is_gate(chunk: &Chunk) -> bool {
    chunk.state == "halite" && GATES.contains(&chunk.fun.as_str())
}

/// Returns whether a step runs only after the one at this place has succeeded.
fn requires(chunk: &Chunk, place: usize) -> bool {
    let own = &chunk.requisites;
    let lists = [&own.require, &own.require_any, &own.watch, &own.watch_any];
    lists.iter().any(|list| list.contains(&place))
}

/// Returns whether a step behind a gate is not yet the work that needs its answer: another gate, or
/// one that moves pods or requests off the host.
fn precedes_work(chunk: &Chunk, gate: &Chunk) -> bool {
    if is_gate(chunk) {
        return true;
    }
    // A host whose pods have moved has started its turn, and gets the whole bundle before a pause.
    if chunk.state != "halite" || gate.fun == "upgrade_turn" {
        return false;
    }
    let is_about_etcd = gate.fun.starts_with("etcd_");
    let leaves_it =
        |sls: &String| sls.starts_with(HOOK) || is_about_etcd && sls.as_str() == API_SERVER_ASIDE;
    match chunk.fun.as_str() {
        "drain" => true,
        "state" => {
            let sls = Args::new(chunk).list("sls").unwrap_or_default();
            !sls.is_empty() && sls.iter().all(leaves_it)
        }
        _ => false,
    }
}

/// Returns whether a step may have changed something. A job is recorded before it is made, so a
/// step that makes jobs has not reached a host before it has one: it may have waited for hours
/// while its master was isolated.
fn has_begun(chunk: &Chunk, step: &Step) -> bool {
    let makes_jobs = matches!(chunk.fun.as_str(), "function" | "reboot" | "state");
    match step.status {
        StepStatus::Waiting | StepStatus::Skipped => false,
        StepStatus::Running if makes_jobs => !detail(step).jobs.is_empty(),
        StepStatus::Running | StepStatus::Succeeded | StepStatus::Failed => true,
    }
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use halite_proto::ids::JobId;
    use serde_json::{Value, json};

    use super::*;

    /// Steps of which each requires the previous one.
    fn chain(steps: &[(&str, Value)]) -> LowState {
        let chunk = |(index, (fun, args)): (usize, &(&str, Value))| {
            let require: Vec<usize> = index.checked_sub(1).into_iter().collect();
            json!({"state": "halite", "fun": fun, "id": format!("step-{index}"), "name": fun, "sls": "own",
                "source": {"file": "own.sls", "line": 1, "column": 1}, "args": args,
                "requisites": {"require": require}})
        };
        let chunks: Vec<Value> = steps.iter().enumerate().map(chunk).collect();
        let low = json!({"format": 1, "minion": "master", "chunks": chunks});
        serde_json::from_value(low).unwrap()
    }

    fn step(index: usize, status: StepStatus, jobs: &[JobId]) -> Step {
        Step {
            run: JobId::from_number(1),
            index: u32::try_from(index).unwrap(),
            name: format!("step-{index}"),
            status,
            detail_json: json!({"jobs": jobs}).to_string(),
            started: None,
            ended: None,
        }
    }

    /// The gates that are asked again when the steps before `at` have succeeded, and this one has
    /// this status and these jobs.
    fn asked(low: &LowState, at: usize, status: StepStatus, jobs: &[JobId]) -> Vec<usize> {
        let recorded = |index: usize| {
            Some(match index.cmp(&at) {
                Ordering::Less => step(index, StepStatus::Succeeded, &[]),
                Ordering::Equal => step(index, status, jobs),
                Ordering::Greater => step(index, StepStatus::Waiting, &[]),
            })
        };
        let gates = 0..low.chunks.len();
        gates
            .filter(|gate| steps_between(low, *gate, recorded).is_some())
            .collect()
    }

    fn upgrade() -> LowState {
        chain(&[
            ("upgrade_turn", json!({})),
            ("etcd_quorum_allows", json!({})),
            ("etcd_leader_moved_off", json!({})),
            ("vip_moved_off", json!({})),
            ("state", json!({"sls": ["custom.hooks.pre_drain"]})),
            ("drain", json!({})),
            ("vip_moved_off", json!({})),
            ("state", json!({"sls": ["halite.base.etcd"]})),
            ("state", json!({"highstate": true})),
        ])
    }

    #[test]
    fn gates_are_asked_again_until_a_host_has_begun_to_change() {
        use StepStatus::{Running, Waiting};
        let (low, job) = (upgrade(), [JobId::from_number(2)]);
        for at in 1..=4 {
            assert_eq!(asked(&low, at, Waiting, &[]), [0, 1, 2, 3, 6], "{at}");
        }
        // A hook that has not reached the host, and one that has. The drain makes no job.
        assert_eq!(asked(&low, 4, Running, &[]), [0, 1, 2, 3, 6]);
        assert_eq!(asked(&low, 4, Running, &job), [1, 2, 3, 6]);
        assert_eq!(asked(&low, 5, Running, &[]), [1, 2, 3, 6]);
        assert_eq!(asked(&low, 6, Running, &[]), [1, 2, 3, 6]);
        assert_eq!(asked(&low, 7, Waiting, &[]), [1, 2, 3, 6]);
        // The master ended, or was isolated, before it sent the job.
        assert_eq!(asked(&low, 7, Running, &[]), [1, 2, 3, 6]);
        assert!(asked(&low, 7, Running, &job).is_empty());
        assert!(asked(&low, 8, Waiting, &[]).is_empty());
        let between = steps_between(&low, 1, |index| Some(step(index, Waiting, &[])));
        assert_eq!(between, Some(BTreeSet::from([2, 3, 4, 5, 6])));
    }

    #[test]
    fn etcd_is_asked_again_until_the_reboot_has_begun() {
        use StepStatus::{Running, Waiting};
        let (low, job) = (
            chain(&[
                ("etcd_quorum_allows", json!({})),
                ("vip_moved_off", json!({})),
                ("drain", json!({})),
                ("state", json!({"sls": [API_SERVER_ASIDE]})),
                ("etcd_leader_moved_off", json!({})),
                ("reboot", json!({})),
            ]),
            [JobId::from_number(2)],
        );
        assert_eq!(asked(&low, 3, Waiting, &[]), [0, 1, 4]);
        // The API server of the host has stopped.
        assert_eq!(asked(&low, 3, Running, &job), [0, 4]);
        assert_eq!(asked(&low, 5, Waiting, &[]), [0, 4]);
        assert!(asked(&low, 5, Running, &job).is_empty());
    }

    #[test]
    fn only_a_gate_with_work_behind_it_is_asked_again() {
        use StepStatus::{Skipped, Waiting};
        let alone = chain(&[("etcd_quorum_allows", json!({}))]);
        assert!(asked(&alone, 1, Waiting, &[]).is_empty());
        let skipped = chain(&[("etcd_quorum_allows", json!({})), ("reboot", json!({}))]);
        assert!(asked(&skipped, 1, Skipped, &[]).is_empty());
        let others = chain(&[
            ("wait_for_node", json!({})),
            ("lock", json!({})),
            ("reboot", json!({})),
        ]);
        assert!(asked(&others, 2, Waiting, &[]).is_empty());
        let mut other_module = skipped.clone();
        other_module.chunks[0].state = "test".to_owned();
        assert!(asked(&other_module, 1, Waiting, &[]).is_empty());
        assert_eq!(asked(&skipped, 1, Waiting, &[]), [0]);
    }
}
