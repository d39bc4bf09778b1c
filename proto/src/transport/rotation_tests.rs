//! The CA of identities is replaced while the server runs.

use std::time::Duration;

use halite_errors::chain;
use tonic::{Code, Status};

use super::test_support::{Running, TestCa, start_of};
use super::{Channel, ClientIdentity, connect, connect_pinned};
use crate::v1;
use crate::v1::enrolment_client::EnrolmentClient;

/// The name of both CAs.
const NAME: &str = "halite-ca prod";
const MASTER: &str = "halite://prod/master/m1";
const MINION: &str = "halite://prod/minion/worker-1";

async fn call(channel: Channel) -> Status {
    let mut client = EnrolmentClient::new(channel);
    client.enrol(v1::EnrolRequest::default()).await.unwrap_err()
}

/// Calls the server as a minion; a call that reaches its table is refused by it.
async fn reaches(running: &Running, ca_pem: &str, identity: &ClientIdentity) -> Channel {
    let channel = connect(&running.endpoint, ca_pem, Some(identity)).await;
    let channel = channel.unwrap();
    let refused = call(channel.clone()).await;
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    channel
}

#[tokio::test]
async fn clients_of_either_ca_are_served_until_the_old_one_leaves() {
    let (old, new) = (TestCa::named(NAME), TestCa::named(NAME));
    let [of_old, of_new] = [&old, &new].map(|ca| ca.identity(MINION));
    let (old_pem, old_hash) = (old.pem.clone(), old.hash());
    let running = start_of(old, |ca| ca.identity(MASTER), |server| server).await;
    let old = &running.ca;
    let refused = call(
        connect(&running.endpoint, &old_pem, Some(&of_new))
            .await
            .unwrap(),
    )
    .await;
    assert!(
        refused
            .message()
            .contains("not signed by this cluster's CA"),
        "{refused}"
    );

    // Both are trusted, and the new one signs.
    let both = format!("{}{old_pem}", new.pem);
    let mut own = new.identity(MASTER);
    own.certificate_pem += &new.cross_signed(NAME, old);
    let server = &running.server;
    server
        .replace_identity(&own.certificate_pem, &own.key_pem, &both)
        .unwrap();
    let cut = reaches(&running, &old_pem, &of_old).await;
    let kept = reaches(&running, &new.pem, &of_new).await;
    for channel in [&cut, &kept] {
        assert_eq!(
            channel.authorities().replace("\r\n", "\n"),
            both.replace("\r\n", "\n")
        );
    }
    for hash in [&old_hash, &new.hash()] {
        connect_pinned(&running.endpoint, hash).await.unwrap();
    }

    // The old one leaves.
    let own = new.identity(MASTER);
    server
        .replace_identity(&own.certificate_pem, &own.key_pem, &new.pem)
        .unwrap();
    let refused = call(
        connect(&running.endpoint, &new.pem, Some(&of_old))
            .await
            .unwrap(),
    )
    .await;
    assert!(
        refused
            .message()
            .contains("not signed by this cluster's CA"),
        "{refused}"
    );
    let error = connect(&running.endpoint, &old_pem, Some(&of_old)).await;
    let error = chain(&error.unwrap_err());
    assert!(
        error.contains("not signed by the CA that we trust"),
        "{error}"
    );
    assert!(connect_pinned(&running.endpoint, &old_hash).await.is_err());
    tokio::time::timeout(Duration::from_secs(60), cut.closed())
        .await
        .expect("the connection of the old CA must end");
    let refused = call(kept).await;
    assert_eq!(refused.code(), Code::PermissionDenied);
}
