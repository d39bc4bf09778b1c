//! Sample records for tests.

use halite_proto::ids::{JobId, MinionId};
use tempfile::TempDir;

use super::*;

/// Creates an empty store and its directory.
pub(super) async fn fresh() -> (Store, TempDir) {
    let directory = TempDir::new().unwrap();
    let store = Store::open(&directory.path().join("store.db"))
        .await
        .unwrap();
    (store, directory)
}

/// Creates a minion's id, for short tests.
pub(crate) fn minion(text: &str) -> MinionId {
    text.parse().unwrap()
}

/// Creates a job id, for short tests.
pub(super) fn job_id(number: u64) -> JobId {
    JobId::from_number(number)
}

pub(super) fn key(id: &str, state: KeyState) -> StoredKey {
    StoredKey {
        id: minion(id),
        state,
        fingerprint: format!("fp-{id}"),
        csr_pem: "CSR".to_owned(),
        serial: (state == KeyState::Accepted).then(|| "0a".to_owned()),
        certificate_pem: None,
        roles: vec!["worker".to_owned(), "etcd".to_owned()],
        grains_json: "{}".to_owned(),
        token: Some("t".to_owned()),
        created: 1,
        changed: 2,
    }
}

pub(super) fn token(id: &str, uses_left: u32) -> Token {
    Token {
        id: id.to_owned(),
        secret_sha256: "hash".to_owned(),
        expires: 1000,
        uses_left,
        roles: vec![],
        bound_id: None,
        created: 1,
        operator: "root".to_owned(),
    }
}

pub(super) fn job(number: u64, request_id: Option<&str>) -> Job {
    Job {
        job_id: job_id(number),
        function: "state.apply".to_owned(),
        args_json: "{}".to_owned(),
        test: true,
        operator: "root".to_owned(),
        target: "*".to_owned(),
        minions: vec![minion("a"), minion("b")],
        order: vec![vec![minion("b")], vec![minion("a")]],
        created: 10,
        deadline: Some(99),
        steady_deadline: Some(SteadyDeadline {
            boot: "b".to_owned(),
            millis: 98,
        }),
        request_id: request_id.map(str::to_owned),
        status: JobStatus::Running,
        retcode: None,
        finished: None,
        bundle: None,
    }
}

pub(super) fn run(number: u64, request_id: Option<&str>) -> Run {
    Run {
        id: job_id(number),
        sls: "halite.orchestrate.bootstrap".to_owned(),
        pillar_json: "{}".to_owned(),
        test: false,
        operator: "root".to_owned(),
        request_id: request_id.map(str::to_owned),
        low_json: "{}".to_owned(),
        status: RunStatus::Running,
        current: 0,
        cancelled_by: None,
        paused_by: None,
        created: 5,
        changed: 5,
    }
}

pub(super) fn step(run: u64, index: u32) -> Step {
    Step {
        run: job_id(run),
        index,
        name: format!("step {index}"),
        status: StepStatus::Waiting,
        detail_json: "null".to_owned(),
        started: None,
        ended: None,
    }
}

pub(super) fn revocation(serial: &str) -> Revocation {
    Revocation {
        serial: serial.to_owned(),
        owner: "a".to_owned(),
        when: 1,
        reason: "lost".to_owned(),
    }
}

pub(super) fn answer(retcode: i32) -> StoredAnswer {
    StoredAnswer {
        retcode,
        return_json: "{\"a\":1}".to_owned(),
        error: String::new(),
        when: 50,
    }
}
