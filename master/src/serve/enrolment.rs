//! The service for hosts without a certificate: enrolment.

use halite_errors::chain;
use halite_proto::tonic;
use halite_proto::tonic::{Request, Response, Status};
use halite_proto::transport::Peer;
use halite_proto::v1::enrol_reply::State;
use halite_proto::v1::enrolment_server::Enrolment;
use halite_proto::v1::{EnrolReply, EnrolRequest};

use super::{Call, Services};
use crate::ca::HALITE;
use crate::keys;
use crate::keys::{Answer, EnrolmentRequest};
use crate::refusal::Refusal;

/// The reason why a minion of another protocol version is not served; `None` when it is.
pub(super) fn protocol_refusal(theirs: u32) -> Option<String> {
    let ours = halite_proto::PROTOCOL;
    let oldest = ours.saturating_sub(1).max(1);
    if (oldest..=ours).contains(&theirs) {
        return None;
    }
    Some(format!(
        "this master speaks the protocols {oldest} to {ours}, the minion speaks {theirs}; update the older of the two"
    ))
}

#[tonic::async_trait]
impl Enrolment for Services {
    async fn enrol(&self, request: Request<EnrolRequest>) -> Result<Response<EnrolReply>, Status> {
        let peer = Peer::of(&request)?.clone();
        let request = request.into_inner();
        let shown: String = request
            .id
            .chars()
            .filter(|c| !c.is_control())
            .take(80)
            .collect();
        let with = if request.token.is_empty() {
            "without token"
        } else {
            "with token"
        };
        let call = Call {
            peer: &peer,
            method: "Enrolment/Enrol",
            what: format!("{shown} {with}"),
        };
        self.audited(call, async {
            if let Some(reason) = protocol_refusal(request.protocol) {
                return Err(Refusal::conflict(reason));
            }
            let newcomer = EnrolmentRequest {
                id: request.id,
                csr_pem: request.csr_pem,
                token: request.token,
                grains_json: request.grains_json,
            };
            let ca = self
                .app
                .cas
                .certificate_pem(HALITE)
                .map_err(|e| Refusal::internal(chain(&e)))?;
            Ok(reply(keys::enrol(&self.app, &newcomer).await?, ca))
        })
        .await
    }
}

fn reply(answer: Answer, ca_pem: &str) -> EnrolReply {
    let mut reply = EnrolReply {
        ca_pem: ca_pem.to_owned(),
        ..EnrolReply::default()
    };
    let state = match answer {
        Answer::Accepted {
            certificate_pem,
            fingerprint,
        } => {
            reply.certificate_pem = certificate_pem;
            reply.fingerprint = fingerprint;
            State::Accepted
        }
        Answer::Pending { fingerprint } => {
            reply.fingerprint = fingerprint;
            State::Pending
        }
        Answer::Rejected {
            fingerprint,
            reason,
        } => {
            reply.fingerprint = fingerprint;
            reply.reason = reason;
            State::Rejected
        }
    };
    reply.set_state(state);
    reply
}
