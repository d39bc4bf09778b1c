//! Certificates of operators: for a new one, and for one whose CA is being replaced.

use std::sync::Arc;

use halite_core::app::App;
use halite_core::ca::HALITE;
use halite_core::clock::rfc3339;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_fleet::keys;
use halite_fleet::keys::NewOperator;
use halite_proto::tonic::{Response, Status};
use halite_proto::transport::Peer;
use halite_proto::v1::{CreateOperatorReply, CreateOperatorRequest, RenewOperatorRequest};
use halite_store::Millis;

use super::{Call, Services, caller_id};

impl Services {
    pub(super) async fn made_operator(
        &self,
        peer: &Peer,
        request: CreateOperatorRequest,
    ) -> Result<Response<CreateOperatorReply>, Status> {
        let by = caller_id(peer)?.to_owned();
        let what = format!("{} as {}", request.name, request.role);
        let call = Call::new(peer, "Operator/CreateOperator", what);
        let wanted = NewOperator {
            name: request.name,
            role: request.role,
            days: request.days,
            csr_pem: request.csr_pem,
        };
        let app = Arc::clone(&self.app);
        self.audited(call, async move {
            let made = keys::create_operator(&app, &by, &wanted).await?;
            reply(&app, made)
        })
        .await
    }

    pub(super) async fn renewed_operator(
        &self,
        peer: &Peer,
        request: RenewOperatorRequest,
    ) -> Result<Response<CreateOperatorReply>, Status> {
        let name = caller_id(peer)?.to_owned();
        let call = Call::new(peer, "Operator/RenewOperator", String::new());
        let app = Arc::clone(&self.app);
        self.audited(call, async move {
            let renewed = keys::renew_operator(&app, &name, &request.csr_pem).await?;
            reply(&app, renewed)
        })
        .await
    }
}

/// The answer with a certificate and its end.
fn reply(
    app: &App,
    (certificate_pem, expires): (String, Millis),
) -> Result<CreateOperatorReply, Refusal> {
    let ca_pem = app.cas.certificate_pem(HALITE);
    let ca_pem = ca_pem.map_err(|error| Refusal::internal(chain(&error)))?;
    Ok(CreateOperatorReply {
        certificate_pem,
        ca_pem: ca_pem.to_owned(),
        expires: rfc3339(expires),
    })
}
