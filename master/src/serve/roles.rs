//! Role checks beyond the table of methods: by function, and in the displayed data of past jobs.

use halite_api::{EventData, Job, JobList, JobOrRun, Run};
use halite_fleet::jobs::function::Function;
use halite_proto::role::Role;
use halite_proto::tonic::Status;
use halite_proto::transport::Peer;
use serde_json::Value;

/// Refuses a function that the operator's role does not allow. An unknown function is refused
/// later, by name.
#[allow(
    clippy::result_large_err,
    reason = "tonic's own error type, as its services return it"
)]
pub(super) fn check_function(peer: &Peer, function: &str) -> Result<(), Status> {
    match Function::find(function) {
        Ok(function) => require(peer, function.role, function.name),
        Err(_) => Ok(()),
    }
}

/// Refuses pillar values for an orchestration: custom states may put them into commands.
#[allow(
    clippy::result_large_err,
    reason = "tonic's own error type, as its services return it"
)]
pub(super) fn check_pillar(peer: &Peer, pillar_json: &str) -> Result<(), Status> {
    match pillar_json.trim() {
        "" | "{}" | "null" => Ok(()),
        _ => require(peer, Role::Admin, "an orchestration with pillar values"),
    }
}

#[allow(
    clippy::result_large_err,
    reason = "tonic's own error type, as its services return it"
)]
fn require(peer: &Peer, least: Role, what: &str) -> Result<(), Status> {
    if peer.role.is_some_and(|role| role >= least) {
        Ok(())
    } else {
        Err(peer.lacks(least, what))
    }
}

/// The reason in a document from which data are withheld.
fn withheld() -> String {
    format!(
        "arguments, returns and pillar values need the role {}",
        Role::Admin
    )
}

/// Returns whether a function's arguments and returns are for administrators only. A function of
/// another version may do anything.
pub(super) fn is_confidential(function: &str) -> bool {
    Function::find(function).map_or(true, |function| function.role == Role::Admin)
}

/// A record about jobs or runs that only an administrator may see in full: arguments and returns of
/// commands and pillar values of orchestrations may have secrets that no declaration names.
pub(super) trait Withhold: Sized {
    /// Removes data that only an administrator may see.
    fn withhold(&mut self);
}

/// The document as a caller with this role may see it.
pub(super) fn withhold<T: Withhold>(role: Option<Role>, mut document: T) -> T {
    if role != Some(Role::Admin) {
        document.withhold();
    }
    document
}

impl Withhold for Job {
    fn withhold(&mut self) {
        if !is_confidential(&self.function) {
            return;
        }
        self.args = None;
        for part in self.returns.iter_mut().flatten() {
            part.answer = None;
            if part.error.is_some() {
                part.error = Some("withheld".to_owned());
            }
        }
        self.withheld = Some(withheld());
    }
}

impl Withhold for Run {
    fn withhold(&mut self) {
        self.pillar = None;
        self.withheld = Some(withheld());
    }
}

/// An event, with the function of its job if that is known.
pub(super) struct News {
    /// The function; `None` for an event without a job, or of a job that the store no longer has.
    pub function: Option<String>,
    /// The data.
    pub data: EventData,
}

impl Withhold for News {
    fn withhold(&mut self) {
        let function = self.function.as_deref();
        let is_confidential = function.is_none_or(is_confidential);
        match &mut self.data {
            // A short output can be guessed from its digest.
            EventData::PartReturned(part) if is_confidential => {
                part.answer = None;
                part.error = None;
                part.digest = None;
            }
            EventData::StateProgress(progress) if is_confidential => progress.state = None,
            EventData::JournalLines(journal) if is_confidential => journal.lines.clear(),
            // From another version: it may be anything.
            EventData::Other(value) => *value = Value::Null,
            _ => {}
        }
    }
}

impl Withhold for JobList {
    fn withhold(&mut self) {
        self.jobs.iter_mut().for_each(Withhold::withhold);
    }
}

impl Withhold for JobOrRun {
    fn withhold(&mut self) {
        match self {
            Self::Job(job) => job.withhold(),
            Self::Run(run) => run.withhold(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use halite_api::{
        JobPart, JobStatus, JournalLines, MinionAnswer, PartState, RunStatus, StateProgress, Time,
        to_text,
    };
    use halite_proto::ids::JobId;
    use halite_states::low::StateReturn;
    use serde_json::{Map, json};

    use super::*;

    fn peer(role: Option<Role>) -> Peer {
        Peer {
            caller: None,
            role,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
        }
    }

    #[test]
    fn a_function_takes_its_role() {
        for (function, least) in [
            ("test.ping", Role::Viewer),
            ("state.sls", Role::Deployer),
            ("state.highstate", Role::Deployer),
            ("cmd.run", Role::Admin),
            ("log.read", Role::Admin),
            ("absent", Role::Viewer),
        ] {
            for role in Role::ALL {
                let allowed = check_function(&peer(Some(role)), function).is_ok();
                assert_eq!(allowed, role >= least, "{role} {function}");
            }
        }
        assert!(check_function(&peer(None), "test.ping").is_err());
        assert!(check_pillar(&peer(Some(Role::Deployer)), "{}").is_ok());
        assert!(check_pillar(&peer(Some(Role::Deployer)), "{\"a\": 1}").is_err());
        assert!(check_pillar(&peer(Some(Role::Admin)), "{\"a\": 1}").is_ok());
    }

    #[test]
    fn what_a_command_was_and_printed_is_for_administrators() {
        let part = |answer: Value, error: Option<&str>| JobPart {
            minion: "a".parse().unwrap(),
            state: PartState::Returned,
            retcode: Some(0),
            error: error.map(str::to_owned),
            answer: Some(MinionAnswer(answer)),
            sent: None,
            started: None,
            ended: None,
        };
        let job = |function: &str, args: Value, part: JobPart| Job {
            job: JobId::from_number(1),
            function: function.to_owned(),
            args: Some(args),
            test: false,
            operator: "root".to_owned(),
            target: "*".to_owned(),
            minions: Vec::new(),
            order: Vec::new(),
            created: Time::from_millis(0),
            status: JobStatus::Finished,
            retcode: Some(0),
            finished: None,
            bundle: None,
            withheld: None,
            returns: Some(vec![part]),
        };
        let command = job("cmd.run", json!(["echo pw"]), part(json!("pw"), Some("pw")));
        let lines = json!({"lines": ["pw"]});
        let journal = job("log.read", json!({"unit": "pw"}), part(lines, None));
        let ping = job("test.ping", json!({}), part(json!(true), None));
        let run = Run {
            run: JobId::from_number(1),
            sls: "custom".to_owned(),
            pillar: Some(json!({"password": "pw"})),
            test: false,
            operator: "root".to_owned(),
            status: RunStatus::Running,
            cancelled_by: None,
            paused_by: None,
            created: Time::from_millis(0),
            changed: Time::from_millis(0),
            withheld: None,
            steps: Vec::new(),
        };
        let one = JobOrRun::Job(Box::new(command.clone()));
        let journal = JobOrRun::Job(Box::new(journal));
        let run = JobOrRun::Run(Box::new(run));
        let list = JobList {
            jobs: vec![ping.clone(), command],
        };
        for role in Role::ALL {
            let seen = |document: &JobOrRun| to_text(&withhold(Some(role), document.clone()));
            let shown = [
                seen(&one),
                seen(&journal),
                seen(&run),
                to_text(&withhold(Some(role), list.clone())),
            ];
            for shown in shown {
                let is_admin = role == Role::Admin;
                assert_eq!(shown.contains("pw"), is_admin, "{role}: {shown}");
                assert_eq!(
                    shown.contains("need the role admin"),
                    !is_admin,
                    "{role}: {shown}"
                );
            }
        }
        assert_eq!(withhold(Some(Role::Viewer), ping.clone()), ping);
    }

    #[test]
    fn the_states_and_lines_of_a_confidential_job_are_for_administrators() {
        let state = StateReturn {
            index: 0,
            id: "echo".to_owned(),
            name: "echo pw".to_owned(),
            function: "cmd.run".to_owned(),
            sls: "custom".to_owned(),
            result: Some(true),
            changes: Map::new(),
            comment: String::new(),
            start_time: String::new(),
            duration: 1.0,
            run_num: 0,
            ran: true,
            fail_run: true,
        };
        let progress = EventData::StateProgress(Box::new(StateProgress {
            job: JobId::from_number(1),
            minion: "a".parse().unwrap(),
            index: 0,
            total: 1,
            state: Some(state),
        }));
        let journal = EventData::JournalLines(JournalLines {
            job: JobId::from_number(1),
            minion: "a".parse().unwrap(),
            lines: vec!["pw".to_owned()],
        });
        let everyone = Some("state.highstate");
        for (function, data) in [
            (Some("cmd.run"), &progress),
            (None, &progress),
            (everyone, &progress),
            (Some("log.read"), &journal),
        ] {
            for role in Role::ALL {
                let news = News {
                    function: function.map(str::to_owned),
                    data: data.clone(),
                };
                let seen = withhold(Some(role), news).data.to_text();
                let is_seen = role == Role::Admin || function == everyone;
                assert_eq!(seen.contains("pw"), is_seen, "{role} {function:?}: {seen}");
            }
        }
    }
}
