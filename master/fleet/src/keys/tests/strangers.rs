//! Hosts that no operator knows: the data that they may leave in the store, and the answers that
//! they get.

use std::time::Duration;

use halite_core::names::minion;
use halite_store::{Audit, AuditFilter};

use super::*;

/// Longer than any work here takes: reaching it is a failure.
const SOON: Duration = Duration::from_secs(60);

fn from(host: &Host, id: &str, source: &str) -> EnrolmentRequest {
    EnrolmentRequest {
        id: id.to_owned(),
        source: source.to_owned(),
        ..host.asks("")
    }
}

#[tokio::test]
async fn the_waiting_room_has_an_end_in_all_and_for_each_address() {
    let site = site().await;
    let host = Host::new("x");
    for number in 0..16 {
        let newcomer = from(&host, &format!("a{number}"), "10.0.0.1");
        enrol(&site.app, &newcomer).await.unwrap();
    }
    let refused = enrol(&site.app, &from(&host, "late", "10.0.0.1")).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind, RefusalKind::Unavailable);
    assert!(refused.message.contains("from this address"), "{refused}");
    for number in 0..240 {
        let source = format!("10.0.1.{}", number / 16);
        let newcomer = from(&host, &format!("b{number}"), &source);
        enrol(&site.app, &newcomer).await.unwrap();
    }
    let refused = enrol(&site.app, &from(&host, "late", "10.0.2.1")).await;
    assert_eq!(refused.unwrap_err().kind, RefusalKind::Unavailable);
    certificate(
        site.enrol(
            &Host::new("late"),
            &site.token(TokenRequest::default()).await,
        )
        .await,
    );
}

#[tokio::test]
async fn a_key_that_no_operator_accepts_goes_away_after_a_day() {
    let site = site().await;
    let host = Host::new("worker-1");
    let accepted = Host::new("worker-2");
    let token = site.token(TokenRequest::default()).await;
    certificate(site.enrol(&accepted, &token).await);
    site.enrol(&host, "").await;
    site.clock.advance(DAY - 1);
    list(&site.app).await.unwrap();
    assert_eq!(site.state("worker-1").await, Some(KeyState::Pending));
    site.clock.advance(1);
    // Another host takes the name; the operator sees its key, and only that one.
    let other = Host::new("worker-1");
    reason(site.enrol(&other, "").await);
    list(&site.app).await.unwrap();
    assert_eq!(site.state("worker-1").await, None);
    let answer = site.enrol(&other, "").await;
    assert!(matches!(answer, EnrolAnswer::Pending { new: true, .. }));
    assert_eq!(site.state("worker-2").await, Some(KeyState::Accepted));
}

#[tokio::test]
async fn a_waiting_key_is_small_whatever_the_host_says() {
    let site = site().await;
    let host = Host::new("worker-1");
    let long = "x".repeat(100_000);
    let newcomer = EnrolmentRequest {
        grains_json: serde_json::json!({ "fqdn": long, "osfinger": "Debian-12", "disks": long })
            .to_string(),
        ..host.asks("")
    };
    enrol(&site.app, &newcomer).await.unwrap();
    let key = site
        .app
        .store
        .key(&minion("worker-1"))
        .await
        .unwrap()
        .unwrap();
    assert!(key.grains_json.len() + key.csr_pem.len() < 4096);
    let shown = list(&site.app).await.unwrap();
    assert_eq!(shown.keys[0].os.as_deref(), Some("Debian-12"));
    assert_eq!(shown.keys[0].source.as_deref(), Some("10.0.0.7"));
}

#[tokio::test]
async fn refused_strangers_fill_neither_audit_nor_events() {
    let site = site().await;
    let line = |number: i64| Audit {
        time: NOW + number,
        who: "10.0.0.7".to_owned(),
        method: "Enrolment/Enrol".to_owned(),
        what: "x without token".to_owned(),
        outcome: "refused: no".to_owned(),
    };
    // 10,000 refusals from one address, and 1,000 from many, within one minute.
    for number in 0..10_000 {
        site.app.gate.note("10.0.0.7", line(number));
    }
    assert!(site.app.gate.is_tired_of("10.0.0.7"));
    assert!(!site.app.gate.is_tired_of("10.0.0.8"));
    for number in 0..1000 {
        let source = format!("10.1.0.{}", number % 200);
        site.app.gate.note(&source, line(number));
    }
    // The store still answers.
    let honest = Host::new("honest");
    let enrolled = tokio::time::timeout(SOON, site.enrol(&honest, ""));
    enrolled.await.unwrap();
    // The gate's task writes them in their turn.
    let all = AuditFilter::newest(20_000);
    let written = async { while site.app.store.audit(&all).await.unwrap().len() < 120 {} };
    tokio::time::timeout(SOON, written).await.unwrap();
    let lines = site.app.store.audit(&all).await.unwrap();
    assert_eq!(lines.len(), 120, "120 lines in a minute are the budget");
}

#[tokio::test]
async fn an_answer_opens_the_gate_that_a_cut_call_left_shut() {
    let site = site().await;
    let host = Host::new("worker-1");
    let token = site.token(TokenRequest::default()).await;
    let pem = certificate(site.enrol(&host, &token).await);
    // The process stored the key, and ended before it opened the gate.
    site.app.gate.close(&minion("worker-1"), None);
    assert!(!site.admits(&pem));
    assert_eq!(certificate(site.enrol(&host, "").await), pem);
    assert!(site.admits(&pem));
    site.app.gate.close(&minion("worker-1"), None);
    site.order("worker-1", "accept").await.unwrap();
    assert!(site.admits(&pem));
}
