//! A standby over real TLS: the hosts that receive records, their copies, and the end of a replaced
//! master.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use halite_core::clock::SystemClock;
use halite_core::roster::FollowState;
use halite_core::roster::budget::{Budget, BudgetLimits};
use halite_fleet::keys;
use halite_master::other_masters::look;
use halite_pillar::load::{Texts, load};
use halite_pillar::sealed::SealedSecrets;
use halite_pillar::validate::Context;
use halite_proto::tonic::{Code, Request, Status};
use halite_proto::transport::{Channel, ClientIdentity};
use halite_proto::v1;
use halite_proto::v1::Epoch;
use halite_proto::v1::standby_client::StandbyClient;
use halite_secret_file::SecretFile;
use halite_standby::compare::{HeardAnswers, others};
use halite_standby::declared::declaration;
use halite_standby::follow::session;
use halite_standby::promote::{PromoteError, Promotion, PromotionRequest, Unit};
use halite_standby::receiver::Receiver;
use halite_standby::session::SessionError;
use halite_standby::{directory, mark};
use halite_store::{Audit, AuditFilter, Store, fold_log};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::oneshot;

use super::declared::MINION;
use super::site::{SOON, Site, start};

/// Asks a master for its epoch, as one that has seen none.
pub async fn compare(channel: Channel) -> Result<(), Status> {
    let request = v1::CompareRequest::default();
    StandbyClient::new(channel).compare(request).await.map(drop)
}

/// Calls as a standby without a copy, and waits for the first record.
pub async fn greet(channel: Channel) -> Result<(), Status> {
    let hello = v1::StandbyHello {
        protocol: 1,
        ..Default::default()
    };
    let hello = v1::StandbyMessage {
        body: Some(v1::standby_message::Body::Hello(hello)),
    };
    let hello = Request::new(futures_util::stream::iter([hello]));
    let mut records = StandbyClient::new(channel)
        .follow(hello)
        .await?
        .into_inner();
    records.message().await.map(drop)
}

async fn answered(site: &Site, number: i64) {
    let line = Audit {
        time: number,
        who: "operator:root".to_owned(),
        method: "Test".to_owned(),
        what: "x".repeat(20_000),
        outcome: "ok".to_owned(),
    };
    site.app.store.append_audit(&line).await.unwrap();
}

/// A unit that is neither stopped nor started.
pub struct Unused;

impl Unit for Unused {
    fn stop(&self) -> std::io::Result<()> {
        unreachable!("nothing is changed")
    }

    fn start(&self) -> std::io::Result<()> {
        unreachable!("nothing is changed")
    }
}

#[tokio::test]
async fn what_a_master_answered_is_on_its_standby_when_both_end_at_once() {
    let mut site = start().await;
    std::fs::write(site.app.config.config_dir.join("cluster.yaml"), "declared").unwrap();
    let own = site.enrolled(MINION).await;
    // The standby may be as slow as the machine.
    let endless = Budget::new(BudgetLimits {
        free: Duration::MAX,
        most: Duration::MAX,
        window: Duration::MAX,
    });
    *site.app.standbys.budget(MINION).lock().unwrap() = endless;
    let host = TempDir::new().unwrap();
    let mut receiver = Receiver::open(host.path(), 0).unwrap();
    let channel = site.channel(Some(&own)).await;
    let (begun, following) = oneshot::channel();
    let ca = site.ca_pem.clone();
    let standby = tokio::spawn(async move {
        let begun = || {
            let _ = begun.send(());
            Ok(())
        };
        session(&mut receiver, channel, &ca, begun).await
    });
    following.await.unwrap();
    // The standby has it before the master knows.
    while site.app.standbys.alone_since().is_some() {
        tokio::task::yield_now().await;
    }
    for number in 1..=30 {
        answered(&site, number).await;
    }
    assert_eq!(
        site.app.standbys.seen()[MINION].state,
        FollowState::Following
    );
    standby.abort();
    site.task.abort();
    drop(site.stop.take());
    let receiver = Receiver::open(host.path(), 0).unwrap();
    let copy = receiver.copy().unwrap();
    let names: Vec<&str> = copy.files().map(|(place, _, _)| place).collect();
    assert!(
        names.contains(&"config/cluster.yaml") && names.contains(&"state/ca/halite.key"),
        "{names:?}"
    );
    fold_log(&copy.store()).await.unwrap();
    let store = Store::open(&copy.store()).await.unwrap();
    store.check().await.unwrap();
    let lines = store.audit(&AuditFilter::newest(1000)).await.unwrap();
    for number in 1..=30 {
        assert!(
            lines
                .iter()
                .any(|line| line.time == number && line.method == "Test"),
            "{number}"
        );
    }
}

#[tokio::test]
async fn a_standby_gets_the_secrets_only_in_a_form_that_it_can_decrypt() {
    let site = start().await;
    let config = &site.app.config;
    let document = config.config_dir.join("cluster.yaml");
    let text = std::fs::read_to_string(&document).unwrap();
    let added = format!("{text}secrets: {{smtp: {{roles: [worker]}}}}\n");
    std::fs::write(&document, added).unwrap();
    let texts = Texts::from_dir(&config.config_dir).unwrap();
    let file = SecretFile::new(&config.config_dir, &config.state_dir);
    // Its first value is written as if there were a file: the document alone would be invalid.
    let closed = Texts {
        sealed: Some(SealedSecrets::default()),
        ..texts
    };
    let declared = load(&closed, &Context::default()).unwrap();
    file.write("smtp: canary\n", &declared).unwrap();
    let own = site.enrolled(MINION).await;
    let host = TempDir::new().unwrap();
    let state = host.path().join("own");
    let identity = SecretFile::new(host.path(), &state);
    let recipient = identity.own_recipient().unwrap();
    let standby = host.path().join("standby");
    for is_known in [false, true] {
        let mut receiver = Receiver::open(&standby, 0).unwrap();
        if is_known {
            receiver = receiver.with_secrets(recipient.to_string());
        }
        let channel = site.channel(Some(&own)).await;
        let (begun, following) = oneshot::channel();
        let ca = site.ca_pem.clone();
        let stream = tokio::spawn(async move {
            let begun = || {
                let _ = begun.send(());
                Ok(())
            };
            session(&mut receiver, channel, &ca, begun).await
        });
        tokio::time::timeout(SOON, following)
            .await
            .unwrap()
            .unwrap();
        stream.abort();
        let _ = stream.await;
        let copy = Receiver::open(&standby, 0).unwrap();
        let files = copy.copy().unwrap().root_of_files();
        let names: Vec<&str> = copy
            .copy()
            .unwrap()
            .files()
            .map(|(name, _, _)| name)
            .collect();
        assert!(
            !names.iter().any(|name| name.starts_with("state/secrets")),
            "{names:?}"
        );
        // As a promotion installs it: the master's documents, and this host's identity.
        let taken = SecretFile::new(&files.join("config"), &state);
        assert_eq!(taken.read().is_ok(), is_known);
        let copied = declaration(&files, &state).unwrap();
        let value = copied.cluster.secrets["smtp"].known();
        assert_eq!(value, is_known.then_some("canary"));
    }
    let recorded = file.recipients().unwrap();
    assert_eq!(recorded.of_host(MINION), Some(recipient));
    assert!(file.read().unwrap().is_some());
}

#[tokio::test]
async fn only_the_minion_of_a_declared_standby_is_fed() {
    let site = start().await;
    let other = site.enrolled("worker-2").await;
    let host = TempDir::new().unwrap();
    let mut receiver = Receiver::open(host.path(), 0).unwrap();
    let channel = site.channel(Some(&other)).await;
    let error = session(&mut receiver, channel, &site.ca_pem, || Ok(()))
        .await
        .unwrap_err();
    let SessionError::Call(status) = &error else {
        panic!("{error}")
    };
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(
        status.message().contains("worker-2 is not a standby"),
        "{status}"
    );
    assert!(receiver.copy().is_none());
}

#[tokio::test]
async fn a_standby_that_has_delayed_the_master_for_too_long_is_not_fed_for_a_while() {
    let site = start().await;
    let own = site.enrolled(MINION).await;
    let budget = site.app.standbys.budget(MINION);
    let now = tokio::time::Instant::now();
    budget
        .lock()
        .unwrap()
        .spend(now, now + Duration::from_secs(20));
    let host = TempDir::new().unwrap();
    let mut receiver = Receiver::open(host.path(), 0).unwrap();
    let channel = site.channel(Some(&own)).await;
    let error = session(&mut receiver, channel, &site.ca_pem, || Ok(()))
        .await
        .unwrap_err();
    let SessionError::Call(status) = &error else {
        panic!("{error}")
    };
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(
        status.message().contains("20 s of the last 60 s"),
        "{status}"
    );
}

#[tokio::test]
async fn a_master_stops_when_a_standby_has_heard_of_a_higher_epoch() {
    let site = start().await;
    let own = site.enrolled(MINION).await;
    let host = TempDir::new().unwrap();
    // In the form in which it is written when a standby follows a master.
    let heard = site.app.cas.sign_epoch(9, "cp-2-22").unwrap();
    std::fs::write(host.path().join("evidence.json"), json!(heard).to_string()).unwrap();
    let mut receiver = Receiver::open(host.path(), 0).unwrap();
    let channel = site.channel(Some(&own)).await;
    let app = Arc::clone(&site.app);
    let stopped = tokio::spawn(async move { app.succession.replaced().await });
    let error = session(&mut receiver, channel, &site.ca_pem, || Ok(()))
        .await
        .unwrap_err();
    assert!(
        matches!(&error, SessionError::Call(status) if status.message().contains("the epoch 9")),
        "{error}"
    );
    let replaced = tokio::time::timeout(SOON, stopped).await.unwrap().unwrap();
    assert_eq!(
        (replaced.heard, replaced.witness.as_str()),
        (9, "minion:worker-1")
    );
}

/// The directory of a minion with an identity.
pub fn minion_directory(site: &Site, own: &ClientIdentity) -> TempDir {
    let host = TempDir::new().unwrap();
    for (name, text) in [
        ("identity.crt", &own.certificate_pem),
        ("identity.key", &own.key_pem),
        ("ca.crt", &site.ca_pem),
    ] {
        std::fs::write(host.path().join(name), text).unwrap();
    }
    host
}

thread_local! {
    /// `true` if a host has not answered the promotion of this test, which has its own thread.
    static IS_SILENT: Cell<bool> = const { Cell::new(false) };
}

/// The error of a promotion that all hosts have answered. If a host needs longer than the timeout,
/// the promotion is attempted again.
pub async fn refused(promotion: Promotion<'_>) -> PromoteError {
    let note = |text: &str| IS_SILENT.set(IS_SILENT.get() || text.contains("does not answer"));
    let promotion = promotion.with_notes(note);
    let answered = async {
        loop {
            let refused = promotion.run(&PromotionRequest::default()).await;
            if !IS_SILENT.take() {
                return refused.unwrap_err();
            }
        }
    };
    let limited = tokio::time::timeout(SOON, answered).await;
    limited.expect("all hosts must answer")
}

/// The answers of all these hosts. A host that needs longer than the timeout is asked again.
async fn heard_of_all(addresses: &[String], own: &Epoch, minion: &Path) -> HeardAnswers {
    let heard = async {
        loop {
            let heard = others(addresses, own, minion).await.unwrap();
            if heard.silent.is_empty() {
                return heard;
            }
        }
    };
    let limited = tokio::time::timeout(SOON, heard).await;
    limited.expect("all hosts must answer")
}

#[tokio::test]
async fn of_two_masters_the_one_with_the_lower_epoch_stops_whichever_asks() {
    let site = start().await;
    // No standby is declared: a host that had the master asks, too.
    let own = site.enrolled("worker-2").await;
    let host = minion_directory(&site, &own);
    let addresses = ["127.0.0.1:1".to_owned(), site.endpoint.clone()];
    let there = site.app.store.epoch();
    let asked = async |epoch: u64, holder: &str| {
        let asking = site.app.cas.sign_epoch(epoch, holder).unwrap();
        // One has no master, and reports that.
        let heard = heard_of_all(&addresses, &asking, host.path()).await;
        heard.other.map(|other| (other.address, other.epoch))
    };
    let other = |epoch: u64| Some((site.endpoint.clone(), epoch));
    assert_eq!(asked(there - 1, "z").await, other(there));
    // Of two masters with the same epoch the holder decides.
    assert_eq!(asked(there, "").await, other(there));
    let app = Arc::clone(&site.app);
    let stopped = tokio::spawn(async move { app.succession.replaced().await });
    assert_eq!(asked(there, "~").await, None);
    let replaced = tokio::time::timeout(SOON, stopped).await.unwrap().unwrap();
    assert_eq!(replaced.heard, there);
}

#[tokio::test]
async fn a_master_whose_host_was_cut_off_does_not_act() {
    let site = start().await;
    let own = site.enrolled("worker-2").await;
    let host = minion_directory(&site, &own);
    site.app.gate.close(&"worker-2".parse().unwrap(), None);
    let addresses = [site.endpoint.clone()];
    let asking = site.app.cas.sign_epoch(9, "cp-1-11").unwrap();
    let heard = heard_of_all(&addresses, &asking, host.path()).await;
    assert_eq!(heard.other.unwrap().epoch, 10);
}

/// The link is back: a master without a standby asks, and of two masters with the same epoch one
/// stops.
#[tokio::test]
async fn a_master_asks_for_others_while_no_standby_follows_and_stops_when_one_answers() {
    let mut sites = [start().await, start().await];
    sites.sort_by_key(|site| site.app.store.holder().to_owned());
    let [here, there] = sites;
    let own = there.enrolled("worker-2").await;
    let host = minion_directory(&there, &own);
    let addresses = [there.endpoint.clone()];
    let asks = || look(&here.app, &addresses, host.path());
    let standbys = &here.app.standbys;
    let number = standbys.enter(MINION, Arc::default(), 1);
    standbys.set(MINION, number, FollowState::Following, "", 2);
    assert_eq!(asks().await, Ok(()), "a standby follows");
    standbys.set(MINION, number, FollowState::Gone, "cut off", 3);
    let found = async {
        loop {
            // The other one may need longer than the timeout of one query.
            if let Err(replaced) = asks().await {
                return replaced;
            }
        }
    };
    let replaced = tokio::time::timeout(SOON, found).await.unwrap();
    assert_eq!(replaced.heard, here.app.store.epoch());
    let witness = format!("the master at {}", there.endpoint);
    assert_eq!(replaced.witness, witness);
    assert_eq!(here.app.succession.replaced().await, replaced);
}

#[tokio::test]
async fn a_promotion_is_refused_while_the_master_answers() {
    let site = start().await;
    let own = site.enrolled(MINION).await;
    let host = minion_directory(&site, &own);
    let mut config = site.app.config.clone();
    config.state_dir = host.path().join("state");
    std::fs::create_dir_all(directory(&config)).unwrap();
    std::fs::write(mark(&config), format!("127.0.0.1:1\n{}\n", site.endpoint)).unwrap();
    let promotion = || Promotion::new(&config, host.path(), &SystemClock, &Unused);
    let error = refused(promotion()).await;
    assert!(
        matches!(&error, PromoteError::Alive(address) if *address == site.endpoint),
        "{error}"
    );
    // The host was removed while it was off.
    let wanted = keys::KeyOrder {
        id: MINION.to_owned(),
        action: "reject".to_owned(),
        cluster: config.cluster.clone(),
        force: true,
        ..keys::KeyOrder::default()
    };
    keys::change(&site.app, &wanted).await.unwrap();
    let error = refused(promotion()).await;
    assert!(
        matches!(&error, PromoteError::Alive(address) if *address == site.endpoint),
        "{error}"
    );
}
