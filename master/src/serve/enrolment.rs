//! The service for hosts without a certificate: enrolment.

use std::time::Duration;

use halite_core::ca::HALITE;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_fleet::keys;
use halite_fleet::keys::{EnrolAnswer, EnrolmentRequest};
use halite_proto::tonic;
use halite_proto::tonic::{Request, Response, Status};
use halite_proto::transport::Peer;
use halite_proto::v1::enrol_reply::State;
use halite_proto::v1::enrolment_server::Enrolment;
use halite_proto::v1::{EnrolReply, EnrolRequest};
use halite_store::Audit;

use super::{Services, outcome, status};

const METHOD: &str = "Enrolment/Enrol";
/// The pause for a caller whose address was refused many times in this minute.
const TIRED: Duration = Duration::from_secs(1);

/// The reason why a minion of another protocol version is not served; `None` if it is.
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
        if self.app.gate.is_tired_of(&peer.source()) {
            tokio::time::sleep(TIRED).await;
        }
        // In a separate task: a call that the host ends is not left half done.
        let services = self.clone();
        let task =
            tokio::spawn(async move { services.enrol_host(&peer, request.into_inner()).await });
        task.await
            .map_err(|error| status(Refusal::internal(format!("the call ended early: {error}"))))?
    }
}

impl Services {
    async fn enrol_host(
        &self,
        peer: &Peer,
        request: EnrolRequest,
    ) -> Result<Response<EnrolReply>, Status> {
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
        let result = self.answer(peer, request).await.map_err(status);
        self.count(METHOD, result.as_ref().err());
        let line = |outcome: String| Audit {
            time: self.app.clock.now(),
            who: peer.name(),
            method: METHOD.to_owned(),
            what: format!("{shown} {with}"),
            outcome,
        };
        let answer = match result {
            Ok(answer) => answer,
            Err(error) => {
                let refused = line(outcome(Some(&error)));
                self.app.gate.note(&peer.source(), refused);
                return Err(error);
            }
        };
        match &answer {
            EnrolAnswer::Rejected { reason, .. } => {
                let refused = line(format!("refused: {reason}"));
                self.app.gate.note(&peer.source(), refused);
            }
            EnrolAnswer::Accepted { new: true, .. } | EnrolAnswer::Pending { new: true, .. } => {
                let stored = self.app.store.append_audit(&line(outcome(None))).await;
                stored.map_err(|error| status(error.into()))?;
            }
            // Repeating the request changes nothing.
            EnrolAnswer::Accepted { .. } | EnrolAnswer::Pending { .. } => {}
        }
        let ca = self.app.cas.certificate_pem(HALITE);
        let ca = ca.map_err(|error| status(Refusal::internal(chain(&error))))?;
        Ok(Response::new(reply(answer, ca)))
    }

    async fn answer(&self, peer: &Peer, request: EnrolRequest) -> Result<EnrolAnswer, Refusal> {
        if let Some(reason) = protocol_refusal(request.protocol) {
            return Err(Refusal::conflict(reason));
        }
        let newcomer = EnrolmentRequest {
            id: request.id,
            csr_pem: request.csr_pem,
            token: request.token,
            grains_json: request.grains_json,
            source: peer.source(),
        };
        let answer = keys::enrol(&self.app, &newcomer).await?;
        if matches!(answer, EnrolAnswer::Accepted { new: true, .. }) {
            // Work that waits under this id waits for an earlier host.
            self.backend.on_key_gone(&newcomer.id.parse()?).await?;
        }
        Ok(answer)
    }
}

fn reply(answer: EnrolAnswer, ca_pem: &str) -> EnrolReply {
    let mut reply = EnrolReply {
        ca_pem: ca_pem.to_owned(),
        ..EnrolReply::default()
    };
    let state = match answer {
        EnrolAnswer::Accepted {
            certificate_pem,
            fingerprint,
            ..
        } => {
            reply.certificate_pem = certificate_pem;
            reply.fingerprint = fingerprint;
            State::Accepted
        }
        EnrolAnswer::Pending { fingerprint, .. } => {
            reply.fingerprint = fingerprint;
            State::Pending
        }
        EnrolAnswer::Rejected {
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
