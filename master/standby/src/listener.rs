//! The port of a standby. It answers one query, which master the host follows, and presents the
//! certificate of its minion, so that no client mistakes it for a master.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use halite_core::descriptors;
use halite_errors::chain;
use halite_proto::backoff::Backoff;
use halite_proto::role::Role;
use halite_proto::tonic;
use halite_proto::tonic::service::Routes;
use halite_proto::tonic::{Request, Response, Status, Streaming};
use halite_proto::transport::{
    Caller, ClientIdentity, NotAdmitted, Peer, PeerPolicy, Server, TlsError,
};
use halite_proto::v1::standby_server::{Standby, StandbyServer};
use halite_proto::v1::{CompareReply, CompareRequest, StandbyMessage, StandbyRecord};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::Instant;

use super::knowledge::Knowledge;
use super::session::{SessionError, identity};

/// A port that was open for this long counts as opened.
const STABLE: Duration = Duration::from_secs(5);
/// The pauses after a failure to open the port.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
/// The interval between two inspections of the minion's certificate.
const LOOK: Duration = Duration::from_secs(10);

/// An error of the port.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The identity of this host's minion cannot be read.
    #[error(transparent)]
    Identity(#[from] SessionError),
    /// The identity cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The port cannot be opened.
    #[error("cannot listen on {address}")]
    Port {
        /// The address.
        address: SocketAddr,
        /// The reason of the operating system.
        source: std::io::Error,
    },
}

/// Every identity of the cluster may query. A standby does not know which keys are currently
/// accepted, and its answer is not secret.
struct Everyone(watch::Sender<u64>);

impl PeerPolicy for Everyone {
    fn admit(&self, _caller: &Caller) -> Result<(), NotAdmitted> {
        Ok(())
    }

    fn role(&self, _caller: &Caller) -> Option<Role> {
        None
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }

    fn refused(&self, peer: &Peer, path: &str, reason: &str) {
        tracing::debug!(peer = peer.name(), path, reason, "refused");
    }

    fn handshake_failed(&self, address: SocketAddr, reason: &str) {
        tracing::debug!(%address, reason, "no handshake");
    }
}

/// The service of a standby.
struct StandsBy(Arc<Knowledge>);

#[tonic::async_trait]
impl Standby for StandsBy {
    type FollowStream = Pin<Box<dyn Stream<Item = Result<StandbyRecord, Status>> + Send>>;

    async fn follow(
        &self,
        _request: Request<Streaming<StandbyMessage>>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let master = self.0.standing().master;
        Err(Status::unavailable(format!(
            "cannot follow this host: it is a standby; the master that it last heard from: {}",
            if master.is_empty() { "none" } else { &master }
        )))
    }

    async fn compare(
        &self,
        _request: Request<CompareRequest>,
    ) -> Result<Response<CompareReply>, Status> {
        let knowledge = Arc::clone(&self.0);
        // It reads a file, so it runs on a thread of its own.
        let standing = tokio::task::spawn_blocking(move || knowledge.standing()).await;
        let standing = standing.map_err(|error| Status::internal(error.to_string()))?;
        let epoch = self.0.epoch();
        Ok(Response::new(CompareReply {
            epoch: epoch.number,
            evidence: epoch.evidence(),
            standing: Some(standing),
        }))
    }
}

/// Answers on the port of the master for as long as the host is a standby. A port that cannot be
/// opened does not prevent the standby from copying.
pub async fn listen(knowledge: Arc<Knowledge>) {
    let address = knowledge.config().listen;
    let mut pauses = PAUSES;
    loop {
        let began = Instant::now();
        let listener = TcpListener::bind(address).await;
        let listener = listener.map_err(|source| ListenError::Port { address, source });
        let ended = match listener {
            Ok(listener) => answer(Arc::clone(&knowledge), listener).await,
            Err(error) => Err(error),
        };
        if let Err(error) = ended {
            let reason = chain(&error);
            tracing::warn!(reason, "other hosts cannot ask this standby");
        }
        if began.elapsed() >= STABLE {
            pauses.reset();
        }
        pauses.wait().await;
    }
}

/// Answers on an open port. Returns only if the identity of this host's minion cannot be used.
///
/// # Errors
/// The identity cannot be read or used.
pub async fn answer(knowledge: Arc<Knowledge>, listener: TcpListener) -> Result<(), ListenError> {
    let minion = knowledge.minion().to_owned();
    let (own, ca) = identity(&minion)?;
    let policy = Arc::new(Everyone(watch::Sender::new(0)));
    let cluster = &knowledge.config().cluster;
    let server = Server::new(cluster, &own.certificate_pem, &own.key_pem, &ca, policy)?;
    let server = Arc::new(server.with_connections(descriptors::for_connections()));
    let routes = Routes::new(StandbyServer::new(StandsBy(knowledge)));
    let serving = Arc::clone(&server).serve(listener, routes, std::future::pending());
    tokio::select! {
        () = serving => {}
        () = renew(&server, minion, (own, ca)) => {}
    }
    Ok(())
}

/// Reloads the minion's certificate and its trusted CAs after each change. Never returns.
async fn renew(server: &Server, minion: PathBuf, mut shown: (ClientIdentity, String)) {
    loop {
        tokio::time::sleep(LOOK).await;
        let Ok(found) = identity(&minion) else {
            continue;
        };
        if found == shown {
            continue;
        }
        let (own, ca) = &found;
        match server.replace_identity(&own.certificate_pem, &own.key_pem, ca) {
            Ok(()) => shown = found,
            // Certificate and key are two files: the next inspection finds both.
            Err(error) => tracing::warn!(reason = chain(&error), "cannot use the certificate"),
        }
    }
}
