//! A caller that reaches only one of three members, while the members reach each other.

use std::time::Duration;

use halite_etcd::{Client, Gate, Members as _};

use super::site::{PATIENCE, Site, address, answered, changes, eventually, pace, voters};

const NAMES: [&str; 3] = ["cp-1", "cp-2", "cp-3"];
/// Shorter than the time after which a cluster without a quorum counts as in need of repair.
const SHORT: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_members_that_only_the_caller_cannot_reach_do_not_mean_a_lost_quorum() {
    let mut site = Site::new(&NAMES);
    let all = site.client();
    site.found("cp-1", &all).await;
    for name in &NAMES[1..] {
        site.join(name, &all).await;
    }
    for name in &NAMES[1..] {
        // From now on it announces a client address on which nothing listens.
        let nowhere = format!("https://{}:2379", address());
        let node = site.node_mut(name);
        node.kill();
        let flag = format!("--advertise-client-urls={nowhere}");
        node.flags.push(flag);
        node.start_again();
        eventually("the member has said its address", async || {
            let members = all.list().await.unwrap_or_default();
            members.iter().any(|own| own.client_urls.contains(&nowhere))
        })
        .await;
    }
    assert_eq!(voters(&all).await, NAMES);

    let first = vec![site.node("cp-1").client_url.clone()];
    let master = Client::new(first, &site.access()).unwrap();
    let pace = pace();
    for name in &NAMES[..2] {
        // On a busy machine, the reachable member may not answer in time. Then, too, no host may be
        // missing.
        eventually("it counts the members that it sees", async || {
            let gate = changes(&master, &pace, SHORT).allow_missing(name).await;
            let text = gate.unwrap_err().to_string();
            println!("{text}");
            let mut parts = ["1 of 3 voting", "etcd has a quorum", "cp-2: ", "cp-3: "].iter();
            parts.all(|part| text.contains(part))
        })
        .await;
    }
    answered("a write", async || all.put(b"a", b"1").await).await;

    for name in &NAMES[1..] {
        site.node_mut(name).kill();
    }
    let gate = changes(&master, &pace, PATIENCE)
        .allow_missing("cp-1")
        .await;
    let gate = gate.unwrap();
    assert!(matches!(gate, Gate::Repair { .. }), "{gate}");
    let refused = gate.planned("cp-1").unwrap_err().to_string();
    assert!(refused.contains("cp-1 follows no leader"), "{refused}");
}
