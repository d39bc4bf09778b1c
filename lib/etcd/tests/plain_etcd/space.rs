//! A quota reached by a writer on three members.

use halite_etcd::{AlarmKind, Client, Members as _, Overview};

use super::site::{PATIENCE, Site, answered, changes, eventually, pace, voters};
use super::writer::assert_equal_hashes;

const NAMES: [&str; 3] = ["cp-1", "cp-2", "cp-3"];
const QUOTA: &str = "--quota-backend-bytes=8388608";
const VALUE: usize = 128 * 1024;

async fn three(site: &mut Site, client: &Client) {
    for name in NAMES {
        site.node_mut(name).flags.push(QUOTA.to_owned());
    }
    site.found(NAMES[0], client).await;
    for name in &NAMES[1..] {
        site.join(name, client).await;
    }
    assert_eq!(voters(client).await, NAMES);
}

/// Returns whether the quota refused the write. Any other error, for example during an election, is
/// inconclusive.
fn is_full(error: &impl std::error::Error) -> bool {
    halite_errors::chain(error).contains("database space exceeded")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_that_a_writer_has_reached_is_resolved_without_loss() {
    let mut site = Site::new(&NAMES);
    let client = site.client();
    three(&mut site, &client).await;
    answered("a write", async || client.put(b"kept", b"value").await).await;
    // The same key again and again: all versions but the last are old revisions. A write whose
    // answer was lost, for example during an election, may or may not exist.
    let (mut last, mut unknown) = (None, Vec::new());
    for number in 0..200u32 {
        let value = vec![u8::try_from(number).unwrap(); VALUE];
        match client.put(b"often", &value).await {
            Ok(()) => {
                last = Some(value);
                unknown.clear();
            }
            Err(error) => {
                // etcd may have written a value that it refuses for lack of space
                // (`quotaApplierV3.Put`).
                unknown.push(value);
                if is_full(&error) {
                    break;
                }
                println!("write {number}: {}", halite_errors::chain(&error));
            }
        }
    }
    eventually("the alarm is raised", async || {
        let alarms = client.alarms().await.unwrap_or_default();
        alarms.iter().any(|alarm| alarm.kind == AlarmKind::NoSpace)
    })
    .await;
    assert!(client.put(b"refused", b"1").await.is_err());

    let pace = pace();
    let freed = changes(&client, &pace, PATIENCE).make_room().await.unwrap();
    assert!(!freed.is_empty());
    let overview = answered("the state of each member", async || {
        let overview = Overview::take(&client)
            .await
            .map_err(|error| error.to_string())?;
        let mut members = overview.members.iter();
        match members.find(|own| own.status.is_none()) {
            Some(silent) => Err(format!("{} is silent", silent.member.title())),
            None => Ok(overview),
        }
    })
    .await;
    assert_eq!(overview.alarms, []);
    for own in &overview.members {
        let status = own.status.as_ref().unwrap();
        // A member with enough room is left alone: not all members have the same size.
        assert!(status.db_size * 100 <= status.db_quota * 90, "{status:?}");
    }
    answered("a write", async || client.put(b"taken", b"1").await).await;
    let read = answered("a read", async || client.get(b"often").await).await;
    assert!(
        read == last || unknown.into_iter().any(|value| read == Some(value)),
        "the acknowledged value is another one"
    );
    let kept = answered("a read", async || client.get(b"kept").await).await;
    assert_eq!(kept.as_deref(), Some(&b"value"[..]));
    assert_equal_hashes(&client).await;
}

#[tokio::test]
async fn data_that_reach_the_quota_keep_the_alarm_until_some_are_deleted() {
    let mut site = Site::new(&["cp-1"]);
    site.node_mut("cp-1").flags.push(QUOTA.to_owned());
    let client = site.client();
    site.found("cp-1", &client).await;
    let pace = pace();
    // The error comes at the timeout, and its cause must be known by then: after a defragmentation.
    let limit = std::time::Duration::from_secs(30);
    let (mut numbers, mut refused) = (0..200u32, None);
    // The sooner etcd commits each write, the more of the size is pages that a defragmentation
    // returns: then there is room for more.
    while refused.is_none() {
        loop {
            let number = numbers.next().expect("all keys have room below the quota");
            let key = format!("key/{number}");
            let written = client.put(key.as_bytes(), &vec![1; VALUE]).await;
            if written.is_err_and(|error| is_full(&error)) {
                break;
            }
        }
        refused = changes(&client, &pace, limit).make_room().await.err();
    }
    let text = refused.unwrap().to_string();
    assert!(
        text.contains("of its quota of 8 MiB; delete objects"),
        "{text}"
    );
    let alarms = answered("the alarms", async || client.alarms().await).await;
    assert!(!alarms.is_empty());
}
