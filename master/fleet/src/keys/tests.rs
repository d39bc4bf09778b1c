//! Enrolment from both sides: accepted, pending and refused hosts, and the safety of repeated
//! requests.

mod host_root;
mod operators;
mod orders;
mod strangers;

use std::net::IpAddr;
use std::sync::Arc;

use halite_core::app::App;
use halite_core::clock::ManualClock;
use halite_core::config::Config;
use halite_core::names::minion;
use halite_core::refusal::RefusalKind;
use halite_proto::identity::IdentityKind;
use halite_proto::pki::{Inspected, PrivateKey};
use halite_proto::transport::{Caller, PeerPolicy as _};
use halite_store::{KeyState, Store};
use tempfile::TempDir;

use super::*;

const NOW: i64 = 1_800_000_000_000;
const HOUR: i64 = 60 * 60 * 1000;
const DAY: i64 = 24 * HOUR;
/// Steps of the time of day: an hour and a day, both ways.
const STEPS: [i64; 4] = [HOUR, -HOUR, DAY, -DAY];

struct Site {
    app: Arc<App>,
    clock: Arc<ManualClock>,
    store: Arc<Store>,
    directory: TempDir,
}

fn config(directory: &TempDir) -> Config {
    let text = format!(
        "cluster: prod\nadvertise: [10.0.0.1]\nstate_dir: {0}/state\nconfig_dir: {0}/etc\n",
        directory.path().display()
    );
    Config::parse(&text).unwrap()
}

async fn site() -> Site {
    let directory = TempDir::new().unwrap();
    let clock = Arc::new(ManualClock::at(NOW));
    let config = config(&directory);
    halite_core::init::init(&config, NOW).unwrap();
    let store = Arc::new(
        Store::open(&config.state_dir.join("store.db"))
            .await
            .unwrap(),
    );
    let shared = Arc::clone(&store) as Arc<_>;
    let app = App::open(config, Arc::clone(&clock) as Arc<_>, shared)
        .await
        .unwrap();
    Site {
        app,
        clock,
        store,
        directory,
    }
}

struct Host {
    key: PrivateKey,
    id: String,
}

impl Host {
    fn new(id: &str) -> Self {
        Self {
            key: PrivateKey::generate().unwrap(),
            id: id.to_owned(),
        }
    }

    fn asks(&self, token: &str) -> EnrolmentRequest {
        EnrolmentRequest {
            id: self.id.clone(),
            csr_pem: self.key.request(&self.id).unwrap(),
            token: token.to_owned(),
            grains_json: "{\"fqdn\":\"host.example\"}".to_owned(),
            source: "10.0.0.7".to_owned(),
        }
    }
}

impl Site {
    async fn token(&self, wanted: TokenRequest) -> String {
        create_token(&self.app, "root", wanted).await.unwrap().0
    }

    async fn enrol(&self, host: &Host, token: &str) -> EnrolAnswer {
        enrol(&self.app, &host.asks(token)).await.unwrap()
    }

    async fn refused(&self, host: &Host, token: &str) -> halite_core::refusal::Refusal {
        enrol(&self.app, &host.asks(token)).await.unwrap_err()
    }

    async fn order(
        &self,
        id: &str,
        action: &str,
    ) -> Result<halite_api::KeyChange, halite_core::refusal::Refusal> {
        change(
            &self.app,
            &KeyOrder {
                id: id.to_owned(),
                action: action.to_owned(),
                force: action == "accept",
                ..KeyOrder::default()
            },
        )
        .await
    }

    async fn state(&self, id: &str) -> Option<KeyState> {
        self.app
            .store
            .key(&minion(id))
            .await
            .unwrap()
            .map(|key| key.state)
    }

    async fn uses(&self, token: &str) -> u32 {
        let id = TokenText::parse(token).unwrap().id;
        self.app.store.token(&id).await.unwrap().unwrap().uses_left
    }

    fn admits(&self, pem: &str) -> bool {
        let der = halite_proto::pki::certificates(pem).unwrap();
        self.app
            .gate
            .admit(&Caller::from_der(&der[0]).unwrap())
            .is_ok()
    }
}

/// Fills the store until neither audit nor revocations find space; returns the previous limit.
async fn fill_disk(site: &Site) -> i64 {
    let limit = site.store.limit_pages(None).await;
    let line = halite_store::Audit {
        time: NOW,
        who: "x".to_owned(),
        method: String::new(),
        what: "x".repeat(3000),
        outcome: String::new(),
    };
    while site.app.store.append_audit(&line).await.is_ok() {}
    for number in 0.. {
        let other = halite_store::Revocation {
            serial: format!("{number:x}"),
            owner: "x".to_owned(),
            when: NOW,
            reason: "x".repeat(100),
        };
        if site.app.store.revoke(&other).await.is_err() {
            break;
        }
    }
    limit
}

fn certificate(answer: EnrolAnswer) -> String {
    match answer {
        EnrolAnswer::Accepted {
            certificate_pem, ..
        } => certificate_pem,
        other => panic!("not accepted: {other:?}"),
    }
}

fn reason(answer: EnrolAnswer) -> String {
    match answer {
        EnrolAnswer::Rejected { reason, .. } => reason,
        other => panic!("not rejected: {other:?}"),
    }
}

#[tokio::test]
async fn a_token_brings_a_certificate_that_opens_the_gate() {
    let site = site().await;
    let host = Host::new("worker-1");
    let pem = certificate(
        site.enrol(&host, &site.token(TokenRequest::default()).await)
            .await,
    );
    let found = Inspected::from_pem(&pem).unwrap();
    let identity = found.identity().unwrap();
    assert_eq!(
        (identity.cluster(), identity.kind(), identity.id()),
        ("prod", IdentityKind::Minion, "worker-1")
    );
    assert_eq!(found.fingerprint, host.key.fingerprint());
    assert!(site.admits(&pem));
    let events = site
        .app
        .store
        .events("halite/key/worker-1", 0, 9)
        .await
        .unwrap();
    assert!(
        events[0].data_json.contains("\"action\":\"accepted\""),
        "{events:?}"
    );
    let recorded = site.app.store.certificates(9).await.unwrap();
    assert_eq!(
        (recorded[0].owner.as_str(), recorded[0].serial.as_str()),
        ("worker-1", found.serial.as_str())
    );
}

#[tokio::test]
async fn asking_again_gets_the_same_answer_and_uses_nothing_up() {
    let site = site().await;
    let host = Host::new("worker-1");
    let token = site
        .token(TokenRequest {
            uses: 2,
            ..TokenRequest::default()
        })
        .await;
    let first = certificate(site.enrol(&host, &token).await);
    for token in [token.as_str(), "", "nonsense"] {
        assert_eq!(certificate(site.enrol(&host, token).await), first);
    }
    assert_eq!(site.uses(&token).await, 1);
    // Near its end the answer is a new certificate, even long after the token is gone.
    site.clock.advance(300 * DAY);
    assert_ne!(certificate(site.enrol(&host, "").await), first);
}

#[tokio::test]
async fn a_token_is_good_as_often_as_long_and_for_whom_it_says() {
    let site = site().await;
    let bad = "the token is not valid";
    let once = site.token(TokenRequest::default()).await;
    certificate(site.enrol(&Host::new("a"), &once).await);
    let used = site.refused(&Host::new("b"), &once).await;
    assert!(
        used.message.contains(bad) && used.kind == RefusalKind::Denied,
        "{used}"
    );

    let short = site
        .token(TokenRequest {
            ttl_seconds: 3600,
            ..TokenRequest::default()
        })
        .await;
    site.clock.advance(HOUR);
    assert!(
        site.refused(&Host::new("b"), &short)
            .await
            .message
            .contains(bad)
    );

    let bound = site
        .token(TokenRequest {
            id: "c".to_owned(),
            ..TokenRequest::default()
        })
        .await;
    assert!(
        site.refused(&Host::new("b"), &bound)
            .await
            .message
            .contains(bad)
    );
    certificate(site.enrol(&Host::new("c"), &bound).await);

    let good = site.token(TokenRequest::default()).await;
    let mut forged = good.clone().into_bytes();
    let place = 17 + 5;
    forged[place] = if forged[place] == b'0' { b'1' } else { b'0' };
    let forged = String::from_utf8(forged).unwrap();
    assert!(
        site.refused(&Host::new("b"), &forged)
            .await
            .message
            .contains(bad)
    );

    let id = TokenText::parse(&good).unwrap().id;
    revoke_token(&site.app, &id).await.unwrap();
    assert_eq!(
        revoke_token(&site.app, &id).await.unwrap_err().kind,
        RefusalKind::NotFound
    );
    assert!(
        site.refused(&Host::new("b"), &good)
            .await
            .message
            .contains(bad)
    );
    assert_eq!(
        site.state("b").await,
        None,
        "a bad token leaves nothing behind"
    );
    for text in ["x", "a.b.c", &good[1..], &good.to_uppercase()] {
        let refused = site.refused(&Host::new("b"), text).await;
        assert_eq!(refused.kind, RefusalKind::Invalid, "{refused}");
        assert!(
            !refused.message.contains(text),
            "the text of a token is in an error"
        );
    }
}

#[tokio::test]
async fn the_store_holds_no_secret_of_a_token() {
    let site = site().await;
    let token = site.token(TokenRequest::default()).await;
    let secret = token.split('.').nth(1).unwrap();
    let shown = halite_api::to_text(&list_tokens(&site.app).await.unwrap());
    assert!(!shown.contains(secret));
    assert!(!format!("{:?}", TokenText::parse(&token).unwrap()).contains(secret));
    for file in std::fs::read_dir(site.directory.path().join("state")).unwrap() {
        let path = file.unwrap().path();
        if path.is_file() {
            let bytes = std::fs::read(&path).unwrap();
            let found = bytes
                .windows(secret.len())
                .any(|part| part == secret.as_bytes());
            assert!(!found, "{}", path.display());
        }
    }
}

#[tokio::test]
async fn tokens_have_limits() {
    let site = site().await;
    for wanted in [
        TokenRequest {
            ttl_seconds: 31 * 24 * 3600,
            ..TokenRequest::default()
        },
        TokenRequest {
            uses: 1001,
            ..TokenRequest::default()
        },
        TokenRequest {
            id: "Not A Name".to_owned(),
            ..TokenRequest::default()
        },
        TokenRequest {
            id: "master".to_owned(),
            ..TokenRequest::default()
        },
    ] {
        let refused = create_token(&site.app, "root", wanted.clone())
            .await
            .unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Invalid, "{wanted:?}");
    }
}

#[tokio::test]
async fn a_key_without_token_waits_for_an_operator() {
    let site = site().await;
    let host = Host::new("worker-1");
    for new in [true, false] {
        let answer = site.enrol(&host, "").await;
        assert_eq!(
            answer,
            EnrolAnswer::Pending {
                fingerprint: host.key.fingerprint(),
                new,
            }
        );
    }
    let shown = list(&site.app).await.unwrap();
    assert_eq!(shown.keys[0].state, halite_api::KeyState::Pending);
    assert_eq!(shown.keys[0].fingerprint, host.key.fingerprint());
    assert_eq!(shown.keys[0].host.as_deref(), Some("host.example"));

    let wrong = KeyOrder {
        id: "worker-1".to_owned(),
        action: "accept".to_owned(),
        fingerprint: "aa:bb".to_owned(),
        ..KeyOrder::default()
    };
    let unseen = KeyOrder {
        fingerprint: String::new(),
        ..wrong.clone()
    };
    let refused = change(&site.app, &unseen).await.unwrap_err();
    assert!(refused.message.contains("--force"), "{refused}");
    assert!(
        !refused.message.contains(&host.key.fingerprint()),
        "the operator has to read it on the host: {refused}"
    );
    assert_eq!(
        change(&site.app, &wrong).await.unwrap_err().kind,
        RefusalKind::Conflict
    );
    assert_eq!(site.state("worker-1").await, Some(KeyState::Pending));
    let right = KeyOrder {
        fingerprint: host.key.fingerprint().to_uppercase(),
        ..wrong
    };
    change(&site.app, &right).await.unwrap();
    let pem = certificate(site.enrol(&host, "").await);
    assert!(site.admits(&pem));
    change(&site.app, &right).await.unwrap();
    assert_eq!(
        certificate(site.enrol(&host, "").await),
        pem,
        "accepting again changes nothing"
    );
}

#[tokio::test]
async fn a_forged_name_does_not_come_in() {
    let site = site().await;
    let token = site
        .token(TokenRequest {
            uses: 9,
            ..TokenRequest::default()
        })
        .await;
    let honest = Host::new("worker-1");
    let pem = certificate(site.enrol(&honest, &token).await);
    let forger = Host::new("worker-1");
    let mut events = site.app.events.subscribe();
    for token in ["", token.as_str()] {
        let why = reason(site.enrol(&forger, token).await);
        assert!(why.contains("belongs to another key"), "{why}");
    }
    assert_eq!(site.uses(&token).await, 8);
    assert!(site.admits(&pem));
    let event = events.recv().await.unwrap();
    assert!(event.data_json.contains(&forger.key.fingerprint()));
    let stored = site.app.store.events("", 0, 99).await.unwrap();
    assert!(
        stored
            .iter()
            .all(|event| !event.data_json.contains("refused")),
        "a stranger fills the store: {stored:?}"
    );

    // A reinstalled host enrols again with a token for exactly its id; the old key is refused at
    // once.
    let bound = site
        .token(TokenRequest {
            id: "worker-1".to_owned(),
            ..TokenRequest::default()
        })
        .await;
    let new = certificate(site.enrol(&forger, &bound).await);
    assert!(site.admits(&new) && !site.admits(&pem));
    let why = reason(site.enrol(&honest, "").await);
    assert!(why.contains("belongs to another key"), "{why}");
}

#[tokio::test]
async fn a_squatter_on_a_name_does_not_stop_a_token() {
    let site = site().await;
    let squatter = Host::new("worker-1");
    let honest = Host::new("worker-1");
    site.enrol(&squatter, "").await;
    let why = reason(site.enrol(&honest, "").await);
    assert!(why.contains("is pending"), "{why}");
    certificate(
        site.enrol(&honest, &site.token(TokenRequest::default()).await)
            .await,
    );
    reason(site.enrol(&squatter, "").await);
}
