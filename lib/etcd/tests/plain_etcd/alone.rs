//! One healthy member of three is left: a cluster of one, then three again. The old ones come back.

use std::sync::Arc;

use super::site::{PATIENCE, Site, answered, changes, eventually, pace, voters};
use super::writer::{Writer, assert_equal_hashes};

const NAMES: [&str; 4] = ["cp-1", "cp-2", "cp-3", "cp-4"];
const FORCE: &str = "--force-new-cluster";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_member_keeps_its_data_and_the_lost_ones_stay_out() {
    let mut site = Site::new(&NAMES);
    let client = Arc::new(site.client());
    site.found("cp-1", &client).await;
    site.join("cp-2", &client).await;
    site.join("cp-3", &client).await;
    let writer = Writer::start(site.client());
    eventually("some writes", async || {
        let found = client.get(b"write/20").await;
        found.is_ok_and(|value| value.is_some())
    })
    .await;
    let written = writer.finish(&client).await;
    assert_equal_hashes(&client).await;

    site.node_mut("cp-1").kill();
    site.node_mut("cp-2").kill();
    let pace = pace();
    let all = changes(client.as_ref(), &pace, PATIENCE);
    all.may_be_alone("cp-3").await.unwrap();
    let last = site.node_mut("cp-3");
    last.kill();
    last.flags.push(FORCE.to_owned());
    last.start_again();
    all.wait_alone("cp-3").await.unwrap();
    // Without the flag again, as after the manifest is restored.
    let last = site.node_mut("cp-3");
    last.kill();
    last.flags.clear();
    last.start_again();
    all.wait_alone("cp-3").await.unwrap();
    for number in &written.acknowledged {
        let key = format!("write/{number}");
        let value = answered(&key, async || client.get(key.as_bytes()).await).await;
        assert_eq!(value.as_deref(), Some(key.as_bytes()));
    }
    answered("a write", async || client.put(b"after", b"1").await).await;

    // The host of a lost one is switched on again: its etcd exits and has no vote.
    site.node_mut("cp-1").start_again();
    eventually("the lost member ends", async || {
        site.node("cp-1").has_ended()
    })
    .await;
    assert_eq!(voters(&client).await, ["cp-3"]);
    // Another host, and the lost one installed again.
    site.join("cp-4", &client).await;
    site.node_mut("cp-2").wipe();
    site.join("cp-2", &client).await;
    assert_eq!(voters(&client).await, ["cp-2", "cp-3", "cp-4"]);
    let read = answered("a read", async || client.get(b"after").await).await;
    assert_eq!(read.as_deref(), Some(&b"1"[..]));
    assert_equal_hashes(&client).await;
}
