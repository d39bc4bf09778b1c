//! Enrolment from both sides: who comes in, who waits, who does not, and that asking again is safe.

use std::net::IpAddr;
use std::sync::Arc;

use halite_proto::identity::Kind;
use halite_proto::pki::{Inspected, PrivateKey};
use halite_proto::transport::{Caller, PeerPolicy as _};
use tempfile::TempDir;

use super::*;
use crate::app::App;
use crate::clock::ManualClock;
use crate::config::Config;
use crate::refusal::RefusalKind;
use crate::store::{KeyState, SqliteStore};

const NOW: i64 = 1_800_000_000_000;
const HOUR: i64 = 60 * 60 * 1000;
const DAY: i64 = 24 * HOUR;

struct Site {
    app: Arc<App>,
    clock: Arc<ManualClock>,
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
    crate::init::init(&config, NOW).unwrap();
    let store = Arc::new(
        SqliteStore::open(&config.state_dir.join("store.db"))
            .await
            .unwrap(),
    );
    let app = App::open(config, Arc::clone(&clock) as Arc<_>, store)
        .await
        .unwrap();
    Site {
        app,
        clock,
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
        }
    }
}

impl Site {
    async fn token(&self, wanted: Wanted) -> String {
        create_token(&self.app, "root", wanted).await.unwrap().0
    }

    async fn enrol(&self, host: &Host, token: &str) -> Answer {
        enrol(&self.app, &host.asks(token)).await.unwrap()
    }

    async fn refused(&self, host: &Host, token: &str) -> crate::refusal::Refusal {
        enrol(&self.app, &host.asks(token)).await.unwrap_err()
    }

    async fn order(
        &self,
        id: &str,
        action: &str,
    ) -> Result<serde_json::Value, crate::refusal::Refusal> {
        change(
            &self.app,
            &Change {
                id: id.to_owned(),
                action: action.to_owned(),
                ..Change::default()
            },
        )
        .await
    }

    async fn state(&self, id: &str) -> Option<KeyState> {
        self.app.store.key(id).await.unwrap().map(|key| key.state)
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

fn certificate(answer: Answer) -> String {
    match answer {
        Answer::Accepted {
            certificate_pem, ..
        } => certificate_pem,
        other => panic!("not accepted: {other:?}"),
    }
}

fn reason(answer: Answer) -> String {
    match answer {
        Answer::Rejected { reason, .. } => reason,
        other => panic!("not rejected: {other:?}"),
    }
}

#[tokio::test]
async fn a_token_brings_a_certificate_that_opens_the_gate() {
    let site = site().await;
    let host = Host::new("worker-1");
    let pem = certificate(
        site.enrol(&host, &site.token(Wanted::default()).await)
            .await,
    );
    let found = Inspected::from_pem(&pem).unwrap();
    let identity = found.identity().unwrap();
    assert_eq!(
        (identity.cluster(), identity.kind(), identity.id()),
        ("prod", Kind::Minion, "worker-1")
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
        events[0].data_json.contains("\"act\":\"accepted\""),
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
        .token(Wanted {
            uses: 2,
            ..Wanted::default()
        })
        .await;
    let first = certificate(site.enrol(&host, &token).await);
    for token in [token.as_str(), "", "nonsense"] {
        assert_eq!(certificate(site.enrol(&host, token).await), first);
    }
    assert_eq!(site.uses(&token).await, 1);
    // Near its end the answer is a new certificate, also long after the token is gone.
    site.clock.advance(300 * DAY);
    assert_ne!(certificate(site.enrol(&host, "").await), first);
}

#[tokio::test]
async fn a_token_is_good_as_often_as_long_and_for_whom_it_says() {
    let site = site().await;
    let bad = "the token is not valid";
    let once = site.token(Wanted::default()).await;
    certificate(site.enrol(&Host::new("a"), &once).await);
    let used = site.refused(&Host::new("b"), &once).await;
    assert!(
        used.message.contains(bad) && used.kind == RefusalKind::Denied,
        "{used}"
    );

    let short = site
        .token(Wanted {
            ttl_seconds: 3600,
            ..Wanted::default()
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
        .token(Wanted {
            id: "c".to_owned(),
            ..Wanted::default()
        })
        .await;
    assert!(
        site.refused(&Host::new("b"), &bound)
            .await
            .message
            .contains(bad)
    );
    certificate(site.enrol(&Host::new("c"), &bound).await);

    let good = site.token(Wanted::default()).await;
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
    let token = site.token(Wanted::default()).await;
    let secret = token.split('.').nth(1).unwrap();
    let shown = list_tokens(&site.app).await.unwrap().to_string();
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
        Wanted {
            ttl_seconds: 31 * 24 * 3600,
            ..Wanted::default()
        },
        Wanted {
            uses: 1001,
            ..Wanted::default()
        },
        Wanted {
            id: "Not A Name".to_owned(),
            ..Wanted::default()
        },
        Wanted {
            id: "master".to_owned(),
            ..Wanted::default()
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
    for _ in 0..2 {
        let answer = site.enrol(&host, "").await;
        assert_eq!(
            answer,
            Answer::Pending {
                fingerprint: host.key.fingerprint()
            }
        );
    }
    let shown = list(&site.app).await.unwrap();
    assert_eq!(shown["keys"][0]["state"], "pending");
    assert_eq!(shown["keys"][0]["fingerprint"], host.key.fingerprint());
    assert_eq!(shown["keys"][0]["host"], "host.example");

    let wrong = Change {
        id: "worker-1".to_owned(),
        action: "accept".to_owned(),
        fingerprint: "aa:bb".to_owned(),
        ..Change::default()
    };
    assert_eq!(
        change(&site.app, &wrong).await.unwrap_err().kind,
        RefusalKind::Conflict
    );
    assert_eq!(site.state("worker-1").await, Some(KeyState::Pending));
    let right = Change {
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
        .token(Wanted {
            uses: 9,
            ..Wanted::default()
        })
        .await;
    let honest = Host::new("worker-1");
    let pem = certificate(site.enrol(&honest, &token).await);
    let forger = Host::new("worker-1");
    for token in ["", token.as_str()] {
        let why = reason(site.enrol(&forger, token).await);
        assert!(why.contains("belongs to another key"), "{why}");
    }
    assert_eq!(site.uses(&token).await, 8);
    assert!(site.admits(&pem));
    let events = site
        .app
        .store
        .events("halite/key/worker-1", 0, 9)
        .await
        .unwrap();
    assert!(
        events
            .last()
            .unwrap()
            .data_json
            .contains(&forger.key.fingerprint())
    );

    // A host that was installed again comes back with a token for exactly its id; the old key is out at
    // once.
    let bound = site
        .token(Wanted {
            id: "worker-1".to_owned(),
            ..Wanted::default()
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
    assert!(why.contains("another key waits"), "{why}");
    certificate(
        site.enrol(&honest, &site.token(Wanted::default()).await)
            .await,
    );
    reason(site.enrol(&squatter, "").await);
}

#[tokio::test]
async fn a_rejected_or_deleted_key_is_out_at_once() {
    let site = site().await;
    let host = Host::new("worker-1");
    let token = site
        .token(Wanted {
            uses: 9,
            ..Wanted::default()
        })
        .await;
    let pem = certificate(site.enrol(&host, &token).await);
    let mut changes = site.app.gate.changes();
    changes.mark_unchanged();
    site.order("worker-1", "reject").await.unwrap();
    assert!(
        changes.has_changed().unwrap(),
        "open connections are looked at again"
    );
    assert!(!site.admits(&pem));
    let why = reason(site.enrol(&host, &token).await);
    assert!(why.contains("an operator rejected this key"), "{why}");

    site.order("worker-1", "accept").await.unwrap();
    let second = certificate(site.enrol(&host, "").await);
    assert!(
        site.admits(&second) && !site.admits(&pem),
        "what was revoked stays so"
    );
    site.order("worker-1", "delete").await.unwrap();
    assert!(!site.admits(&second));
    assert_eq!(site.state("worker-1").await, None);
    // A restart forgets nothing of it.
    let again = App::open(
        site.app.config.clone(),
        Arc::clone(&site.clock) as Arc<_>,
        Arc::clone(&site.app.store),
    );
    let again = Site {
        app: again.await.unwrap(),
        clock: Arc::clone(&site.clock),
        directory: TempDir::new().unwrap(),
    };
    let third = certificate(again.enrol(&host, &token).await);
    assert!(again.admits(&third) && !again.admits(&pem) && !again.admits(&second));
}

#[tokio::test]
async fn a_connected_minion_is_cut_off_only_by_name_of_the_cluster() {
    let site = site().await;
    let host = Host::new("worker-1");
    certificate(
        site.enrol(&host, &site.token(Wanted::default()).await)
            .await,
    );
    let (_connection, mut messages) = site.app.connections.join("worker-1");
    for action in ["delete", "reject"] {
        for (force, cluster) in [(false, ""), (true, ""), (false, "prod"), (true, "prd")] {
            let order = Change {
                id: "worker-1".to_owned(),
                action: action.to_owned(),
                cluster: cluster.to_owned(),
                force,
                ..Change::default()
            };
            let refused = change(&site.app, &order).await.unwrap_err();
            assert_eq!(refused.kind, RefusalKind::Conflict, "{order:?}");
            assert!(
                !refused.message.contains("prod"),
                "the name is for the operator to know: {refused}"
            );
        }
    }
    assert_eq!(site.state("worker-1").await, Some(KeyState::Accepted));
    let order = Change {
        id: "worker-1".to_owned(),
        action: "delete".to_owned(),
        cluster: "prod".to_owned(),
        force: true,
        ..Change::default()
    };
    change(&site.app, &order).await.unwrap();
    assert!(messages.recv().await.is_none(), "the stream ends");
    assert!(!site.app.connections.is_connected("worker-1"));
}

#[tokio::test]
async fn orders_that_make_no_sense_are_refused() {
    let site = site().await;
    assert_eq!(
        site.order("unknown", "accept").await.unwrap_err().kind,
        RefusalKind::NotFound
    );
    site.enrol(&Host::new("a"), "").await;
    assert_eq!(
        site.order("a", "bless").await.unwrap_err().kind,
        RefusalKind::Invalid
    );
}

#[tokio::test]
async fn bad_requests_leave_nothing_behind() {
    let site = site().await;
    let host = Host::new("a");
    let good = host.asks("");
    for bad in [
        EnrolmentRequest {
            id: "A".to_owned(),
            ..good.clone()
        },
        EnrolmentRequest {
            id: "master".to_owned(),
            ..good.clone()
        },
        EnrolmentRequest {
            id: "../etc".to_owned(),
            ..good.clone()
        },
        EnrolmentRequest {
            id: String::new(),
            ..good.clone()
        },
        EnrolmentRequest {
            csr_pem: "x".to_owned(),
            ..good.clone()
        },
        EnrolmentRequest {
            grains_json: "{".to_owned(),
            ..good.clone()
        },
        EnrolmentRequest {
            grains_json: format!("\"{}\"", "x".repeat(300_000)),
            ..good.clone()
        },
    ] {
        assert_eq!(
            enrol(&site.app, &bad).await.unwrap_err().kind,
            RefusalKind::Invalid,
            "{bad:?}"
        );
    }
    assert!(site.app.store.keys().await.unwrap().is_empty());
}

#[tokio::test]
async fn the_waiting_room_has_an_end() {
    let site = site().await;
    let host = Host::new("x");
    for number in 0..256 {
        let newcomer = EnrolmentRequest {
            id: format!("n{number}"),
            ..host.asks("")
        };
        enrol(&site.app, &newcomer).await.unwrap();
    }
    let refused = site.refused(&Host::new("late"), "").await;
    assert_eq!(refused.kind, RefusalKind::Unavailable);
    certificate(
        site.enrol(&Host::new("late"), &site.token(Wanted::default()).await)
            .await,
    );
}

#[tokio::test]
async fn two_hosts_with_one_token_at_once_are_one_too_many() {
    let site = site().await;
    let token = site.token(Wanted::default()).await;
    let hosts = [Host::new("a"), Host::new("b")];
    let requests = hosts.each_ref().map(|host| host.asks(&token));
    let (a, b) = tokio::join!(
        enrol(&site.app, &requests[0]),
        enrol(&site.app, &requests[1])
    );
    assert_eq!(
        usize::from(a.is_ok()) + usize::from(b.is_ok()),
        1,
        "{a:?} {b:?}"
    );
    assert_eq!(site.app.store.keys().await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_token_for_roles_lets_in_only_those_declared_with_them() {
    let site = site().await;
    let nodes = site.directory.path().join("etc/nodes");
    std::fs::create_dir_all(&nodes).unwrap();
    let declared =
        "apiVersion: halite/v1\nkind: Node\nmetadata: {name: n}\nroles: [worker, etcd]\n";
    std::fs::write(nodes.join("n.yaml"), declared).unwrap();
    let roles = |names: &[&str]| Wanted {
        roles: names.iter().map(|name| (*name).to_owned()).collect(),
        ..Wanted::default()
    };
    let host = Host::new("n");
    let refused = site
        .refused(&host, &site.token(roles(&["worker"])).await)
        .await;
    assert!(refused.message.contains("declared with etcd"), "{refused}");
    let token = site.token(roles(&["worker", "etcd", "infra"])).await;
    certificate(site.enrol(&host, &token).await);
    assert_eq!(
        site.app.store.key("n").await.unwrap().unwrap().roles,
        ["worker", "etcd", "infra"]
    );
}

#[tokio::test]
async fn renewal_keeps_the_key() {
    let site = site().await;
    let host = Host::new("a");
    let first = certificate(
        site.enrol(&host, &site.token(Wanted::default()).await)
            .await,
    );
    site.clock.advance(10 * DAY);
    let second = renew(&site.app, "a", &host.key.request("a").unwrap())
        .await
        .unwrap();
    assert_ne!(first, second);
    assert!(site.admits(&second) && site.admits(&first));
    let other = PrivateKey::generate().unwrap().request("a").unwrap();
    assert_eq!(
        renew(&site.app, "a", &other).await.unwrap_err().kind,
        RefusalKind::Denied
    );
    assert_eq!(
        renew(&site.app, "b", &other).await.unwrap_err().kind,
        RefusalKind::Denied
    );
}

#[test]
fn init_may_be_repeated_and_follows_the_configuration() {
    let directory = TempDir::new().unwrap();
    let mut config = config(&directory);
    let made = crate::init::init(&config, NOW).unwrap();
    let identity = config.state_dir.join("identity.crt");
    let operator = made.operator.join("operator.crt");
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
    let before = (read(&identity), read(&operator));
    assert_eq!(crate::init::init(&config, NOW).unwrap(), made);
    assert_eq!((read(&identity), read(&operator)), before);
    let found = Inspected::from_pem(&before.1).unwrap();
    assert_eq!(
        found.identity().unwrap().to_string(),
        "halite://prod/operator/root"
    );

    let address: IpAddr = "10.0.0.9".parse().unwrap();
    config.advertise.push(address);
    crate::init::init(&config, NOW).unwrap();
    assert!(
        Inspected::from_pem(&read(&identity))
            .unwrap()
            .addresses
            .contains(&address)
    );
    assert_eq!(read(&operator), before.1);
    crate::init::init(&config, NOW + 300 * DAY).unwrap();
    assert_ne!(
        read(&operator),
        before.1,
        "renewed when two thirds of its life are over"
    );
}
