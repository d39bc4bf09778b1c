//! The next CA of a name, over the wire.

use halite_proto::pki::PrivateKey;
use halite_proto::tonic::{Code, Status};
use halite_proto::transport::Channel;
use halite_proto::v1;
use halite_proto::v1::operator_client::OperatorClient;
use halite_store::AuditFilter;

use super::site::start;

/// Requests the next CA, or discards it.
pub async fn call(method: &str, channel: Channel) -> Result<(), Status> {
    let mut operator = OperatorClient::new(channel);
    let name = "front-proxy".to_owned();
    let answer = if method.ends_with("/RequestCa") {
        operator.request_ca(v1::RequestCaRequest { name }).await
    } else {
        let request = v1::ImportCaRequest {
            name,
            discard: true,
            ..v1::ImportCaRequest::default()
        };
        operator.import_ca(request).await
    };
    answer.map(drop)
}

/// The key of an import that is refused, too, is in no line of the audit.
#[tokio::test]
async fn the_audit_names_an_import_without_its_key() {
    let site = start().await;
    let mut operator = OperatorClient::new(site.channel(Some(&site.root())).await);
    let key_pem = PrivateKey::generate().unwrap().to_pem();
    let request = v1::ImportCaRequest {
        name: "etcd".to_owned(),
        certificate_pem: site.ca_pem.clone(),
        key_pem: key_pem.clone(),
        ..v1::ImportCaRequest::default()
    };
    let refused = operator.import_ca(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    let said = refused.message();
    for part in [
        "the key in --key is not its key",
        "the key of the CA halite",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let audit = site
        .app
        .store
        .audit(&AuditFilter::newest(10))
        .await
        .unwrap();
    let lines = audit
        .iter()
        .filter(|line| line.method == "Operator/ImportCa");
    let lines: Vec<_> = lines.collect();
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines.iter().all(|line| line.what == "etcd (with its key)"));
    let body = key_pem.lines().nth(1).unwrap();
    assert!(!format!("{audit:?}{said}").contains(body));
}
