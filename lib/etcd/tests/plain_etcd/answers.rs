//! The client: its answers, and one report with the cause for each address that does not answer.

use std::io::Write as _;
use std::time::Instant;

use halite_backup::SnapshotCheck;
use halite_errors::chain;
use halite_etcd::{Client, Members as _};

use super::site::{PATIENCE, Site, address, answered};

#[tokio::test]
async fn state_alarms_hash_and_snapshot_are_read() {
    let mut site = Site::new(&["cp-1"]);
    let client = site.client();
    site.found("cp-1", &client).await;
    let members = client.list().await.unwrap();
    assert_eq!(client.known().await.unwrap(), members);
    assert_eq!(members[0].name, "cp-1");
    let status = answered("the state", async || client.status(&members[0]).await).await;
    assert_eq!(status.leader, Some(members[0].id));
    assert_eq!(status.member, members[0].id);
    assert!(
        status.db_size >= status.db_in_use && status.db_quota > 0,
        "{status:?}"
    );
    assert!(status.version.starts_with("3."), "{status:?}");
    assert_eq!(client.alarms().await.unwrap(), []);

    client.put(b"a", b"1").await.unwrap();
    assert_eq!(client.get(b"a").await.unwrap().as_deref(), Some(&b"1"[..]));
    assert_eq!(client.get(b"b").await.unwrap(), None);
    let first = client.hash_kv(&members[0], 0).await.unwrap();
    client.put(b"a", b"2").await.unwrap();
    let again = client.hash_kv(&members[0], first.revision).await;
    assert_eq!(again.unwrap(), first);
    let newest = client.hash_kv(&members[0], 0).await.unwrap();
    assert_ne!(newest.hash, first.hash);
    client.defragment(&members[0]).await.unwrap();

    let keys = client.keys(&members[0], 0).await.unwrap();
    assert_eq!(keys.count, 1, "a key with two revisions");
    client.put(b"c", b"3").await.unwrap();
    assert_eq!(client.keys(&members[0], 0).await.unwrap().count, 2);
    let before = client.keys(&members[0], keys.revision).await.unwrap();
    assert_eq!(before, keys);

    // The two hashes of one revision around a compaction show that they differ.
    client.compact(before.revision + 1).await.unwrap();
    let live = client.hash_kv(&members[0], 0).await.unwrap();
    assert_eq!(live.compacted, live.revision);
    let noted = client.hash_kv(&members[0], live.revision).await.unwrap();
    assert_eq!((noted.revision, noted.compacted), (live.revision, -1));
    assert_ne!(noted.hash, live.hash);

    let mut snapshot = client.snapshot(&members[0]).await.unwrap();
    let (size, mut check) = (snapshot.size(), SnapshotCheck::default());
    let mut bytes = Vec::new();
    while let Some(part) = snapshot.next().await.unwrap() {
        check.write_all(&part).unwrap();
        bytes.extend(part);
    }
    assert_eq!(bytes.len() as u64, size);
    assert_eq!(check.finish(), Ok(()));
    // The database is whole pages; the hash follows.
    assert_eq!(bytes.len() % 512, 32);
    // bbolt's magic number, in its first page.
    assert_eq!(bytes[16..20], 0xed0c_daed_u32.to_le_bytes());
}

/// The report of a client that no member answers, once the cause is not a timeout.
async fn refused(stranger: &Client) -> String {
    let start = Instant::now();
    loop {
        let text = chain(&stranger.list().await.unwrap_err());
        let is_late = ["no connection within", "no answer within"]
            .iter()
            .any(|late| text.contains(late));
        if !is_late || start.elapsed() > PATIENCE {
            return text;
        }
    }
}

#[tokio::test]
async fn each_address_that_does_not_answer_is_in_the_report_with_its_cause() {
    let mut site = Site::new(&["cp-1"]);
    let client = site.client();
    site.found("cp-1", &client).await;
    let silent = format!("https://{}:2379", address());
    let running = site.node("cp-1").client_url.clone();
    // It reaches the member after an address where nothing listens.
    let both = Client::new(vec![silent.clone(), running.clone()], &site.access()).unwrap();
    let listed = answered("the list", async || both.list().await).await;
    assert_eq!(listed.len(), 1);

    let other = Site::new(&[]);
    let urls = vec![silent.clone(), running.clone(), "http://etcd".to_owned()];
    let stranger = Client::new(urls, &other.access()).unwrap();
    let text = refused(&stranger).await;
    let begin =
        format!("cannot list the members of etcd: {silent}: cannot connect: Connection refused");
    assert!(text.starts_with(&begin), "{text}");
    let middle = format!("; {running}: cannot make a trusted connection: ");
    assert!(
        text.contains(&middle) && text.contains("invalid peer certificate"),
        "{text}"
    );
    let end = "; http://etcd: not an address of the form https://HOST:PORT";
    assert!(text.ends_with(end), "{text}");

    // The client's CA trusts the member, but the member does not trust the client's certificate.
    let (mut access, foreign) = (site.access(), other.access());
    (access.certificate, access.key) = (foreign.certificate, foreign.key);
    let stranger = Client::new(vec![running.clone()], &access).unwrap();
    let text = refused(&stranger).await;
    assert!(
        text.starts_with(&format!("cannot list the members of etcd: {running}: ")),
        "{text}"
    );
    assert_eq!(text.matches(&running).count(), 1, "{text}");
}
