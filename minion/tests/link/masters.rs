//! Several masters, one after the other.

use halite_errors::chain;
use halite_minion::enrol;
use halite_proto::v1::Job;
use halite_proto::v1::master_message::Body as ToMinion;
use serde_json::json;

use super::world::{Stream, TOKEN, World, world};
use super::{id, job};

/// Writes a line into a file in the minion's directory.
fn order(world: &World, number: u64) -> Job {
    let file = world.config.state_dir.join("ran");
    let line = format!("echo {number} >> {}", file.display());
    job(number, "cmd.run", json!({ "cmd": line }))
}

async fn obeyed(stream: &mut Stream, order: Job) {
    let job = order.job.clone();
    stream.send(ToMinion::Job(order)).await;
    // First the answers that no master has stored yet.
    while stream.returned().await.job != job {}
}

#[tokio::test]
async fn a_master_that_the_minion_only_heard_of_is_called_when_the_other_is_gone() {
    let mut first = world().await;
    let mut second = first.beside().await;
    first.enrolled().await;
    first.says(3, &[&first, &second]);
    second.says(3, &[&first, &second]);
    let going = first.minion();
    let (mut stream, hello) = first.stream().await;
    assert_eq!(hello.epoch, Some(0));
    obeyed(&mut stream, order(&first, 7)).await;
    first.stop();
    drop(stream);
    let (mut stream, hello) = second.stream().await;
    let seen = hello.obeyed.unwrap();
    assert_eq!(seen.number, 3, "it says what it has seen");
    assert!(seen.is_proven(&first.master.ca.pem));
    obeyed(&mut stream, order(&first, 8)).await;
    going.send_replace(true);
}

/// A standby listens on the port of the master, with the certificate of its minion.
#[tokio::test]
async fn a_minion_passes_a_standby_and_calls_the_master() {
    let mut first = world().await;
    let mut standby = first.standby_beside().await;
    first.enrolled().await;
    first.says(3, &[&standby, &first]);
    first.config.masters = vec![standby.endpoint.clone(), first.endpoint.clone()];
    let going = first.minion();
    let (mut stream, _) = first.stream().await;
    obeyed(&mut stream, order(&first, 7)).await;
    assert!(standby.streams.try_recv().is_err(), "it called the standby");
    // A new host does not enrol there, either.
    let request = standby.request(&format!("{TOKEN}.{}", standby.hash));
    let refused = enrol::enrol(&standby.config, &request, |_| ()).await;
    let refused = chain(&refused.unwrap_err());
    assert!(refused.contains("stands by and has no master"), "{refused}");
    going.send_replace(true);
}

#[tokio::test]
async fn a_master_that_was_declared_after_the_hello_is_called_too() {
    let mut first = world().await;
    let mut second = first.beside().await;
    first.enrolled().await;
    first.says(3, &[&first]);
    second.says(3, &[&first, &second]);
    let going = first.minion();
    let (mut stream, _) = first.stream().await;
    let news = second.master.hello.lock().unwrap().clone();
    stream.send(ToMinion::Hello(news)).await;
    obeyed(&mut stream, order(&first, 7)).await;
    first.stop();
    drop(stream);
    let (mut stream, _) = second.stream().await;
    obeyed(&mut stream, order(&first, 8)).await;
    going.send_replace(true);
}

#[tokio::test]
async fn a_master_that_was_replaced_is_not_obeyed_after_a_restart_either() {
    let mut first = world().await;
    let mut second = first.beside().await;
    first.enrolled().await;
    first.says(3, &[&first, &second]);
    second.says(4, &[&second]);
    let going = first.minion();
    drop(first.stream().await);
    first.stop();
    let (mut stream, _) = second.stream().await;
    obeyed(&mut stream, order(&first, 7)).await;
    stream
        .send(ToMinion::Stored(halite_proto::v1::ReturnStored {
            job: id(7),
        }))
        .await;
    // Answered after `stored` was received.
    obeyed(&mut stream, job(8, "test.ping", json!({}))).await;
    going.send_replace(true);
    drop(stream);

    // The first master's host is switched on again, and the minion restarts with its old
    // configuration.
    let mut again = first.beside().await;
    again.says(3, &[&again]);
    first.config.masters = vec![again.endpoint.clone()];
    let going = first.minion();
    let (mut stream, hello) = again.stream().await;
    assert_eq!(hello.epoch, Some(4));
    // The minion may have disconnected already.
    let order = Some(ToMinion::Job(order(&first, 9)));
    let _ = stream
        .send
        .send(Ok(halite_proto::v1::MasterMessage { body: order }))
        .await;
    assert!(
        !matches!(stream.received.message().await, Ok(Some(_))),
        "it goes at once"
    );
    let (mut stream, _) = second.stream().await;
    obeyed(&mut stream, job(10, "test.ping", json!({}))).await;
    let ran = std::fs::read_to_string(first.config.state_dir.join("ran")).unwrap();
    assert_eq!(ran, "7\n");
    going.send_replace(true);
}
