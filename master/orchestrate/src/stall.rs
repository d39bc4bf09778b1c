//! The texts about a slow job: the reason as far as the master knows it, and the operator's next
//! step.

use halite_core::names::some_of;
use halite_fleet::jobs::core::comes_first;
use halite_fleet::jobs::{Jobs, NewJob};
use halite_proto::ids::{JobId, MinionId};
use serde_json::Value;

/// The kind of work that a slow job is to the operator who watches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Watched {
    /// The work of a step of an orchestration.
    Step {
        /// `true` if the step leaves out a lost host.
        skips: bool,
    },
    /// The whole request.
    Job,
}

impl Watched {
    fn noun(self) -> &'static str {
        match self {
            Self::Step { .. } => "step",
            Self::Job => "job",
        }
    }
}

/// A slow job.
#[derive(Debug, PartialEq, Eq)]
pub struct Stall {
    /// The reason.
    pub because: String,
    /// The next step of the operator.
    pub remedy: String,
}

/// Slow states, by the prefix of their SLS: their work, and where to look. The first match among a
/// job's SLS counts.
const SLOW: &[(&str, &str, &str)] = &[
    (
        "halite.images",
        "it pulls images",
        "they come from the hosts that serve bundles: `ctl health` names the missing ones; a full disk below \
         /var/lib/containerd stops a pull, too",
    ),
    (
        "halite.services.bundle_server",
        "it copies bundles from another host",
        "`ctl bundle list` shows their sizes; `df /var/lib/halite` there shows its room",
    ),
    (
        "halite.services.master",
        "it may copy bundles from another host",
        "`ctl bundle list` shows their sizes; `df /var/lib/halite` there shows its room",
    ),
    (
        "halite.host",
        "packages are installed, among others",
        "`journalctl -u halite-minion` there shows the package manager; another one may hold its lock",
    ),
    (
        "halite.base.control_plane",
        "its API server starts",
        "`ctl etcd status` shows whether etcd serves; /var/log/pods there has the log of a container that fails",
    ),
    (
        "halite.base.etcd",
        "its member of etcd starts",
        "`ctl etcd status` shows the members and their quorum; /var/log/pods/kube-system_etcd-* there, or `journalctl -u etcd`, says \
         why it does not start, and a slow disk shows as `slow fdatasync`",
    ),
];

/// The reason why a job has not ended although only these pending minions are left, some of them
/// disconnected.
pub fn stall(job_id: &JobId, new: &NewJob, away: &[&MinionId], watched: Watched) -> Stall {
    let noun = watched.noun();
    let cancel = format!("`ctl job cancel {job_id}` ends the {noun}");
    if !away.is_empty() {
        let names: Vec<&str> = away.iter().map(|minion| minion.as_str()).collect();
        let names = some_of(&names);
        return Stall {
            because: format!("{names} is not connected, and may still work on the job {job_id}"),
            remedy: format!(
                "switch the host on, and the {noun} continues; if it is gone for good: {}, then `ctl node replace` or `ctl node \
                 remove --dead`",
                match watched {
                    Watched::Step { skips: true } =>
                        format!("`ctl job cancel {job_id}` leaves it out"),
                    Watched::Step { skips: false } | Watched::Job => cancel,
                }
            ),
        };
    }
    let sls = new.args["sls"].as_array();
    let sls: Vec<&str> = (sls.into_iter().flatten())
        .filter_map(Value::as_str)
        .collect();
    let is_among = |(begin, _, _): &&(&str, &str, &str)| {
        let mut all = sls.iter();
        all.any(|sls| {
            sls.strip_prefix(begin)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    let shows = format!("`ctl job show {job_id}` shows its parts, {cancel}");
    match SLOW.iter().find(is_among) {
        Some((_, work, look)) => Stall {
            because: format!("the job {job_id} runs there: {work}"),
            remedy: format!("{look}; {shows}"),
        },
        None => Stall {
            because: format!("the job {job_id} ({}) runs there", new.function),
            remedy: shows,
        },
    }
}

/// The reason why a job has not ended although only hosts are left on which another job applies
/// states.
#[must_use]
pub fn queued(job_id: &JobId, first: &JobId, watched: Watched) -> Stall {
    Stall {
        because: format!("the job {first} comes first there, and one job at a time applies states"),
        remedy: format!(
            "`ctl job show {first}` shows its parts, `ctl job cancel {first}` ends it; `ctl job cancel {job_id}` ends this {}",
            watched.noun()
        ),
    }
}

/// A job behind which this one waits, and the hosts on which it does; `None` if no host is known.
pub(super) async fn behind(jobs: &Jobs, job_id: &JobId) -> Option<(JobId, Vec<MinionId>)> {
    // Other hosts wait for their turn in this job.
    let hosts = jobs.waited_for(job_id).into_iter();
    let hosts: Vec<MinionId> = hosts.map(|(host, _)| host).collect();
    // A store that fails only costs the reason.
    let parts = jobs.app().store.open_parts(&hosts).await.ok()?;
    let own = parts.iter().filter(|part| part.job_id == *job_id);
    let mut behind = own.filter_map(|own| Some((comes_first(&parts, own)?, &own.minion)));
    let (first, host) = behind.next()?;
    let others = behind.filter(|(other, _)| *other == first);
    let hosts = std::iter::once(host).chain(others.map(|(_, host)| host));
    Some((first.clone(), hosts.cloned().collect()))
}

/// The reason why a job of a cancelled run has not ended.
pub(super) fn ending(job_id: &JobId, by: &str) -> Stall {
    Stall {
        because: format!("the run was cancelled by {by}, and the job {job_id} ends"),
        remedy: format!(
            "a package transaction is not cut off: `ctl job cancel {job_id} --force` ends it; other work that cannot end safely in its \
             middle ends by itself"
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    const STEP: Watched = Watched::Step { skips: false };
    const JOB_ID: &str = "20261121000000123000";

    fn of(sls: &[&str], away: &[&MinionId]) -> Stall {
        let new = NewJob {
            function: "state.apply".to_owned(),
            args: json!({"sls": sls}),
            ..NewJob::default()
        };
        stall(&JOB_ID.parse().unwrap(), &new, away, STEP)
    }

    #[test]
    fn each_kind_of_stall_has_a_text_and_a_verb_of_its_own() {
        let kinds: [&[&str]; 6] = [
            &["halite.base.containerd", "halite.images"],
            &["halite.services.bundle_server"],
            &["halite.base.etcd.member"],
            &["halite.base.control_plane.running"],
            &["halite.host"],
            &["custom.motd"],
        ];
        let stalls: Vec<Stall> = kinds.iter().map(|sls| of(sls, &[])).collect();
        let texts: BTreeSet<&String> = stalls.iter().map(|stall| &stall.because).collect();
        assert_eq!(texts.len(), kinds.len(), "{texts:?}");
        assert!(stalls[0].because.ends_with("it pulls images"));
        // The first step of a bootstrap: the packages take long, not the check of etcd's data.
        let first = of(&["halite.base.etcd.data", "halite.host"], &[]);
        assert_eq!(first, stalls[4]);
        for stall in &stalls {
            let verb = format!("`ctl job cancel {JOB_ID}` ends the step");
            assert!(stall.remedy.ends_with(&verb), "{stall:?}");
        }
        // A part of a name does not match.
        assert!(of(&["halite.hosts"], &[]).because.contains("state.apply"));
    }

    #[test]
    fn a_host_that_is_away_is_the_reason_whatever_it_does() {
        let worker = "worker-1".parse().unwrap();
        let stall = of(&["halite.images"], &[&worker]);
        assert!(stall.because.starts_with("worker-1 is not connected"));
        for verb in [
            "ctl job cancel",
            "ctl node replace",
            "ctl node remove --dead",
        ] {
            assert!(stall.remedy.contains(verb), "{stall:?}");
        }
    }

    #[test]
    fn a_step_that_can_leave_out_a_lost_host_says_how() {
        let (job_id, worker) = (JOB_ID.parse().unwrap(), "worker-1".parse().unwrap());
        let new = NewJob::default();
        let leaves = format!("`ctl job cancel {JOB_ID}` leaves it out");
        let remedy = |watched| stall(&job_id, &new, &[&worker], watched).remedy;
        assert!(remedy(Watched::Step { skips: true }).contains(&leaves));
        assert!(!remedy(STEP).contains(&leaves));
        let of_job = remedy(Watched::Job);
        assert!(!of_job.contains("step"), "{of_job}");
        assert!(of_job.contains(&format!("`ctl job cancel {JOB_ID}` ends the job")));
        let ending = ending(&job_id, "alice");
        assert!(ending.because.contains("cancelled by alice"), "{ending:?}");
        assert!(ending.remedy.contains("--force"), "{ending:?}");
    }
}
