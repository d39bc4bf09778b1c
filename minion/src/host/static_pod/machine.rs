//! The wait for a static pod as a state machine: facts and time in, the next step out.

use crate::host::pod::{Process, StaticPod};

/// Seconds for which a program without its peers must have run without a restart.
const STABLE: i64 = 15;
/// Restarts after which the wait for a container ends.
const RESTARTS: u32 = 3;
/// Seconds after which the kubelet has read each manifest again, twice (`fileCheckFrequency` is 20
/// s): if it has left the pod unchanged, the manifest does not differ in anything that it decodes.
const READ_AGAIN: i64 = 45;
/// Seconds for which the kubelet may be stopped while it restarts.
const KUBELET: i64 = 10;

/// One observation of a static pod.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// systemd's active state of the kubelet.
    pub kubelet: String,
    /// The process whose arguments match the manifest.
    pub process: Option<Process>,
    /// `true` if the process's pod belongs to the manifest, by its uid. Otherwise it may be a
    /// previous one.
    pub certain: bool,
    /// `true` if another, previous process of the pod runs.
    pub another: bool,
    /// The number of restarts of the newest container, and its pod's uid.
    pub restarts: Option<(String, u32)>,
    /// The answer of the probes.
    pub probe: Probe,
}

/// The answer of a pod's probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// The readiness probe succeeds.
    Ready,
    /// The readiness probe fails, and the program's other probe succeeds; the first answer.
    Live(String),
    /// Both fail; the answer.
    Fails(String),
}

impl Default for Probe {
    fn default() -> Self {
        Self::Fails("no probe was sent".to_owned())
    }
}

/// The next step of a wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    /// Observe again; the reason.
    Wait(String),
    /// The pod is ready.
    Ready(Process),
    /// The pod runs and lacks only its peers, as the text says.
    WithoutPeers(Process, String),
    /// The pod does not become ready.
    Failed(Fault),
}

/// The reason why a pod does not become ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// The kubelet is in this state.
    Kubelet(String),
    /// The kubelet has started no container within the seconds.
    NotStarted(i64),
    /// The container of the previous manifest still runs after the seconds.
    NotReplaced(i64),
    /// The container was restarted this many times.
    Ends(u32),
    /// The container runs, and its probe still fails after the seconds.
    NotReady(i64, String),
}

impl Fault {
    /// The reason for an operator, in the terms of the kubelet or of systemd.
    pub(super) fn text(&self, words: &Words) -> String {
        let Words {
            starter,
            program,
            before,
        } = words;
        match self {
            Self::Kubelet(state) => {
                format!("kubelet.service is {state}, so no change of a manifest is noticed")
            }
            Self::NotStarted(seconds) => {
                format!("{starter} has not started its {program} within {seconds} s")
            }
            Self::NotReplaced(seconds) => format!("{before} still runs after {seconds} s"),
            Self::Ends(times) => {
                format!("its {program} ends again and again ({times} restarts)")
            }
            Self::NotReady(seconds, answer) => {
                format!("its {program} runs, but is not ready after {seconds} s: {answer}")
            }
        }
    }
}

/// The words for the object of the wait.
#[derive(Debug)]
pub(super) struct Words {
    /// The program that starts it.
    starter: &'static str,
    /// The started program.
    program: &'static str,
    /// The previously started program.
    before: &'static str,
}

impl Words {
    pub(super) fn about(pod: &StaticPod) -> Self {
        match pod.unit {
            Some(_) => Self {
                starter: "systemd",
                program: "program",
                before: "the program of the previous unit",
            },
            None => Self {
                starter: "the kubelet",
                program: "container",
                before: "the container of the previous manifest",
            },
        }
    }
}

/// The memory of a wait.
#[derive(Debug)]
pub(super) struct Machine {
    began: i64,
    seconds: i64,
    quorum: bool,
    words: Words,
    ended: Option<Process>,
    /// The running process, and the time when it was first seen.
    seen: Option<(Process, i64)>,
    /// The time since which the kubelet has been seen stopped.
    stopped: Option<i64>,
    /// The restarts when the newest container's pod was first seen.
    restarts: Option<(String, u32)>,
}

impl Machine {
    pub(super) fn new(pod: &StaticPod, now: i64) -> Self {
        Self {
            began: now,
            seconds: i64::try_from(pod.seconds).unwrap_or(i64::MAX),
            quorum: pod.quorum,
            words: Words::about(pod),
            ended: pod.ended.clone(),
            seen: None,
            stopped: None,
            restarts: None,
        }
    }

    /// Seconds since the wait started.
    pub(super) fn waited(&self, now: i64) -> i64 {
        now - self.began
    }

    /// Decides on one observation.
    pub(super) fn step(&mut self, facts: &Facts, now: i64) -> Step {
        let waited = self.waited(now);
        let process = facts
            .process
            .as_ref()
            .filter(|process| self.ended.as_ref() != Some(process));
        self.note(process, now);
        let stopped = self.stopped_for(facts, now);
        let restarts = self.restarted(facts);
        if let Some(process) = process
            && (facts.certain || waited >= READ_AGAIN)
        {
            match &facts.probe {
                Probe::Ready => return Step::Ready(process.clone()),
                Probe::Live(reason) if self.quorum && self.runs_for(now) >= STABLE => {
                    return Step::WithoutPeers(process.clone(), reason.clone());
                }
                Probe::Live(_) | Probe::Fails(_) => {}
            }
        }
        if stopped.is_some_and(|seconds| seconds >= KUBELET) {
            let state = match facts.kubelet.as_str() {
                "" => "unknown",
                state => state,
            };
            return Step::Failed(Fault::Kubelet(state.to_owned()));
        }
        if restarts >= RESTARTS {
            return Step::Failed(Fault::Ends(restarts));
        }
        let before = facts.another || facts.process.is_some() && process.is_none();
        if waited >= self.seconds {
            return Step::Failed(match process {
                Some(_) if !facts.certain => Fault::NotReplaced(waited),
                Some(_) => Fault::NotReady(waited, answer(&facts.probe)),
                None if restarts > 0 => Fault::Ends(restarts),
                None if before => Fault::NotReplaced(waited),
                None => Fault::NotStarted(waited),
            });
        }
        let Words {
            starter, program, ..
        } = self.words;
        Step::Wait(match process {
            Some(_) if !facts.certain => format!("{starter} has not replaced the {program} yet"),
            Some(_) => format!("its {program} runs: {}", answer(&facts.probe)),
            None if before => format!("the previous {program} still runs"),
            None => format!("{starter} has not started its {program} yet"),
        })
    }

    fn note(&mut self, process: Option<&Process>, now: i64) {
        match (process, &self.seen) {
            (Some(process), Some((seen, _))) if seen == process => {}
            (Some(process), _) => self.seen = Some((process.clone(), now)),
            (None, _) => self.seen = None,
        }
    }

    /// Seconds since the kubelet was first seen stopped; `None` if it runs or is starting.
    fn stopped_for(&mut self, facts: &Facts, now: i64) -> Option<i64> {
        if matches!(facts.kubelet.as_str(), "inactive" | "failed" | "") {
            Some(now - *self.stopped.get_or_insert(now))
        } else {
            self.stopped = None;
            None
        }
    }

    fn runs_for(&self, now: i64) -> i64 {
        self.seen.as_ref().map_or(0, |(_, since)| now - since)
    }

    /// The restarts within this wait of the pod that was seen last.
    fn restarted(&mut self, facts: &Facts) -> u32 {
        let Some((uid, number)) = &facts.restarts else {
            return 0;
        };
        let known = self.restarts.as_ref().filter(|(known, _)| known == uid);
        let first = known.map_or(*number, |(_, first)| *first);
        if known.is_none() {
            self.restarts = Some((uid.clone(), *number));
        }
        number.saturating_sub(first)
    }
}

fn answer(probe: &Probe) -> String {
    match probe {
        Probe::Ready => "ready".to_owned(),
        Probe::Live(text) | Probe::Fails(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, uid: &str) -> Process {
        Process {
            pid,
            started: u64::from(pid),
            uid: uid.to_owned(),
        }
    }

    fn runs(pid: u32, probe: Probe) -> Facts {
        Facts {
            kubelet: "active".to_owned(),
            process: Some(process(pid, "new")),
            certain: true,
            probe,
            restarts: Some(("new".to_owned(), 0)),
            ..Facts::default()
        }
    }

    fn nothing() -> Facts {
        Facts {
            kubelet: "active".to_owned(),
            ..Facts::default()
        }
    }

    fn machine(quorum: bool, ended: Option<Process>) -> Machine {
        let pod = StaticPod {
            seconds: 60,
            quorum,
            ended,
            ..StaticPod::default()
        };
        Machine::new(&pod, 1000)
    }

    /// The last step of these observations, each with its second; all earlier ones wait.
    fn last(mut machine: Machine, table: &[(i64, Facts)]) -> Step {
        let (end, before) = table.split_last().unwrap();
        for (second, facts) in before {
            let step = machine.step(facts, 1000 + second);
            assert!(matches!(step, Step::Wait(_)), "{second}: {step:?}");
        }
        machine.step(&end.1, 1000 + end.0)
    }

    fn live() -> Probe {
        Probe::Live("no leader".to_owned())
    }

    fn silent() -> Probe {
        Probe::Fails("nothing answers".to_owned())
    }

    #[test]
    fn a_pod_that_becomes_ready_ends_the_wait() {
        let table = [
            (0, nothing()),
            (1, runs(7, silent())),
            (3, runs(7, Probe::Ready)),
        ];
        assert_eq!(
            last(machine(false, None), &table),
            Step::Ready(process(7, "new"))
        );
    }

    #[test]
    fn an_old_ready_pod_does_not_count_until_the_kubelet_has_read_the_manifest_twice() {
        let before = Facts {
            certain: false,
            ..runs(7, Probe::Ready)
        };
        let table = [
            (0, before.clone()),
            (READ_AGAIN - 1, before.clone()),
            (READ_AGAIN, before),
        ];
        assert_eq!(
            last(machine(false, None), &table),
            Step::Ready(process(7, "new"))
        );
    }

    #[test]
    fn an_answer_of_the_ended_process_does_not_count() {
        let old = process(7, "new");
        let table = [
            (0, runs(7, Probe::Ready)),
            (59, runs(7, Probe::Ready)),
            (60, runs(7, Probe::Ready)),
        ];
        assert_eq!(
            last(machine(false, Some(old.clone())), &table),
            Step::Failed(Fault::NotReplaced(60))
        );
        let table = [(0, runs(7, Probe::Ready)), (1, runs(8, Probe::Ready))];
        assert_eq!(
            last(machine(false, Some(old)), &table),
            Step::Ready(process(8, "new"))
        );
    }

    #[test]
    fn a_member_without_peers_is_accepted_once_it_has_run_for_a_while() {
        let table = [
            (0, runs(7, live())),
            (STABLE - 1, runs(7, live())),
            // A restart restarts the time.
            (STABLE, runs(8, live())),
            (2 * STABLE - 1, runs(8, live())),
            (2 * STABLE, runs(8, live())),
        ];
        assert_eq!(
            last(machine(true, None), &table),
            Step::WithoutPeers(process(8, "new"), "no leader".to_owned())
        );
        let alone = [
            (0, runs(7, live())),
            (59, runs(7, live())),
            (60, runs(7, live())),
        ];
        assert_eq!(
            last(machine(false, None), &alone),
            Step::Failed(Fault::NotReady(60, "no leader".to_owned())),
            "a member that is alone needs no peers"
        );
        let deaf = [(0, runs(7, silent())), (60, runs(7, silent()))];
        assert_eq!(
            last(machine(true, None), &deaf),
            Step::Failed(Fault::NotReady(60, "nothing answers".to_owned())),
            "a member that does not live is a failure"
        );
    }

    #[test]
    fn a_container_that_ends_again_and_again_fails_before_the_limit() {
        let ended = |number| Facts {
            restarts: Some(("new".to_owned(), number)),
            ..nothing()
        };
        // Restarts before the wait do not count.
        let table = [(0, ended(5)), (2, ended(6)), (12, ended(7)), (32, ended(8))];
        assert_eq!(
            last(machine(true, None), &table),
            Step::Failed(Fault::Ends(3))
        );
    }

    #[test]
    fn a_stopped_kubelet_has_its_own_reason() {
        for state in ["inactive", "failed"] {
            let stopped = Facts {
                kubelet: state.to_owned(),
                ..Facts::default()
            };
            let table = [(0, stopped.clone()), (9, stopped.clone()), (10, stopped)];
            assert_eq!(
                last(machine(false, None), &table),
                Step::Failed(Fault::Kubelet(state.to_owned()))
            );
        }
        // A kubelet that restarts late in the wait has its own seconds.
        let stopped = Facts {
            kubelet: "inactive".to_owned(),
            ..Facts::default()
        };
        let table = [
            (0, nothing()),
            (30, stopped.clone()),
            (31, nothing()),
            (40, stopped.clone()),
            (49, stopped.clone()),
            (50, stopped),
        ];
        assert_eq!(
            last(machine(false, None), &table),
            Step::Failed(Fault::Kubelet("inactive".to_owned()))
        );
        let restarts = Facts {
            kubelet: "activating".to_owned(),
            ..Facts::default()
        };
        let table = [
            (0, restarts.clone()),
            (10, restarts),
            (11, runs(7, Probe::Ready)),
        ];
        assert_eq!(
            last(machine(false, None), &table),
            Step::Ready(process(7, "new"))
        );
    }

    #[test]
    fn the_end_of_the_time_says_what_is_missing() {
        let another = Facts {
            another: true,
            ..nothing()
        };
        for (facts, fault) in [
            (nothing(), Fault::NotStarted(60)),
            (another, Fault::NotReplaced(60)),
            (
                runs(7, silent()),
                Fault::NotReady(60, "nothing answers".to_owned()),
            ),
        ] {
            let table = [(0, facts.clone()), (59, facts.clone()), (60, facts)];
            assert_eq!(last(machine(false, None), &table), Step::Failed(fault));
        }
    }
}
