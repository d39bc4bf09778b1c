//! A kubeconfig over the wire.

use halite_proto::pki::Inspected;
use halite_proto::tonic::Status;
use halite_proto::transport::Channel;
use halite_proto::v1;
use halite_proto::v1::operator_client::OperatorClient;

/// Requests a kubeconfig for one minute, with the caller's own certificate.
pub async fn ask(channel: Channel, csr_pem: String) -> Result<(), Status> {
    let request = v1::KubeconfigRequest {
        csr_pem,
        ttl_seconds: 60,
        ..v1::KubeconfigRequest::default()
    };
    let reply = OperatorClient::new(channel).kubeconfig(request).await?;
    let reply = reply.into_inner();
    let issued = Inspected::from_pem(&reply.certificate_pem).unwrap();
    assert_eq!(
        issued.subject,
        format!("O=kubeadm:cluster-admins, CN={}", reply.user)
    );
    assert_eq!(
        (reply.cluster.as_str(), reply.server.as_str()),
        ("prod", "https://192.0.2.100:6443")
    );
    assert_eq!(reply.tls_server_name, "api.prod.internal");
    Ok(())
}
