//! The network services: what each call does, and its audit. The certificate names the caller, and
//! the table in [`halite_proto::authz`] has decided already that they may call.

mod enrolment;
mod minion;
mod operator;

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use halite_errors::chain;
use halite_proto::tonic::service::Routes;
use halite_proto::tonic::{Code, Response, Status};
use halite_proto::transport::{Peer, Server, TlsError};
use halite_proto::v1::enrolment_server::EnrolmentServer;
use halite_proto::v1::minion_server::MinionServer;
use halite_proto::v1::operator_server::OperatorServer;
use tokio::net::TcpListener;

use crate::app::App;
use crate::backend::Backend;
use crate::ca::{CaError, HALITE};
use crate::init;
use crate::metrics::CallLabels;
use crate::refusal::{Refusal, RefusalKind};
use crate::store::Audit;

/// Largest message of a host without a certificate: a request, a token and grains.
const ENROLMENT_MESSAGE: usize = 512 * 1024;
/// Largest message of a minion: the return of a long highstate.
const MINION_MESSAGE: usize = 64 * 1024 * 1024;
/// Largest message of an operator.
const OPERATOR_MESSAGE: usize = 8 * 1024 * 1024;
/// The interval at which the master checks whether its own certificate is due for renewal.
const RENEWAL_CHECK: Duration = Duration::from_secs(6 * 60 * 60);

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
    backend: Arc<dyn Backend>,
}

/// Serves minions and operators on an open port until `stop` resolves; then it ends all streams and
/// gives open calls a few seconds.
///
/// # Errors
/// The master's identity or CA cannot be used.
pub async fn serve(
    app: Arc<App>,
    backend: Arc<dyn Backend>,
    listener: TcpListener,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let (certificate, key) = init::master_identity(&app.config, &app.cas, app.clock.now())?;
    let ca = app.cas.certificate_pem(HALITE)?;
    let policy = Arc::clone(&app.gate) as Arc<_>;
    let server = Arc::new(Server::new(
        &app.config.cluster,
        &certificate,
        &key,
        ca,
        policy,
    )?);
    let renewal = tokio::spawn(renew_own(Arc::clone(&app), Arc::clone(&server)));
    let services = Services {
        app: Arc::clone(&app),
        backend,
    };
    let routes = Routes::new(
        EnrolmentServer::new(services.clone()).max_decoding_message_size(ENROLMENT_MESSAGE),
    )
    .add_service(MinionServer::new(services.clone()).max_decoding_message_size(MINION_MESSAGE))
    .add_service(OperatorServer::new(services).max_decoding_message_size(OPERATOR_MESSAGE));
    let ending = async {
        stop.await;
        // Long streams end only from here; the minions connect to the next master again.
        for minion in app.connections.connected() {
            app.connections.disconnect(&minion);
        }
    };
    server.serve(listener, routes, ending).await;
    renewal.abort();
    Ok(())
}

/// Renews the master's certificate when it is due, without a restart.
async fn renew_own(app: Arc<App>, server: Arc<Server>) {
    let mut checks = tokio::time::interval(RENEWAL_CHECK);
    loop {
        checks.tick().await;
        if let Err(error) = renew_once(&app, &server) {
            tracing::error!(
                error = chain(&error),
                "cannot renew the master's own certificate"
            );
        }
    }
}

fn renew_once(app: &App, server: &Server) -> Result<(), ServeError> {
    let (certificate, key) = init::master_identity(&app.config, &app.cas, app.clock.now())?;
    Ok(server.replace_certificate(&certificate, &key)?)
}

/// The gRPC status of a refusal.
fn status(refusal: Refusal) -> Status {
    let code = match refusal.kind {
        RefusalKind::Invalid => Code::InvalidArgument,
        RefusalKind::NotFound => Code::NotFound,
        RefusalKind::Denied => Code::PermissionDenied,
        RefusalKind::Conflict => Code::FailedPrecondition,
        RefusalKind::Unavailable => Code::Unavailable,
        RefusalKind::Internal => Code::Internal,
    };
    if code == Code::Internal {
        tracing::error!(reason = refusal.message, "a call failed");
    }
    Status::new(code, refusal.message)
}

/// One call, for audit and metrics.
struct Call<'a> {
    peer: &'a Peer,
    /// `Operator/Run`.
    method: &'static str,
    /// The request in a few words. Never contains a secret.
    what: String,
}

impl Services {
    /// Does the work of a call, counts it, and writes caller, request and outcome to the audit.
    async fn audited<T>(
        &self,
        call: Call<'_>,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<Response<T>, Status> {
        let result = work.await.map_err(status);
        self.count(call.method, result.as_ref().err());
        let outcome = result
            .as_ref()
            .err()
            .map_or_else(|| "ok".to_owned(), |e| format!("refused: {}", e.message()));
        tracing::info!(
            who = call.peer.name(),
            method = call.method,
            what = call.what,
            outcome,
            "call"
        );
        let line = Audit {
            time: self.app.clock.now(),
            who: call.peer.name(),
            method: call.method.to_owned(),
            what: call.what,
            outcome,
        };
        // A call without its audit line fails: no change goes unrecorded.
        self.app
            .store
            .append_audit(&line)
            .await
            .map_err(|error| status(error.into()))?;
        result.map(Response::new)
    }

    /// As [`Services::audited`], for calls that change nothing: counted and logged, without an
    /// audit line.
    async fn counted<T>(
        &self,
        call: Call<'_>,
        work: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<Response<T>, Status> {
        let result = work.await.map_err(status);
        self.count(call.method, result.as_ref().err());
        tracing::debug!(
            who = call.peer.name(),
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

/// The id in the caller's certificate. The table admits only callers with a certificate here.
fn caller_id(peer: &Peer) -> Result<&str, Status> {
    let caller = peer.caller.as_ref();
    caller
        .map(|c| c.identity.id())
        .ok_or_else(|| Status::unauthenticated("this call needs a certificate"))
}
