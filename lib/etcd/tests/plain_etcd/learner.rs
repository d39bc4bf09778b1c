//! A learner that gets its data as a snapshot is started twice, as `etcd.joined` does.

use std::fs;
use std::path::Path;

use halite_etcd::Members as _;

use super::site::{PATIENCE, Site, answered, changes, eventually, pace, voters};

/// More entries than a leader keeps for a new member.
const ENTRIES: usize = 300;

fn has_snapshot(data: &Path) -> bool {
    let names = fs::read_dir(data.join("member/snap")).into_iter().flatten();
    let names: Vec<String> = names
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.iter().any(|name| name.ends_with(".snap"))
        && !names.iter().any(|name| name.ends_with(".snap.db"))
}

/// At its first start it may have to wait for the timeout of its own announcement; with its data,
/// it never does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_that_starts_with_its_data_does_not_wait_for_its_announcement() {
    let mut site = Site::new(&["cp-1", "cp-2"]);
    let client = site.client();
    site.found("cp-1", &client).await;
    for number in 0..ENTRIES {
        let key = format!("key/{number}");
        answered("a write", async || client.put(key.as_bytes(), b"1").await).await;
    }
    site.add("cp-2", &client).await;
    let data = site.node("cp-2").data();
    eventually("the snapshot is there", async || has_snapshot(&data)).await;
    let learner = site.node_mut("cp-2");
    learner.kill();
    let before = learner.log().len();
    learner.start_again();
    let pace = pace();
    let changes = changes(&client, &pace, PATIENCE);
    changes.promote(&site.node("cp-2").host).await.unwrap();
    assert_eq!(voters(&client).await, ["cp-1", "cp-2"]);
    let log = site.node("cp-2").log();
    let announced = !log[before..].contains("failed to publish local member");
    assert!(announced, "{}", &log[before..]);
    let members = answered("the members", async || client.list().await).await;
    let second = members.iter().find(|member| member.name == "cp-2").unwrap();
    let keys = answered("the keys", async || client.keys(second, 0).await).await;
    assert!(keys.count >= ENTRIES as u64, "{keys:?}");
}
