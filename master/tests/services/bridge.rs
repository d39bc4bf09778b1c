//! Two masters' hosts that do not reach each other, and a standby that reaches both.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use halite_core::clock::ManualClock;
use halite_core::config::Config;
use halite_core::isolation::{AFTER, Surroundings};
use halite_master::other_masters::{ask, look};
use halite_proto::pki::PrivateKey;
use halite_proto::tonic::{Code, Request};
use halite_proto::transport::{ClientIdentity, connect, connect_any};
use halite_proto::v1;
use halite_proto::v1::Epoch;
use halite_proto::v1::standby_client::StandbyClient;
use halite_standby::compare::{HostAnswer, answers, others};
use halite_standby::knowledge::Knowledge;
use halite_standby::promote::{PromoteError, Promotion, PromotionRequest};
use halite_standby::{directory, listener, mark};
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::site::{SOON, Site, start, start_beside};
use super::standbys::{Unused, minion_directory, refused};

/// The host of a standby that listens on its own port.
struct StandbyHost {
    endpoint: String,
    knowledge: Arc<Knowledge>,
    clock: Arc<ManualClock>,
    minion: PathBuf,
    config: Config,
    _directory: TempDir,
}

/// Makes the host of a standby of these masters, with the identity of its minion.
async fn standby(site: &Site, own: &ClientIdentity, masters: &[&str]) -> StandbyHost {
    let host = minion_directory(site, own);
    let mut config = site.app.config.clone();
    config.state_dir = host.path().join("state");
    std::fs::create_dir_all(directory(&config)).unwrap();
    std::fs::write(mark(&config), masters.join("\n")).unwrap();
    let clock = Arc::new(ManualClock::at(1_800_000_000_000));
    let minion = host.path().to_owned();
    let knowledge = Knowledge::new(
        &config,
        minion.clone(),
        Arc::clone(&clock) as _,
        Epoch::unproven(1),
    );
    let knowledge = Arc::new(knowledge);
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = port.local_addr().unwrap().to_string();
    let answering = Arc::clone(&knowledge);
    tokio::spawn(async move { listener::answer(answering, port).await });
    StandbyHost {
        endpoint,
        knowledge,
        clock,
        minion,
        config,
        _directory: host,
    }
}

impl StandbyHost {
    /// Asks the masters until one has answered; a query may take longer than its timeout.
    async fn hears(&self, master: &str) {
        let heard = async {
            while self.knowledge.standing().master != master {
                self.knowledge.ask().await.unwrap();
            }
        };
        let limited = tokio::time::timeout(SOON, heard).await;
        limited.expect("the master does not answer the standby");
    }

    fn promotion(&self) -> Promotion<'_> {
        Promotion::new(&self.config, &self.minion, self.clock.as_ref(), &Unused)
    }
}

/// The answer of a host, which is asked repeatedly until it answers.
async fn answer(address: &str, minion: &Path) -> HostAnswer {
    let addresses = [address.to_owned()];
    let found = async {
        loop {
            let found = answers(&addresses, &Epoch::default(), minion)
                .await
                .unwrap();
            if found[0].1 != HostAnswer::Silent {
                return found[0].1.clone();
            }
        }
    };
    let limited = tokio::time::timeout(SOON, found).await;
    limited.expect("the host is silent")
}

#[tokio::test]
async fn a_standby_says_whom_it_follows_and_nothing_else() {
    let site = start().await;
    let own = site.enrolled("cp-3").await;
    let other = minion_directory(&site, &site.enrolled("cp-2").await);
    let host = standby(&site, &own, &[&site.endpoint]).await;
    let HostAnswer::Standby(before) = answer(&host.endpoint, other.path()).await else {
        panic!("it does not stand by")
    };
    assert_eq!(
        (before.host.as_str(), before.epoch.number, before.hears()),
        ("cp-3", 1, None)
    );
    host.hears(&site.endpoint).await;
    host.clock.advance(4_000);
    let HostAnswer::Standby(after) = answer(&host.endpoint, other.path()).await else {
        panic!("it does not stand by")
    };
    let followed = after.hears().unwrap();
    assert_eq!(followed.master, site.endpoint);
    assert_eq!(followed.silent, Duration::from_secs(4));
    assert_eq!(&after.epoch, site.app.succession.own());
    // A client that only accepts a master does not even reach a call.
    for identity in [Some(&own), Some(&site.root()), None] {
        let error = connect(&host.endpoint, &site.ca_pem, identity).await;
        let error = error.unwrap_err();
        assert!(error.is_of_a_standby(), "{error:?}");
    }
    let channel = connect_any(&host.endpoint, &site.ca_pem, &own).await;
    let nothing = Request::new(futures_util::stream::iter(Vec::<v1::StandbyMessage>::new()));
    let refused = StandbyClient::new(channel.unwrap()).follow(nothing).await;
    let status = refused.err().unwrap();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains(&site.endpoint), "{status}");
}

/// The link between the master and this host is cut; the other standby reaches both.
#[tokio::test]
async fn a_promotion_is_refused_while_another_standby_reaches_the_master() {
    let site = start().await;
    let other = standby(&site, &site.enrolled("cp-3").await, &[&site.endpoint]).await;
    other.hears(&site.endpoint).await;
    // Nothing listens at the first address.
    let masters = ["127.0.0.1:1", other.endpoint.as_str()];
    let host = standby(&site, &site.enrolled("cp-2").await, &masters).await;
    let asking = Arc::clone(&other.knowledge);
    let asking = tokio::spawn(async move {
        loop {
            asking.ask().await.unwrap();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    let error = refused(host.promotion()).await;
    let PromoteError::Heard {
        standby, master, ..
    } = &error
    else {
        panic!("{error}")
    };
    assert_eq!((standby.as_str(), master), ("cp-3", &site.endpoint));
    asking.abort();
    let _ = asking.await;
    // The master is dead: the standby has not heard it for a while. Then the next check refuses.
    other.clock.advance(15_000);
    let error = refused(host.promotion()).await;
    assert!(matches!(error, PromoteError::NoCopy), "{error}");
}

#[tokio::test]
async fn a_promotion_waits_for_a_master_that_just_died_and_then_replaces_it() {
    static WAITS: AtomicBool = AtomicBool::new(false);
    let site = start().await;
    let other = standby(&site, &site.enrolled("cp-3").await, &[&site.endpoint]).await;
    other.hears(&site.endpoint).await;
    let host = standby(&site, &site.enrolled("cp-2").await, &[&other.endpoint]).await;
    site.task.abort();
    other.clock.advance(5_000);
    let passes = async {
        while !WAITS.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        other.clock.advance(15_000);
        std::future::pending::<()>().await;
    };
    let promotion = host
        .promotion()
        .with_notes(|_| WAITS.store(true, Ordering::SeqCst));
    let wanted = PromotionRequest::default();
    let error = tokio::select! {
        error = tokio::time::timeout(SOON, promotion.run(&wanted)) => error.unwrap().unwrap_err(),
        () = passes => unreachable!("it has no end"),
    };
    assert!(matches!(error, PromoteError::NoCopy), "{error}");
}

/// The standby on the other side of the cut was promoted by force.
#[tokio::test]
async fn the_lower_of_two_masters_stops_within_a_round_of_a_standby_that_reaches_both() {
    let old = start().await;
    let key = old.enrolled("cp-3").await;
    let next = start_beside(&old, old.app.store.epoch() + 1).await;
    let key_of = PrivateKey::from_pem(&key.key_pem).unwrap();
    next.enrolled_with("cp-3", &key_of).await;
    let host = standby(&old, &key, &[&old.endpoint, &next.endpoint]).await;
    let app = Arc::clone(&old.app);
    let stopped = tokio::spawn(async move { app.succession.replaced().await });
    host.hears(&next.endpoint).await;
    let replaced = tokio::time::timeout(SOON, stopped).await.unwrap().unwrap();
    assert_eq!(replaced.heard, next.app.store.epoch());
    assert_eq!(&host.knowledge.epoch(), next.app.succession.own());
    // It is on disk, for a promotion of this host.
    let noted = std::fs::read_to_string(directory(&host.config).join("epoch")).unwrap();
    assert_eq!(noted.trim(), next.app.store.epoch().to_string());
}

#[tokio::test]
async fn a_master_stops_when_a_standby_that_it_asks_has_heard_of_a_higher_epoch() {
    let site = start().await;
    let higher = site.app.store.epoch() + 1;
    let evidence = site.app.cas.sign_epoch(higher, "cp-2-22").unwrap();
    let host = standby(&site, &site.enrolled("cp-3").await, &[]).await;
    let knowledge = Knowledge::new(
        &host.config,
        host.minion.clone(),
        Arc::clone(&host.clock) as _,
        evidence,
    );
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = port.local_addr().unwrap().to_string();
    tokio::spawn(async move { listener::answer(Arc::new(knowledge), port).await });
    let own = minion_directory(&site, &site.enrolled("cp-1").await);
    let addresses = [endpoint];
    let found = async {
        loop {
            let asked = look(&site.app, &addresses, own.path()).await;
            if let Err(replaced) = asked {
                return replaced;
            }
        }
    };
    let replaced = tokio::time::timeout(SOON, found).await.unwrap();
    assert_eq!(replaced.heard, higher);
    assert!(replaced.witness.contains("the standby cp-3"), "{replaced}");
}

#[tokio::test]
async fn a_master_knows_that_it_is_alone_when_all_other_hosts_say_so() {
    let first = start().await;
    let second = start_beside(&first, 1).await;
    // Of two masters with the same epoch, the one that would not stop.
    let (elsewhere, site) = match first.app.store.holder() < second.app.store.holder() {
        true => (first, second),
        false => (second, first),
    };
    let own = minion_directory(&site, &site.enrolled("cp-1").await);
    let host = standby(&site, &site.enrolled("cp-3").await, &[&site.endpoint]).await;
    let seen = Surroundings {
        standbys: 2,
        alone_since: Some(0),
        accepted: 4,
        connected: 1,
    };
    let acts = async |addresses: &[String]| {
        ask(&site.app, addresses, own.path()).await.unwrap();
        let now = site.app.clock.steady();
        for then in [now, now + AFTER] {
            site.app.isolation.look(then, seen);
        }
        site.app.isolation.reason().is_none()
    };
    // It accepts connections and never answers.
    let hangs = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = hangs.local_addr().unwrap().to_string();
    assert!(!acts(&[host.endpoint.clone(), silent]).await);
    // A standby that receives from another master at this moment.
    let there = standby(&elsewhere, &host_identity(&host), &[&elsewhere.endpoint]).await;
    elsewhere
        .enrolled_with(
            "cp-3",
            &PrivateKey::from_pem(&host_identity(&host).key_pem).unwrap(),
        )
        .await;
    there.hears(&elsewhere.endpoint).await;
    assert!(!acts(std::slice::from_ref(&there.endpoint)).await);
    there.clock.advance(15_000);
    let alone = async { while !acts(&[host.endpoint.clone(), there.endpoint.clone()]).await {} };
    tokio::time::timeout(SOON, alone).await.unwrap();
    let heard = others(
        std::slice::from_ref(&host.endpoint),
        &Epoch::unproven(1),
        own.path(),
    )
    .await
    .unwrap();
    assert_eq!(heard.other, None);
}

/// The identity of a standby's minion.
fn host_identity(host: &StandbyHost) -> ClientIdentity {
    let read = |name: &str| std::fs::read_to_string(host.minion.join(name)).unwrap();
    ClientIdentity {
        certificate_pem: read("identity.crt"),
        key_pem: read("identity.key"),
    }
}
