//! The network services: the effect of each call, and its audit. The certificate names the caller,
//! and the table in [`halite_proto::authz`] has already authorised the call.

mod accounts;
mod added;
mod enrolment;
mod hand_over;
mod kubeconfig;
mod minion;
mod operator;
mod own_cas;
#[cfg(test)]
mod reply_tests;
mod roles;
mod shares;
mod standby;
mod status;
mod watch;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use halite_core::app::App;
use halite_core::ca::{CaError, HALITE};
use halite_core::descriptors;
use halite_core::init;
use halite_core::metrics::CallLabels;
use halite_core::refusal::Refusal;
use halite_core::supervision::supervise;
use halite_errors::chain;
use halite_proto::ids::MinionId;
use halite_proto::tonic::service::Routes;
use halite_proto::tonic::{Code, Response, Status};
use halite_proto::transport::{Peer, PeerPolicy, STRANGER_MESSAGE, Server, TlsError};
use halite_proto::v1::enrolment_server::EnrolmentServer;
use halite_proto::v1::minion_server::MinionServer;
use halite_proto::v1::operator_server::OperatorServer;
use halite_proto::v1::standby_server::StandbyServer;
use halite_store::Audit;
use tokio::net::TcpListener;

use self::shares::Shares;
use self::status::status;
use crate::backend::Backend;

pub use self::hand_over::serve_standbys;

/// Largest message of a minion: the return of a long highstate.
const MINION_MESSAGE: usize = 64 * 1024 * 1024;
/// Largest message of an operator.
const OPERATOR_MESSAGE: usize = 8 * 1024 * 1024;
/// The audit outcome of a call whose work starts.
const BEGINS: &str = "begins";
/// The interval at which the master checks whether its own certificate is due for renewal.
const RENEWAL_CHECK: Duration = Duration::from_secs(6 * 60 * 60);
/// The interval after a failure.
const RENEWAL_RETRY: Duration = Duration::from_secs(30);

/// A failed start of the services.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The CAs or the master's identity.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The parts that all three services share.
#[derive(Clone)]
struct Services {
    app: Arc<App>,
    backend: Arc<Backend>,
    shares: Arc<Shares>,
}

/// Serves minions and operators on an open port until `stop` resolves; then ends all streams and
/// gives open calls a few seconds.
///
/// # Errors
/// The master's identity or CA cannot be used.
pub async fn serve(
    app: Arc<App>,
    backend: Arc<Backend>,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let server = Arc::new(server(&app, Arc::clone(&app.gate) as Arc<_>)?);
    let renewal = tokio::spawn({
        let (app, server) = (Arc::clone(&app), Arc::clone(&server));
        async move { supervise("renewal", || renew_own(&app, &server)).await }
    });
    let services = Services {
        app: Arc::clone(&app),
        backend,
        shares: Arc::default(),
    };
    let routes = Routes::new(
        EnrolmentServer::new(services.clone()).max_decoding_message_size(STRANGER_MESSAGE),
    )
    .add_service(MinionServer::new(services.clone()).max_decoding_message_size(MINION_MESSAGE))
    .add_service(StandbyServer::new(services.clone()))
    .add_service(OperatorServer::new(services).max_decoding_message_size(OPERATOR_MESSAGE));
    let ending = async {
        stop.await;
        // Long streams end only from here on; the minions connect to the next master.
        for minion in app.connections.connected() {
            app.connections.disconnect(&minion);
        }
        // Operators that follow events connect again, too.
        app.events.close();
    };
    server.serve(listener, routes, ending).await;
    renewal.abort();
    Ok(())
}

/// The server with this master's identity.
fn server(app: &App, policy: Arc<dyn PeerPolicy>) -> Result<Server, ServeError> {
    let (certificate, key) = init::master_identity(&app.config, &app.cas, app.clock.now())?;
    let ca = app.cas.certificate_pem(HALITE)?;
    let server = Server::new(&app.config.cluster, &certificate, &key, ca, policy)?;
    Ok(server.with_connections(descriptors::for_connections()))
}

/// Renews the master's certificate when it is due, without a restart, and follows the rotation of
/// the CA of identities.
async fn renew_own(app: &Arc<App>, server: &Arc<Server>) {
    let mut checks = tokio::time::interval(RENEWAL_CHECK);
    let mut stages = app.cas.stages();
    loop {
        tokio::select! {
            _ = checks.tick() => {}
            Ok(()) = stages.changed() => {}
        }
        let (app, server) = (Arc::clone(app), Arc::clone(server));
        // It makes a key and writes files.
        let renewed = tokio::task::spawn_blocking(move || renew_once(&app, &server)).await;
        let Ok(renewed) = renewed else { continue };
        if let Err(error) = renewed {
            tracing::error!(
                error = chain(&error),
                "cannot renew the master's own certificate"
            );
            checks.reset_after(RENEWAL_RETRY);
        }
    }
}

fn renew_once(app: &App, server: &Server) -> Result<(), ServeError> {
    let now = app.clock.now();
    let (certificate, key) = init::master_identity(&app.config, &app.cas, now)?;
    let trusted = app.cas.certificate_pem(HALITE)?;
    app.follow_ca()?;
    server.replace_identity(&certificate, &key, trusted)?;
    Ok(init::follow_ca(&app.config, &app.cas, now)?)
}

/// One call, for audit and metrics.
struct Call {
    /// The caller; see [`Peer::name`].
    who: String,
    /// `Operator/Run`.
    method: &'static str,
    /// The request in a few words. Never contains a secret.
    what: String,
    /// `true` for a call that revokes access: it is done even if the audit cannot be written.
    urgent: bool,
}

impl Call {
    fn new(peer: &Peer, method: &'static str, what: impl Into<String>) -> Self {
        Self {
            who: peer.name(),
            method,
            what: what.into(),
            urgent: false,
        }
    }
}

impl Services {
    /// Does the work of a call that changes something. The audit gets a line before the work and
    /// one with the outcome after it.
    ///
    /// The work continues when the caller ends the call: it is never left half done or without its
    /// second line.
    async fn audited<T: Send + 'static>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, Refusal>> + Send + 'static,
    ) -> Result<Response<T>, Status> {
        let services = self.clone();
        let task = tokio::spawn(async move { services.act(call, work).await });
        task.await
            .map_err(|error| status(Refusal::internal(format!("the call ended early: {error}"))))?
    }

    async fn act<T>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<Response<T>, Status> {
        let mut line = Audit {
            time: self.app.clock.now(),
            who: call.who,
            method: call.method.to_owned(),
            what: call.what,
            outcome: BEGINS.to_owned(),
        };
        // A call without its audit line does not start: no change goes unrecorded.
        match self.app.store.append_audit(&line).await {
            Ok(()) => {}
            Err(error) if call.urgent => tracing::error!(
                who = line.who,
                what = line.what,
                error = chain(&error),
                "cannot write the audit; the call continues"
            ),
            Err(error) => return Err(status(error.into())),
        }
        let result = work.await.map_err(status);
        self.count(call.method, result.as_ref().err());
        line.time = self.app.clock.now();
        line.outcome = outcome(result.as_ref().err());
        if let Err(error) = self.app.store.append_audit(&line).await {
            // The line before the work exists; the caller learns the outcome itself.
            tracing::error!(
                error = chain(&error),
                "cannot write the outcome of a call to the audit"
            );
        }
        result.map(Response::new)
    }

    /// Forwards the result of a check of the caller's role; a refusal is recorded in the audit,
    /// like a refusal by the table.
    fn check(&self, peer: &Peer, method: &str, checked: Result<(), Status>) -> Result<(), Status> {
        checked.inspect_err(|refusal| self.app.gate.refused(peer, method, refusal.message()))
    }

    /// Does the work of a call that changes nothing: counted and logged, without an audit line.
    async fn counted<T>(
        &self,
        call: Call,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<Response<T>, Status> {
        let result = work.await.map_err(status);
        self.count(call.method, result.as_ref().err());
        tracing::debug!(
            who = call.who,
            method = call.method,
            what = call.what,
            "call"
        );
        result.map(Response::new)
    }

    fn count(&self, method: &str, error: Option<&Status>) {
        let code = error.map_or(Code::Ok, Status::code);
        let labels = CallLabels {
            method: method.to_owned(),
            code: format!("{code:?}"),
        };
        self.app.metrics.calls.get_or_create(&labels).inc();
    }
}

/// The outcome of a call, for the audit.
fn outcome(error: Option<&Status>) -> String {
    error.map_or_else(
        || "ok".to_owned(),
        |error| format!("refused: {}", error.message()),
    )
}

/// The id in the certificate of a calling minion.
fn caller_minion(peer: &Peer) -> Result<MinionId, Status> {
    let caller = peer.caller.as_ref();
    caller
        .and_then(|caller| caller.identity.minion())
        .ok_or_else(|| Status::unauthenticated("this call needs the certificate of a minion"))
}

/// The id in the caller's certificate. The table admits only callers with a certificate here.
fn caller_id(peer: &Peer) -> Result<&str, Status> {
    let caller = peer.caller.as_ref();
    caller
        .map(|c| c.identity.id())
        .ok_or_else(|| Status::unauthenticated("this call needs a certificate"))
}
