//! The services of a master that hands over: its standbys may connect, and the next master receives
//! all data. No other caller can change anything.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;

use halite_api::HandOverPhase;
use halite_core::app::App;
use halite_core::gate::Gate;
use halite_errors::chain;
use halite_proto::role::Role;
use halite_proto::tonic;
use halite_proto::tonic::service::Routes;
use halite_proto::tonic::{Request, Response, Status, Streaming};
use halite_proto::transport::{Caller, NotAdmitted, Peer, PeerPolicy};
use halite_proto::v1::standby_server::{Standby, StandbyServer};
use halite_proto::v1::{CompareReply, CompareRequest, StandbyMessage};
use halite_standby::hand_over::Decision;
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::standby::{Records, Stream, accept, compare, fed, program_refusal};
use super::{ServeError, caller_minion, server};

/// The gate, for standbys only.
struct OnlyStandbys {
    gate: Arc<Gate>,
    hosts: Vec<String>,
    decision: Arc<Decision>,
}

/// The refusal of all other callers. It tells `ctl master retire` on another host the progress of
/// the move.
fn refusal(phase: HandOverPhase) -> NotAdmitted {
    match phase {
        HandOverPhase::Offered | HandOverPhase::Failed => NotAdmitted::Moving,
        HandOverPhase::Decided => NotAdmitted::Moved,
    }
}

impl PeerPolicy for OnlyStandbys {
    fn admit(&self, caller: &Caller) -> Result<(), NotAdmitted> {
        self.gate.admit(caller)?;
        let minion = caller.identity.minion();
        if minion.is_some_and(|minion| self.hosts.iter().any(|host| host == minion.as_str())) {
            return Ok(());
        }
        Err(refusal(self.decision.note().phase))
    }

    fn role(&self, _caller: &Caller) -> Option<Role> {
        None
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.gate.changes()
    }

    fn refused(&self, peer: &Peer, path: &str, reason: &str) {
        self.gate.refused(peer, path, reason);
    }

    fn handshake_failed(&self, address: SocketAddr, reason: &str) {
        self.gate.handshake_failed(address, reason);
    }
}

#[derive(Clone)]
struct HandsOver {
    app: Arc<App>,
    decision: Arc<Decision>,
}

#[tonic::async_trait]
impl Standby for HandsOver {
    type FollowStream = Records;

    async fn follow(
        &self,
        request: Request<Streaming<StandbyMessage>>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let peer = Peer::of(&request)?.clone();
        let minion = caller_minion(&peer)?;
        let to = self.decision.note().to;
        if minion.as_str() != to {
            return Err(Status::failed_precondition(format!(
                "the master moves to {to}"
            )));
        }
        let (stream, records) = accept(&self.app, &peer, &to, request.into_inner()).await?;
        // It may run another program than before this master has stopped.
        if let Some(reason) = program_refusal(&to, &stream.hello) {
            if let Err(error) = self.decision.give_up(&reason) {
                tracing::error!(error = chain(&error), "cannot cancel the hand-over");
            }
            return Err(Status::failed_precondition(reason));
        }
        let epoch = self.app.succession.evidence();
        let decision = Arc::clone(&self.decision);
        let feed = |stream: Stream| async move {
            let decide = || decision.decide();
            match stream.feed.hand_over(&epoch, &stream.hello, decide).await {
                Ok(()) => tracing::info!(to = stream.name, "the master is handed over"),
                Err(error) => {
                    // It may have stored the order anyway: then it serves soon.
                    tracing::warn!(
                        to = stream.name,
                        reason = chain(&error),
                        "the stream of the hand-over has ended"
                    );
                }
            }
        };
        Ok(fed(&self.app, stream, records, feed))
    }

    async fn compare(
        &self,
        request: Request<CompareRequest>,
    ) -> Result<Response<CompareReply>, Status> {
        compare(&self.app, &request)
    }
}

/// Serves the standbys of a master that hands over, until `stop` resolves.
///
/// # Errors
/// The master's identity or CA cannot be used.
pub async fn serve_standbys(
    app: Arc<App>,
    decision: Arc<Decision>,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let policy = OnlyStandbys {
        gate: Arc::clone(&app.gate),
        hosts: decision.note().hosts,
        decision: Arc::clone(&decision),
    };
    let server = Arc::new(server(&app, Arc::new(policy))?);
    let routes = Routes::new(StandbyServer::new(HandsOver { app, decision }));
    server.serve(listener, routes, stop).await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_is_refused_for_good_only_when_the_move_is_decided() {
        assert_eq!(refusal(HandOverPhase::Offered), NotAdmitted::Moving);
        assert_eq!(refusal(HandOverPhase::Failed), NotAdmitted::Moving);
        assert_eq!(refusal(HandOverPhase::Decided), NotAdmitted::Moved);
    }
}
