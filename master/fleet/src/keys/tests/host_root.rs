//! Root on a control-plane host as operator, from its first certificate to the end of its host.

use halite_core::refusal::Refusal;
use halite_proto::role::Role;
use halite_states::low::Chunk;
use halite_store::AuditFilter;
use serde_json::json;

use super::*;
use crate::keys::host_root;

const URI: &str = "halite://prod/operator/root@cp-2";

/// The chunk of `halite.services.operator`, with this URI.
fn chunk(uri: serde_json::Value) -> Chunk {
    serde_json::from_value(json!({
        "state": "x509", "fun": "certificate", "id": "operator", "name": "/etc/halite/operator/operator.crt",
        "sls": "halite.services.operator", "source": {"file": "x.sls", "line": 1, "column": 1},
        "args": {"ca": "halite", "common_name": "root@cp-2", "sans_uri": uri, "client_auth": true},
    }))
    .unwrap()
}

/// Makes the master sign a key's request for the operator of `cp-2`.
async fn sign(site: &Site, key: &PrivateKey) -> Result<String, Refusal> {
    let request = key.request("any").unwrap();
    let (host, chunk) = (minion("cp-2"), chunk(json!([URI])));
    let issued = host_root::sign(&site.app, &host, &chunk, &request).await?;
    Ok(issued.certificate_pem)
}

fn role_of(site: &Site, pem: &str) -> Option<Role> {
    let der = halite_proto::pki::certificates(pem).unwrap();
    let caller = Caller::from_der(&der[0]).unwrap();
    let role = site.app.gate.role(&caller);
    assert_eq!(role.is_some(), site.app.gate.admit(&caller).is_ok());
    role
}

async fn joined(site: &Site) {
    let host = Host::new("cp-2");
    let token = site.token(TokenRequest::default()).await;
    certificate(site.enrol(&host, &token).await);
}

#[tokio::test]
async fn root_on_a_host_is_an_administrator_with_the_newest_key_and_the_audit_names_the_host() {
    let site = site().await;
    joined(&site).await;
    let first = PrivateKey::generate().unwrap();
    let pem = sign(&site, &first).await.unwrap();
    let found = Inspected::from_pem(&pem).unwrap();
    assert_eq!(found.identity().unwrap().to_string(), URI);
    assert_eq!(found.fingerprint, first.fingerprint());
    assert_eq!(role_of(&site, &pem), Some(Role::Admin));
    // A renewal does not create a new operator; a new key replaces the old one.
    let renewed = sign(&site, &first).await.unwrap();
    assert_eq!(role_of(&site, &renewed), Some(Role::Admin));
    assert_eq!(role_of(&site, &pem), Some(Role::Admin));
    let second = sign(&site, &PrivateKey::generate().unwrap()).await.unwrap();
    assert_eq!(role_of(&site, &second), Some(Role::Admin));
    assert_eq!(role_of(&site, &renewed), None);
    let audit = site.store.audit(&AuditFilter::newest(50)).await.unwrap();
    let made: Vec<_> = audit.iter().filter(|line| line.who == "cp-2").collect();
    assert_eq!(made.len(), 2, "{audit:?}");
    assert!(
        made.iter()
            .all(|line| line.what.starts_with("root@cp-2 as admin"))
    );
}

#[tokio::test]
async fn a_host_gets_no_other_identity_than_its_own() {
    let site = site().await;
    joined(&site).await;
    let request = PrivateKey::generate().unwrap().request("root").unwrap();
    for uri in [
        json!(null),
        json!([]),
        json!("halite://prod/operator/root"),
        json!(["halite://prod/operator/root@cp-1"]),
        json!(["halite://prod/minion/cp-2"]),
        json!([URI, "halite://prod/operator/root"]),
    ] {
        let (host, chunk) = (minion("cp-2"), chunk(uri.clone()));
        let refused = host_root::sign(&site.app, &host, &chunk, &request).await;
        let text = refused.unwrap_err().message;
        assert!(text.contains(&format!("only [{URI}]")), "{uri}: {text}");
    }
    let by_hand = NewOperator {
        name: "root@cp-2".to_owned(),
        role: "admin".to_owned(),
        days: 0,
        csr_pem: request,
    };
    let refused = create_operator(&site.app, "root", &by_hand).await;
    assert!(
        refused
            .unwrap_err()
            .message
            .contains("states of their hosts")
    );
}

#[tokio::test]
async fn root_is_out_with_its_host_and_in_again_with_the_host_that_replaces_it() {
    for action in ["reject", "delete"] {
        let site = site().await;
        joined(&site).await;
        let key = PrivateKey::generate().unwrap();
        let pem = sign(&site, &key).await.unwrap();
        site.order("cp-2", action).await.unwrap();
        assert_eq!(role_of(&site, &pem), None, "{action}");
        let all = halite_api::to_text(&list_operators(&site.app).await.unwrap());
        assert!(all.contains("\"state\":\"revoked\""), "{all}");
        // The old host's key stays refused, also by a restarted master.
        let refused = sign(&site, &key).await.unwrap_err();
        assert!(refused.message.contains("was revoked on"), "{refused}");

        if action == "reject" {
            site.order("cp-2", "delete").await.unwrap();
        }
        site.clock.advance(1000);
        joined(&site).await;
        let new = sign(&site, &PrivateKey::generate().unwrap()).await.unwrap();
        assert_eq!(role_of(&site, &new), Some(Role::Admin), "{action}");
        assert_eq!(role_of(&site, &pem), None, "{action}");
    }
}

#[tokio::test]
async fn root_is_out_with_the_control_plane_and_in_again_with_another_key() {
    let site = site().await;
    joined(&site).await;
    let host = minion("cp-2");
    // A host that never had an operator.
    host_root::end(&site.app, &host).await.unwrap();
    let pem = sign(&site, &PrivateKey::generate().unwrap()).await.unwrap();
    for _ in 0..2 {
        host_root::end(&site.app, &host).await.unwrap();
        assert_eq!(role_of(&site, &pem), None);
        let all = halite_api::to_text(&list_operators(&site.app).await.unwrap());
        assert!(all.contains("\"state\":\"expired\""), "{all}");
        site.clock.advance(1000);
    }
    let new = sign(&site, &PrivateKey::generate().unwrap()).await.unwrap();
    assert_eq!(role_of(&site, &new), Some(Role::Admin));
    assert_eq!(role_of(&site, &pem), None);
}

#[tokio::test]
async fn an_operator_who_was_revoked_is_not_made_again_by_a_state() {
    let site = site().await;
    joined(&site).await;
    sign(&site, &PrivateKey::generate().unwrap()).await.unwrap();
    site.clock.advance(1000);
    revoke_operator(&site.app, "root", "root@cp-2")
        .await
        .unwrap();
    let refused = sign(&site, &PrivateKey::generate().unwrap())
        .await
        .unwrap_err();
    assert!(
        refused.message.contains("ctl node replace cp-2"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_clock_that_is_set_brings_no_revoked_root_back_and_keeps_no_new_host_out() {
    for step in STEPS {
        let site = site().await;
        joined(&site).await;
        let key = PrivateKey::generate().unwrap();
        sign(&site, &key).await.unwrap();
        site.clock.step(step);
        revoke_operator(&site.app, "root", "root@cp-2")
            .await
            .unwrap();
        site.clock.step(step);
        let refused = sign(&site, &key).await.unwrap_err();
        assert!(refused.message.contains("was revoked on"), "{refused}");
        site.order("cp-2", "delete").await.unwrap();
        joined(&site).await;
        let new = sign(&site, &PrivateKey::generate().unwrap()).await.unwrap();
        assert_eq!(role_of(&site, &new), Some(Role::Admin), "{step}");
    }
}

#[tokio::test]
async fn a_host_that_becomes_the_master_keeps_its_operator() {
    let site = site().await;
    joined(&site).await;
    let key = PrivateKey::generate().unwrap();
    let pem = sign(&site, &key).await.unwrap();
    let directory = site.directory.path().join("etc/operator");
    std::fs::write(directory.join("operator.key"), key.to_pem()).unwrap();
    std::fs::write(directory.join("operator.crt"), &pem).unwrap();
    let year = NOW + 360 * 24 * 60 * 60 * 1000;
    for now in [NOW, year] {
        halite_core::init::init(&site.app.config, now).unwrap();
        let found = std::fs::read_to_string(directory.join("operator.crt")).unwrap();
        assert_eq!(found == pem, now == NOW, "it is renewed in time");
        assert_eq!(role_of(&site, &found), Some(Role::Admin));
    }
}
