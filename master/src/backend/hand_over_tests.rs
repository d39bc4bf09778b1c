//! The request to move the master: all obstacles in one report, the work that it waits for, its
//! start, and its repetition at the next master.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use halite_age::Identity;
use halite_api::{HandOverPhase, MasterMove};
use halite_core::names::minion;
use halite_core::refusal::Refusal;
use halite_core::roster::FollowState;
use halite_etcd::fake::FakeCluster;
use halite_proto::v1::HandOverRequest;
use halite_standby::hand_over::read;
use halite_store::{Job, JobRow, JobStatus};
use serde_json::json;

use super::fixture::{Life, Site};
use super::secret_tests::encrypt;

/// A site with the master on `bootstrap-1`, and two further control planes.
pub(super) fn site() -> (Site, Arc<FakeCluster>) {
    let mut site = Site::new(&[]);
    for (name, address) in [("cp-2", "10.10.0.12"), ("cp-3", "10.10.0.13")] {
        let text = format!(
            "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [etcd, control-plane]\naddress: {address}\n"
        );
        fs::write(site.path().join(format!("etc/nodes/{name}.yaml")), text).unwrap();
    }
    let members = Arc::new(FakeCluster::new(&["bootstrap-1", "cp-2", "cp-3"]));
    site.etcd = Some((members.clone(), Duration::from_secs(1)));
    (site, members)
}

fn follows(life: &Life, name: &str) {
    let number = life.app.standbys.enter(name, Arc::default(), 1);
    life.app
        .standbys
        .set(name, number, FollowState::Following, "", 2);
}

/// A job whose minion has not answered.
fn running() -> Job {
    Job {
        job_id: halite_proto::ids::JobId::from_number(1),
        function: "cmd.run".to_owned(),
        args_json: "{}".to_owned(),
        test: false,
        operator: "root".to_owned(),
        target: "worker-1".to_owned(),
        minions: vec![minion("worker-1")],
        order: Vec::new(),
        created: 1,
        deadline: None,
        steady_deadline: None,
        request_id: None,
        status: JobStatus::Running,
        retcode: None,
        finished: None,
        bundle: None,
    }
}

fn ask(life: &Life, request: &HandOverRequest) -> Result<MasterMove, Refusal> {
    life.runtime
        .block_on(life.backend.hand_over(request.clone()))
}

fn leaves() -> HandOverRequest {
    HandOverRequest {
        leaves: true,
        force: true,
        cluster: "test".to_owned(),
        ..HandOverRequest::default()
    }
}

#[test]
fn everything_in_the_way_is_in_one_report_and_nothing_begins() {
    let (site, _) = site();
    let life = site.live();
    life.accept("bootstrap-1");
    let request = HandOverRequest {
        to: "worker-1".to_owned(),
        cluster: "prod".to_owned(),
        ..leaves()
    };
    let question = HandOverRequest {
        check_only: true,
        ..request.clone()
    };
    let answer = ask(&life, &question).unwrap();
    let problems = answer.problems.join("\n");
    for part in [
        "worker-1 is not a standby of the master; its standbys are: cp-2, cp-3",
        "--cluster prod is not this cluster, which is test",
        "its minion is not connected",
    ] {
        assert!(problems.contains(part), "{part}: {problems}");
        if part.contains("minion") {
            continue;
        }
        let refused = ask(&life, &request).unwrap_err().message;
        assert!(refused.contains(part), "{part}: {refused}");
    }
    // The next master serves this; it need not be served any more.
    assert!(!problems.contains("only it serves"), "{problems}");
    assert!(!problems.contains("it has the master"), "{problems}");
    assert_eq!(read(&life.app.config).unwrap(), None);
}

#[test]
fn it_waits_for_what_runs_and_then_its_note_is_on_disk_before_the_master_stops() {
    let (site, _) = site();
    let life = site.live();
    follows(&life, "cp-3");
    let job = running();
    let row = JobRow::queued(&job.job_id, &job.minions[0], None);
    let created = life.runtime.block_on(life.store.create_job(&job, &[row]));
    created.unwrap();
    let keep = HandOverRequest::default();
    let answer = ask(&life, &keep).unwrap();
    assert!(!answer.begun, "{answer:?}");
    assert!(answer.waits[0].contains("cmd.run"));
    assert_eq!(read(&life.app.config).unwrap(), None);
    let ended = life.store.finish_job(&job.job_id, 0, 1);
    life.runtime.block_on(ended).unwrap();

    let answer = ask(&life, &keep).unwrap();
    assert!(answer.begun, "{answer:?}");
    assert_eq!(answer.to.as_deref(), Some("cp-3"));
    let note = read(&life.app.config).unwrap().unwrap();
    assert_eq!(note.phase, HandOverPhase::Offered);
    assert_eq!(
        (note.from.as_str(), note.to.as_str(), note.leaves),
        ("bootstrap-1", "cp-3", false)
    );
    assert_eq!(note.epoch, life.app.store.epoch() + 1);
    assert_eq!(note.masters, ["10.10.0.13:4550", "10.10.0.12:4550"]);
    assert_eq!(note.hosts, ["cp-3", "cp-2"]);
    life.runtime.block_on(life.app.succession.hands_over());
}

#[test]
fn a_standby_that_could_not_continue_is_refused_before_the_master_stops() {
    let (site, _) = site();
    encrypt(&site);
    let life = site.live();
    follows(&life, "cp-3");
    let recipient = Identity::generate().unwrap().recipient().to_string();
    let added = life.backend.add_secret_recipient("cp-3", &recipient);
    life.runtime.block_on(added).unwrap();
    let number = life.app.standbys.enter("cp-2", Arc::default(), 1);
    let reason = "halite-master on cp-2 runs version 0.0.1";
    let standbys = &life.app.standbys;
    standbys.set_obstacle("cp-2", number, Some(reason.to_owned()));
    standbys.set("cp-2", number, FollowState::Following, "", 2);
    let request = HandOverRequest {
        to: "cp-2".to_owned(),
        ..HandOverRequest::default()
    };
    let refused = ask(&life, &request).unwrap_err().message;
    for part in [reason, "cp-2 cannot decrypt the secrets"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert_eq!(read(&life.app.config).unwrap(), None);
    // The other one has the same program, and a recipient: it is chosen although it is not the
    // first.
    let answer = ask(&life, &HandOverRequest::default()).unwrap();
    assert!(answer.begun, "{answer:?}");
    assert_eq!(answer.to.as_deref(), Some("cp-3"));
}

#[test]
fn of_two_moves_at_the_same_moment_the_second_is_refused_and_a_repetition_is_the_same_move() {
    let (site, _) = site();
    let life = site.live();
    follows(&life, "cp-2");
    follows(&life, "cp-3");
    let move_to = |to: &str| HandOverRequest {
        to: to.to_owned(),
        ..HandOverRequest::default()
    };
    let (one, other) = life.runtime.block_on(async {
        let (first, second) = (move_to("cp-3"), move_to("cp-2"));
        tokio::join!(
            life.backend.hand_over(first),
            life.backend.hand_over(second)
        )
    });
    let (begun, refused) = match (one, other) {
        (Ok(begun), Err(refused)) | (Err(refused), Ok(begun)) => (begun, refused.message),
        both => panic!("{both:?}"),
    };
    assert!(begun.begun, "{begun:?}");
    let to = begun.to.as_deref().unwrap();
    let text =
        format!("cannot move the master off bootstrap-1: it is already moving to {to}, since ");
    assert!(refused.starts_with(&text), "{refused}");
    let note = || read(&life.app.config).unwrap().unwrap();
    let first = note();
    assert_eq!(
        (first.to.as_str(), first.phase),
        (to, HandOverPhase::Offered)
    );
    // The answer was lost, and `ctl` asks again.
    let again = ask(&life, &move_to(to)).unwrap();
    assert_eq!((again.begun, again.to.as_deref()), (true, Some(to)));
    assert_eq!(note(), first);
}

#[test]
fn a_repetition_at_the_next_master_means_the_same_host_and_no_other() {
    let (site, _) = site();
    let life = site.live();
    life.accept("cp-2");
    let record = |leaves: bool, epoch: u64| {
        let record = json!({"epoch": epoch, "from": "cp-2", "leaves": leaves, "taken": 1});
        let path = life.app.config.state_dir.join("taken-over.json");
        fs::write(path, record.to_string()).unwrap();
    };
    let question = HandOverRequest {
        check_only: true,
        ..leaves()
    };
    let named = |host: &str| HandOverRequest {
        host: host.to_owned(),
        ..question.clone()
    };
    // Without a record, a host without the master cannot be retired.
    let answer = ask(&life, &named("cp-2")).unwrap();
    let problems = answer.problems.join("\n");
    assert!(problems.contains("`ctl node remove cp-2`"), "{problems}");
    for leaves in [true, false] {
        record(leaves, life.app.store.epoch());
        let answer = ask(&life, &question).unwrap();
        assert_eq!(
            (answer.from.as_str(), answer.moved, answer.followed),
            ("cp-2", true, false),
            "{answer:?}"
        );
        assert_eq!(answer.to.as_deref(), Some("bootstrap-1"));
        assert_eq!(answer.address.as_deref(), Some("10.10.0.11:4550"));
    }
    // The note of an earlier master of this host.
    record(true, life.app.store.epoch() + 1);
    let answer = ask(&life, &question).unwrap();
    assert_eq!(answer.from, "bootstrap-1");

    let answer = ask(&life, &named("cp-9")).unwrap();
    assert!(answer.left, "{answer:?}");
    assert_eq!(answer.problems, [""; 0]);
}
