//! The calls with which an operator prepares the next CA of a name.

use std::sync::Arc;

use halite_proto::tonic::{Request, Response, Status};
use halite_proto::transport::Peer;
use halite_proto::v1::{Document, ImportCaRequest, RequestCaRequest};

use super::{Call, Services};
use crate::operator::{document, own_cas};

/// Makes the key of the next CA, and returns the request for its certificate.
pub(super) async fn request(
    services: &Services,
    request: Request<RequestCaRequest>,
) -> Result<Response<Document>, Status> {
    let peer = Peer::of(&request)?.clone();
    let name = request.into_inner().name;
    let call = Call::new(&peer, "Operator/RequestCa", own_cas::short(&name));
    let backend = Arc::clone(&services.backend);
    let work = async move { Ok(document(&backend.request_ca(&name).await?)) };
    services.audited(call, work).await
}

/// Records the next CA, or removes it. The audit names the CA, and has neither certificate nor key.
pub(super) async fn import(
    services: &Services,
    request: Request<ImportCaRequest>,
) -> Result<Response<Document>, Status> {
    let peer = Peer::of(&request)?.clone();
    let request = request.into_inner();
    let call = Call::new(&peer, "Operator/ImportCa", own_cas::words(&request));
    let backend = Arc::clone(&services.backend);
    let work = async move { Ok(document(&backend.import_ca(request).await?)) };
    services.audited(call, work).await
}
