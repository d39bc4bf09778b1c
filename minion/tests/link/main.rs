//! The link, tested with a small master in the same process: enrolment, jobs, files, and answers
//! that survive a lost stream.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails"
)]

mod authorities;
mod masters;
mod world;

use std::path::Path;

use halite_durable::digest::sha256;
use halite_minion::{enrol, identity};
use halite_proto::ids::JobId;
use halite_proto::pki::PrivateKey;
use halite_proto::v1::master_message::Body as ToMinion;
use halite_proto::v1::{Job, ReturnStored};
use serde_json::json;

use self::world::{Ca, TOKEN, world};

fn id(number: u64) -> String {
    JobId::from_number(number).into()
}

fn job(number: u64, function: &str, args: serde_json::Value) -> Job {
    Job {
        job: id(number),
        function: function.into(),
        args_json: args.to_string(),
        ..Job::default()
    }
}

fn managed(path: &Path, hash: &str) -> String {
    json!({"format": 1, "minion": "worker-1", "chunks": [{
        "state": "file", "fun": "managed", "id": "f", "name": path, "sls": "s",
        "source": {"file": "s.sls", "line": 1, "column": 1}, "args": {"source": format!("blob:{hash}")}}]})
    .to_string()
}

#[tokio::test]
async fn enrolment_verifies_both_ways() {
    let world = world().await;
    let wrong = world.request(&format!("{TOKEN}.{}", "0".repeat(64)));
    let error = enrol::enrol(&world.config, &wrong, |_| ())
        .await
        .unwrap_err();
    assert!(matches!(error, enrol::EnrolError::Connect(_)), "{error}");
    let unknown = world.request(&format!("other.secret.{}", world.hash));
    let error = enrol::enrol(&world.config, &unknown, |_| ())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, enrol::EnrolError::Rejected(reason) if reason == "the token is unknown"),
        "{error}"
    );
    assert!(!world.config.certificate().exists());
    world.enrolled().await;
    let found = identity::Identity::load(&world.config).unwrap();
    assert_eq!(
        (found.id.as_str(), found.cluster.as_str()),
        ("worker-1", "test")
    );
    let again = world.request(&format!("{TOKEN}.{}", world.hash));
    let error = enrol::enrol(&world.config, &again, |_| ())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, enrol::EnrolError::Enrolled(id) if id == "worker-1"),
        "{error}"
    );
}

#[tokio::test]
async fn a_minion_pings_and_applies_with_files_of_the_master() {
    let mut world = world().await;
    world.enrolled().await;
    let going = world.minion();
    let (mut stream, hello) = world.stream().await;
    assert!(hello.grains_json.contains("\"id\":\"worker-1\""));
    stream
        .send(ToMinion::Job(job(1, "test.ping", json!({}))))
        .await;
    assert_eq!(stream.returned().await.return_json, "true");

    let hash = sha256(b"from the master");
    let path = world.config.state_dir.join("target");
    for (number, retcode) in [(2, 1), (3, 0)] {
        let order = Job {
            low_json: managed(&path, &hash),
            ..job(number, "state.apply", json!({}))
        };
        stream.send(ToMinion::Job(order)).await;
        let answer = stream.returned().await;
        assert_eq!(
            (answer.job.as_str(), answer.retcode),
            (id(number).as_str(), retcode),
            "{answer:?}"
        );
        stream
            .send(ToMinion::Stored(ReturnStored { job: id(number) }))
            .await;
        world
            .master
            .files
            .lock()
            .unwrap()
            .insert(hash.clone(), b"from the master".to_vec());
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"from the master");
    going.send_replace(true);
}

#[tokio::test]
async fn a_minion_that_was_off_for_longer_than_its_certificate_lasts_comes_back_with_its_key() {
    let mut world = world().await;
    world.enrolled().await;
    let before = identity::Identity::load(&world.config).unwrap();
    let key = PrivateKey::from_pem(&before.client.key_pem).unwrap();
    let mut ended = Ca::params("halite://test/minion/worker-1");
    ended.not_before = rcgen::date_time_ymd(2020, 1, 1);
    ended.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let ended = ended.signed_by(key.as_key_pair(), &world.master.ca.issuer);
    std::fs::write(world.config.certificate(), ended.unwrap().pem()).unwrap();
    let going = world.minion();
    let (mut stream, _) = world.stream().await;
    stream
        .send(ToMinion::Job(job(1, "test.ping", json!({}))))
        .await;
    assert_eq!(stream.returned().await.return_json, "true");
    let after = identity::Identity::load(&world.config).unwrap();
    assert_eq!(after.client.key_pem, before.client.key_pem);
    assert!(after.not_after > before.not_before);
    going.send_replace(true);
}

#[tokio::test]
async fn an_answer_is_sent_until_it_is_stored_and_the_job_runs_once() {
    let mut world = world().await;
    world.enrolled().await;
    let going = world.minion();
    let ran = world.config.state_dir.join("ran");
    let order = job(
        7,
        "cmd.run",
        json!({"cmd": format!("echo x >> {}", ran.display())}),
    );
    let (mut stream, _) = world.stream().await;
    stream.send(ToMinion::Job(order.clone())).await;
    assert_eq!(stream.returned().await.retcode, 0);
    drop(stream);

    let (mut stream, hello) = world.stream().await;
    assert!(hello.running_jobs.is_empty());
    assert_eq!(stream.returned().await.job, id(7), "handed in again");
    stream.send(ToMinion::Job(order.clone())).await;
    assert_eq!(stream.returned().await.job, id(7));
    stream
        .send(ToMinion::Stored(ReturnStored { job: id(7) }))
        .await;
    // Answered after `stored` was received: messages keep their order.
    stream
        .send(ToMinion::Job(job(8, "test.ping", json!({}))))
        .await;
    assert_eq!(stream.returned().await.job, id(8));
    going.send_replace(true);
    drop(stream);

    let going = world.minion();
    let (mut stream, _) = world.stream().await;
    stream.send(ToMinion::Job(order)).await;
    let answer = stream.returned().await;
    assert_eq!(
        (answer.job, answer.retcode),
        (id(7), 2),
        "a finished job is never begun again"
    );
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "x\n");
    going.send_replace(true);
}
