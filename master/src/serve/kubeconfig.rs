//! The call for a kubeconfig.

use halite_core::clock::rfc3339;
use halite_proto::tonic::{Request, Response, Status};
use halite_proto::transport::Peer;
use halite_proto::v1::{KubeconfigReply, KubeconfigRequest};

use super::{Call, Services, caller_id};
use crate::operator::kubeconfig;

/// Signs a certificate with which the caller uses the Kubernetes API.
pub(super) async fn sign(
    services: &Services,
    request: Request<KubeconfigRequest>,
) -> Result<Response<KubeconfigReply>, Status> {
    let peer = Peer::of(&request)?.clone();
    let operator = caller_id(&peer)?.to_owned();
    let request = request.into_inner();
    let what = kubeconfig::words(&request);
    let call = Call::new(&peer, "Operator/Kubeconfig", what);
    let Services { app, backend, .. } = services.clone();
    let work = async move {
        let way = backend.api_way(&request.server).await?;
        let wanted = kubeconfig::KubeconfigRequest {
            csr_pem: &request.csr_pem,
            ttl_seconds: request.ttl_seconds,
            force: request.force,
        };
        let issued = kubeconfig::sign(&app, &operator, wanted).await?;
        Ok(KubeconfigReply {
            certificate_pem: issued.certificate_pem,
            ca_pem: issued.ca_pem,
            cluster: app.config.cluster.clone(),
            user: operator,
            server: way.server,
            tls_server_name: way.tls_server_name,
            expires: rfc3339(issued.not_after.saturating_mul(1000)),
        })
    };
    services.audited(call, work).await
}
