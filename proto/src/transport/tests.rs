//! Callers that may connect, and callers that may not.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use halite_errors::chain;
use rcgen::ExtendedKeyUsagePurpose;
use tokio::net::TcpListener;
use tonic::Code;

use super::test_support::{LATE, TestCa, connect_unverified, start, start_as, start_issued};
use super::{ClientIdentity, ConnectError, HandshakeError, connect, connect_any, connect_pinned};
use crate::identity::IdentityKind;
use crate::v1::enrolment_client::EnrolmentClient;
use crate::{pki, v1};

#[tokio::test]
async fn a_caller_without_certificate_reaches_first_contact() {
    let running = start().await;
    assert_eq!(running.call(None).await.unwrap(), "127.0.0.1");
}

#[tokio::test]
async fn an_identity_is_judged_by_the_table_and_the_policy_is_notified() {
    let running = start().await;
    let minion = running.ca.identity("halite://prod/minion/worker-1");
    let refused = running.call(Some(&minion)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let events = running.policy.events.lock().unwrap().clone();
    assert_eq!(events, ["minion:worker-1 /halite.v1.Enrolment/Enrol"]);
}

#[tokio::test]
async fn bad_certificates_end_the_handshake_and_the_caller_learns_why() {
    let running = start().await;
    let past = rcgen::date_time_ymd(2020, 1, 1);
    let stranger = TestCa::new();
    let ca = &running.ca;
    running.policy.ban("gone");
    let good = "halite://prod/operator/root";
    let cases = [
        (
            "expired",
            ca.issue(&[good], |p| p.not_after = past),
            "it has expired",
        ),
        (
            "unknown CA",
            stranger.identity(good),
            "not signed by this cluster's CA",
        ),
        (
            "not admitted",
            ca.identity("halite://prod/minion/gone"),
            "does not accept this identity",
        ),
        (
            "moved",
            ca.identity(&format!("halite://prod/minion/{LATE}")),
            "the master has moved to another host",
        ),
        (
            "two identities",
            ca.issue(&[good, "halite://prod/operator/eve"], |_| {}),
            "exactly one is needed",
        ),
        (
            "server certificate only",
            ca.issue(&[good], |p| {
                p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]
            }),
            "refused our certificate",
        ),
    ];
    for (what, identity, wanted) in cases {
        let error = running.call(Some(&identity)).await.unwrap_err();
        assert!(error.message().contains(wanted), "{what}: {error}");
        assert_ne!(
            error.code(),
            Code::PermissionDenied,
            "{what} reached the table"
        );
    }
    // The client notices first that the master belongs to another cluster.
    let other = ca.identity("halite://other/operator/root");
    let error = running.call(Some(&other)).await.unwrap_err();
    assert!(
        error.message().contains("master of cluster \"prod\""),
        "{error}"
    );
    // The server refuses a caller that does not verify it.
    let error = connect_unverified(&running.endpoint, &other).await;
    assert!(error.contains("AccessDenied"), "{error}");
    let two = ca.issue(&[good, "halite://prod/operator/eve"], |_| {});
    let error = connect_unverified(&running.endpoint, &two).await;
    assert!(error.contains("CertificateUnknown"), "{error}");
    let events = running.policy.events.lock().unwrap().clone();
    assert!(
        events.iter().all(|line| line.starts_with("handshake ")),
        "{events:?}"
    );
    assert!(events.len() >= 4, "{events:?}");
}

#[tokio::test]
async fn only_a_master_of_our_ca_and_cluster_is_trusted() {
    for (uri, wanted) in [
        (
            "halite://prod/minion/worker-1",
            "stands by and has no master",
        ),
        (
            "halite://prod/operator/root",
            "of kind operator, not a master",
        ),
        ("https://prod.example", "exactly one is needed"),
    ] {
        let running = start_as(uri).await;
        let error = running.call(None).await.unwrap_err();
        assert!(error.message().contains(wanted), "{uri}: {error}");
        let error = connect_pinned(&running.endpoint, &running.ca.hash())
            .await
            .unwrap_err();
        assert!(chain(&error).contains(wanted), "{uri}: {error}");
    }
    let running = start().await;
    let error = connect(&running.endpoint, &TestCa::new().pem, None)
        .await
        .unwrap_err();
    assert!(
        chain(&error).contains("not signed by the CA that we trust"),
        "{error}"
    );
}

#[tokio::test]
async fn a_new_minion_knows_the_master_by_the_hash_of_its_ca() {
    let running = start().await;
    let pinned = connect_pinned(&running.endpoint, &running.ca.hash().to_uppercase())
        .await
        .unwrap();
    assert_eq!(pinned.ca_pem.trim(), running.ca.pem.trim());
    assert_eq!(
        pinned.channel.server().to_string(),
        "halite://prod/master/m1"
    );
    let reply = EnrolmentClient::new(pinned.channel)
        .enrol(v1::EnrolRequest::default())
        .await
        .unwrap();
    assert_eq!(reply.into_inner().reason, "127.0.0.1");

    let error = connect_pinned(&running.endpoint, &TestCa::new().hash())
        .await
        .unwrap_err();
    assert!(chain(&error).contains("no CA with the hash"), "{error}");
}

#[tokio::test]
async fn the_hash_of_the_leaf_is_not_the_hash_of_a_ca() {
    let running = start().await;
    let own = running.ca.identity("halite://prod/master/m2");
    running
        .server
        .replace_certificate(&own.certificate_pem, &own.key_pem)
        .unwrap();
    let leaf = pki::sha256_hex(&pki::certificates(&own.certificate_pem).unwrap()[0]);
    let error = connect_pinned(&running.endpoint, &leaf).await.unwrap_err();
    assert!(chain(&error).contains("is not a CA"), "{error}");
}

#[tokio::test]
async fn a_new_certificate_is_shown_without_a_restart() {
    let running = start().await;
    let own = running.ca.identity("halite://prod/master/m2");
    running
        .server
        .replace_certificate(&own.certificate_pem, &own.key_pem)
        .unwrap();
    let channel = connect(&running.endpoint, &running.ca.pem, None)
        .await
        .unwrap();
    assert_eq!(channel.server().id(), "m2");
    let other = running.ca.identity("halite://prod/master/m3");
    assert!(
        running
            .server
            .replace_certificate(&own.certificate_pem, &other.key_pem)
            .is_err()
    );
}

#[tokio::test]
async fn a_caller_that_is_no_longer_admitted_is_disconnected() {
    let running = start().await;
    let worker = running.ca.identity("halite://prod/minion/worker-1");
    let other = running.ca.identity("halite://prod/minion/worker-2");
    let cut = connect(&running.endpoint, &running.ca.pem, Some(&worker))
        .await
        .unwrap();
    let kept = connect(&running.endpoint, &running.ca.pem, Some(&other))
        .await
        .unwrap();
    // A first call proves that the server has accepted both.
    for channel in [&cut, &kept] {
        let refused = EnrolmentClient::new(channel.clone())
            .enrol(v1::EnrolRequest::default())
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
    running.policy.ban("worker-1");
    tokio::time::timeout(Duration::from_secs(60), cut.closed())
        .await
        .expect("the connection must end");
    let refused = EnrolmentClient::new(kept)
        .enrol(v1::EnrolRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn an_open_call_ends_when_the_master_stops() {
    let mut running = start().await;
    let channel = connect(&running.endpoint, &running.ca.pem, None)
        .await
        .unwrap();
    let request = v1::EnrolRequest {
        id: "wait".to_owned(),
        ..Default::default()
    };
    let waiting = Arc::clone(&running.waiting);
    let mut client = EnrolmentClient::new(channel.clone());
    let call = tokio::spawn(async move { client.enrol(request).await });
    waiting.notified().await;
    drop(running.stop.take());
    tokio::time::timeout(Duration::from_secs(60), running.task)
        .await
        .expect("the master must stop")
        .unwrap();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    let error = EnrolmentClient::new(channel)
        .enrol(v1::EnrolRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
}

#[tokio::test]
async fn where_nothing_answers_or_no_tls_the_error_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let ca = TestCa::new();
    let plain = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
    });
    let error = connect(&endpoint, &ca.pem, None).await.unwrap_err();
    assert!(matches!(error, ConnectError::Untrusted { .. }), "{error}");
    plain.await.unwrap();
    let error = connect(&endpoint, &ca.pem, None).await.unwrap_err();
    assert!(chain(&error).contains("cannot reach the master"), "{error}");
    for bad in ["", "nowhere", "127.0.0.1", "https://x:1"] {
        assert!(connect(bad, &ca.pem, None).await.is_err(), "{bad:?}");
    }
}

/// In the CA's form of a minion's identity, which a standby has too: for clients only.
fn of_a_client(params: &mut rcgen::CertificateParams) {
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
}

#[tokio::test]
async fn a_standby_is_found_only_by_the_clients_that_ask_for_one() {
    let uri = "halite://prod/minion/cp-2";
    let running = start_issued(|ca| ca.issue(&[uri], of_a_client)).await;
    let own = running.ca.identity("halite://prod/minion/cp-1");
    let ca = running.ca.pem.as_str();
    let found = connect_any(&running.endpoint, ca, &own).await.unwrap();
    let server = found.server();
    assert_eq!((server.kind(), server.id()), (IdentityKind::Minion, "cp-2"));
    let operator = running.ca.identity("halite://prod/operator/root");
    for refused in [
        connect(&running.endpoint, ca, Some(&own)).await.err(),
        connect(&running.endpoint, ca, Some(&operator)).await.err(),
        connect(&running.endpoint, ca, None).await.err(),
        connect_pinned(&running.endpoint, &running.ca.hash())
            .await
            .err(),
    ] {
        let error = refused.unwrap();
        assert!(error.is_of_a_standby(), "{error:?}");
        assert!(
            chain(&error).contains("the host cp-2 stands by and has no master"),
            "{error:?}"
        );
    }
    // Both find a master.
    let master = start().await;
    let own = master.ca.identity("halite://prod/minion/cp-1");
    let found = connect_any(&master.endpoint, &master.ca.pem, &own).await;
    assert_eq!(found.unwrap().server().kind(), IdentityKind::Master);
}

#[tokio::test]
async fn a_standby_of_another_ca_or_cluster_or_an_expired_one_is_none() {
    let past = rcgen::date_time_ymd(2020, 1, 1);
    let uri = "halite://prod/minion/cp-2";
    let expired = start_issued(|ca| ca.issue(&[uri], |p| p.not_after = past)).await;
    let other = start_as("halite://test/minion/cp-2").await;
    let operator = start_as("halite://prod/operator/root").await;
    for (running, said) in [
        (&expired, "has expired"),
        (&other, "of cluster"),
        (&operator, "is of kind operator"),
    ] {
        let own = running.ca.identity("halite://prod/minion/cp-1");
        let found = connect_any(&running.endpoint, &running.ca.pem, &own).await;
        let error = found.unwrap_err();
        assert!(chain(&error).contains(said), "{said}: {error:?}");
    }
    let stranger = TestCa::new();
    let running = start_as(uri).await;
    let own = stranger.identity("halite://prod/minion/cp-1");
    let found = connect_any(&running.endpoint, &stranger.pem, &own).await;
    let error = found.unwrap_err();
    assert!(!error.is_of_a_standby(), "{error:?}");
    let plain = connect(&running.endpoint, &stranger.pem, None).await;
    assert!(!plain.unwrap_err().is_of_a_standby());
}

#[test]
fn debug_output_of_an_identity_holds_no_key() {
    let identity = ClientIdentity {
        certificate_pem: "CERT".to_owned(),
        key_pem: "SECRET".to_owned(),
    };
    assert!(!format!("{identity:?}").contains("SECRET"));
}

#[tokio::test]
async fn an_error_of_a_connection_keeps_its_causes() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    drop(listener);
    let ca = TestCa::new();
    let error = connect(&endpoint, &ca.pem, None).await.unwrap_err();
    let source = match &error {
        ConnectError::Unreachable { source, .. } => source,
        other => panic!("{other:?}"),
    };
    assert_eq!(source.kind(), ErrorKind::ConnectionRefused);
    assert_eq!(
        chain(&error),
        format!("cannot reach the master at {endpoint}: {source}")
    );

    let running = start().await;
    let other = connect(&running.endpoint, &ca.pem, None).await;
    let error = other.unwrap_err();
    assert!(
        matches!(
            error,
            ConnectError::Untrusted {
                source: HandshakeError::UnknownIssuer,
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(
        chain(&error),
        format!(
            "cannot make a trusted connection to {}: the server's certificate is not signed by the CA that we trust",
            running.endpoint
        )
    );
}
