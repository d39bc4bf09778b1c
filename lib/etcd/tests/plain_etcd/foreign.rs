//! Hosts that join with the data of another cluster, or at the address of a former member.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use halite_etcd::{ChangeError, Client, Joined, MemberHost, Moment, Pace, RealPace, Removal, Wait};

use super::chaos::{MemberChange, to_the_end};
use super::site::{PATIENCE, Site, changes, copy, pace, voters};

/// The attempts after which a learner that cannot sync is removed, and in which its removal must
/// succeed.
const ATTEMPTS: u32 = 100;

/// Counts attempts instead of time: a busy machine needs more time, but not more attempts.
struct CountedPace {
    attempts: AtomicU32,
    real: RealPace,
}

impl Pace for CountedPace {
    fn now(&self) -> Duration {
        Duration::from_secs(self.attempts.load(Ordering::Relaxed).into())
    }

    fn pause(&self) -> Moment<'_> {
        self.attempts.fetch_add(1, Ordering::Relaxed);
        self.real.pause()
    }

    fn report<'a>(&'a self, wait: &'a Wait) -> Moment<'a> {
        self.real.report(wait)
    }
}

async fn add(client: &Client, host: &MemberHost, bare: bool) -> Result<Joined, ChangeError> {
    let pace = pace();
    changes(client, &pace, PATIENCE)
        .add_learner(host, bare)
        .await
}

async fn promote(client: &Client, host: &MemberHost) -> Result<(), ChangeError> {
    let pace = pace();
    let changes = changes(client, &pace, PATIENCE);
    changes.promote(host).await.map(drop)
}

/// Attempts to give a learner its vote, and returns the error of its removal.
async fn refused_promotion(client: &Client, host: &MemberHost) -> ChangeError {
    let pace = CountedPace {
        attempts: AtomicU32::new(0),
        real: pace(),
    };
    let limit = Duration::from_secs(ATTEMPTS.into());
    let changes = changes(client, &pace, limit);
    changes.promote(host).await.unwrap_err()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_learner_with_the_data_of_another_cluster_never_gets_its_vote() {
    let mut site = Site::new(&["cp-1", "cp-2"]);
    let client = site.client();
    // The second host was a cluster by itself.
    let own = Client::new(vec![site.node("cp-2").client_url.clone()], &site.access()).unwrap();
    site.found("cp-2", &own).await;
    site.node_mut("cp-2").kill();
    let first = Client::new(vec![site.node("cp-1").client_url.clone()], &site.access()).unwrap();
    site.found("cp-1", &first).await;

    let host = site.node("cp-2").host.clone();
    let joined = add(&first, &host, false).await.unwrap();
    site.node_mut("cp-2")
        .start("existing", &joined.initial_cluster);
    let error = refused_promotion(&first, &host).await;
    assert!(
        error
            .to_string()
            .contains("it was removed and the members are unchanged"),
        "{error}"
    );
    assert_eq!(voters(&first).await, ["cp-1"]);

    // Without that data it joins.
    site.node_mut("cp-2").kill();
    site.node("cp-2").wipe();
    let joined = add(&client, &host, true).await.unwrap();
    site.node_mut("cp-2")
        .start("existing", &joined.initial_cluster);
    promote(&client, &host).await.unwrap();
    assert_eq!(voters(&client).await, ["cp-1", "cp-2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reused_address_needs_the_old_member_removed_and_its_data_gone() {
    let mut site = Site::new(&["cp-1", "cp-2"]);
    let client = Arc::new(site.client());
    site.found("cp-1", &client).await;
    let old = site.node("cp-2").host.clone();
    let joined = add(&client, &old, true).await.unwrap();
    site.node_mut("cp-2")
        .start("existing", &joined.initial_cluster);
    promote(&client, &old).await.unwrap();

    // A reinstalled host has no data of its former member.
    let lost = add(&client, &old, true).await;
    assert_eq!(
        lost,
        Err(ChangeError::DataLost {
            name: "cp-2".into()
        })
    );
    // Another host at its address.
    let address = site.node("cp-2").address();
    site.declare("cp-3", address);
    let new = site.node("cp-3").host.clone();
    let taken = add(&client, &new, true).await.unwrap_err();
    assert!(matches!(taken, ChangeError::AddressTaken { .. }), "{taken}");

    // With two members, the leader may be the one that leaves.
    let removal = Removal {
        name: "cp-2".to_owned(),
        peer_url: None,
        dead: false,
    };
    to_the_end(&client, &MemberChange::Remove(removal)).await;
    assert_eq!(voters(&client).await, ["cp-1"]);
    site.node_mut("cp-2").kill();

    // The new host with the data of the old one: etcd knows that this member was removed.
    copy(&site.node("cp-2").data(), &site.node("cp-3").data());
    let joined = add(&client, &new, false).await.unwrap();
    site.node_mut("cp-3")
        .start("existing", &joined.initial_cluster);
    let error = refused_promotion(&client, &new).await;
    assert!(matches!(error, ChangeError::NeverSynced { .. }), "{error}");
    site.node_mut("cp-3").kill();
    site.node("cp-3").wipe();
    let joined = add(&client, &new, true).await.unwrap();
    site.node_mut("cp-3")
        .start("existing", &joined.initial_cluster);
    promote(&client, &new).await.unwrap();
    assert_eq!(voters(&client).await, ["cp-1", "cp-3"]);
}
