//! The CA of identities is rotated while the master serves.

use halite_core::ca::HALITE;
use halite_core::clock::{Clock as _, SystemClock};
use halite_fleet::keys;
use halite_pillar::ca_rotation::RotationStage;
use halite_pillar::ca_rotation::RotationStage::{Only, Sign, Trust};
use halite_proto::pki;
use halite_proto::pki::{Inspected, PrivateKey};
use halite_proto::tonic::Code;
use halite_proto::transport::{Channel, ClientIdentity, ConnectError, connect};
use halite_proto::v1;
use halite_proto::v1::enrolment_client::EnrolmentClient;
use halite_proto::v1::minion_client::MinionClient;
use halite_proto::v1::operator_client::OperatorClient;

use super::declared::MINION;
use super::operators::create;
use super::site::{Site, start};

/// Begins a stage, and waits until the master presents its CAs; returns them (PEM).
async fn begin(site: &Site, stage: RotationStage, old: &str) -> String {
    let now = SystemClock.now();
    let cas = &site.app.cas;
    cas.begin_stage(HALITE, stage, "prod", now).unwrap();
    let trusted = cas.certificate_pem(HALITE).unwrap().to_owned();
    let wanted = pki::certificates(&trusted).unwrap();
    site.until("the master presents the CAs", async || {
        for ca in [trusted.as_str(), old] {
            if let Ok(channel) = connect(&site.endpoint, ca, None).await {
                return pki::certificates(channel.authorities()).unwrap() == wanted;
            }
        }
        false
    })
    .await;
    trusted
}

async fn channel(
    site: &Site,
    ca: &str,
    identity: Option<&ClientIdentity>,
) -> Result<Channel, ConnectError> {
    connect(&site.endpoint, ca, identity).await
}

/// The result of a call that any operator may make.
async fn call(site: &Site, ca: &str, identity: &ClientIdentity) -> Code {
    let channel = channel(site, ca, Some(identity)).await.unwrap();
    let answer = OperatorClient::new(channel)
        .list_tokens(v1::ListTokensRequest {})
        .await;
    answer.map_or_else(|status| status.code(), |_| Code::Ok)
}

fn request(identity: &ClientIdentity) -> String {
    let key = PrivateKey::from_pem(&identity.key_pem).unwrap();
    key.request("x").unwrap()
}

#[tokio::test]
async fn callers_of_the_old_ca_are_served_until_it_leaves_and_get_certificates_of_the_new_one() {
    let site = start().await;
    let old = site.ca_pem.clone();
    let alice = create(&site, "alice", "viewer").await.unwrap();
    let minion = site.enrolled(MINION).await;
    let behind = async || keys::with_another_ca(&site.app).await.unwrap();
    assert!(behind().await.is_empty());
    begin(&site, Trust, &old).await;
    assert!(behind().await.is_empty());
    assert_eq!(call(&site, &old, &alice).await, Code::Ok);

    let both = begin(&site, Sign, &old).await;
    assert_eq!(behind().await, ["alice"]);
    // Alice's file has only the old CA.
    for ca in [&old, &both] {
        assert_eq!(call(&site, ca, &alice).await, Code::Ok);
    }
    let mut operator = OperatorClient::new(channel(&site, &old, Some(&alice)).await.unwrap());
    let other = PrivateKey::generate().unwrap().request("alice").unwrap();
    let refused = operator
        .renew_operator(v1::RenewOperatorRequest { csr_pem: other })
        .await;
    assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
    let csr_pem = request(&alice);
    let renewed = operator
        .renew_operator(v1::RenewOperatorRequest { csr_pem })
        .await;
    let renewed = renewed.unwrap().into_inner();
    assert!(pki::is_of_signer(&renewed.certificate_pem, &both));
    assert_eq!(renewed.ca_pem, both);
    let end = |pem: &str| Inspected::from_pem(pem).unwrap().not_after;
    assert_eq!(end(&renewed.certificate_pem), end(&alice.certificate_pem));
    assert!(behind().await.is_empty());
    let renewed = ClientIdentity {
        certificate_pem: renewed.certificate_pem,
        key_pem: alice.key_pem.clone(),
    };
    let csr_pem = request(&minion);
    let by_minion = channel(&site, &old, Some(&minion)).await.unwrap();
    let reply = MinionClient::new(by_minion)
        .renew(v1::RenewRequest { csr_pem })
        .await;
    let reply = reply.unwrap().into_inner();
    assert!(pki::is_of_signer(&reply.certificate_pem, &both));
    // Root on this host.
    let trusted = site.app.config.config_dir.join("operator/ca.crt");
    site.until("root has a certificate of the new CA", async || {
        let root = site.root();
        pki::is_of_signer(&root.certificate_pem, &both)
            && std::fs::read_to_string(&trusted).unwrap() == both
    })
    .await;

    let new = begin(&site, Only, &old).await;
    // The master still sends its CA, signed by the old one.
    for ca in [&old, &new] {
        assert_eq!(call(&site, ca, &alice).await, Code::Unavailable);
    }
    for good in [&renewed, &site.root()] {
        assert_eq!(call(&site, &new, good).await, Code::Ok);
    }
    // A minion that was off gets a certificate for its key.
    let request = v1::EnrolRequest {
        protocol: halite_proto::PROTOCOL,
        id: MINION.to_owned(),
        csr_pem: request(&minion),
        ..v1::EnrolRequest::default()
    };
    let stranger = channel(&site, &new, None).await.unwrap();
    let reply = EnrolmentClient::new(stranger).enrol(request).await;
    let reply = reply.unwrap().into_inner();
    assert!(pki::is_of_signer(&reply.certificate_pem, &new));
}
