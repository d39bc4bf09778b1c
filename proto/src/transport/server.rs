//! The server: accepts connections, verifies callers, and passes their calls to the services.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use halite_errors::chain;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tonic::service::Routes;

use super::authorised::AuthorisedRoutes;
use super::limits::{ConnectionSets, STRANGER_TIME, streams, window};
use super::oldest_first::ConnectionPlace;
use super::peer::{Caller, Peer, PeerPolicy};
use super::tls::{CallerVerifier, provider};
use super::{HANDSHAKE_TIMEOUT, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT};
use crate::pki;

/// The time that open calls have to finish after the order to stop.
const DRAIN: Duration = Duration::from_secs(5);
/// The pause after an accept that failed for want of descriptors.
const PAUSE: Duration = Duration::from_millis(10);
/// The reason in the log of a connection that a newer one has replaced.
const REPLACED: &str = "closed for a newer connection: too many are open without an identity";
/// Longest interval between checks that an open connection's certificate has not expired.
const EXPIRY_CHECK: u64 = 3600;
/// The time that a caller has to connect again after the CA of its certificate has left: the master
/// notifies it over the open connection.
const DISTRUSTED: Duration = match cfg!(test) {
    true => Duration::from_millis(500),
    false => Duration::from_secs(60),
};

/// The reason why the server's TLS settings cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Key, certificate or CA cannot be read.
    #[error(transparent)]
    Pki(#[from] pki::PkiError),
    /// They do not match.
    #[error("cannot use the TLS settings")]
    Tls(#[from] rustls::Error),
    /// The CA cannot be used to verify callers.
    #[error("cannot use the CA to verify callers")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

/// A TLS server for the services.
pub struct Server {
    /// For new connections.
    tls: RwLock<TlsAcceptor>,
    /// The trusted CAs (PEM), which open connections watch.
    trusted: watch::Sender<Arc<str>>,
    cluster: String,
    policy: Arc<dyn PeerPolicy>,
    pub(super) limits: ConnectionSets,
}

impl Server {
    /// Prepares a server of `cluster` that presents `certificate_pem` with `key_pem` and trusts
    /// callers of the CAs in `ca_pem`. It sends the CAs with its certificate, because a new minion
    /// knows only the hash of one.
    ///
    /// # Errors
    /// Key, certificate and CA cannot be read or do not match.
    pub fn new(
        cluster: &str,
        certificate_pem: &str,
        key_pem: &str,
        ca_pem: &str,
        policy: Arc<dyn PeerPolicy>,
    ) -> Result<Self, TlsError> {
        let tls = acceptor(cluster, certificate_pem, key_pem, ca_pem, &policy)?;
        Ok(Self {
            tls: RwLock::new(tls),
            trusted: watch::Sender::new(ca_pem.into()),
            cluster: cluster.to_owned(),
            policy,
            limits: ConnectionSets::default(),
        })
    }

    /// Sets the maximum number of connections. At the limit the oldest connection without an
    /// identity is closed.
    #[must_use]
    pub fn with_connections(mut self, most: usize) -> Self {
        self.limits.connections = most;
        self
    }

    /// Replaces the certificate for new connections; open ones keep the old one.
    ///
    /// # Errors
    /// Key and certificate cannot be read or do not match; the old one stays.
    pub fn replace_certificate(
        &self,
        certificate_pem: &str,
        key_pem: &str,
    ) -> Result<(), TlsError> {
        let ca_pem = Arc::clone(&self.trusted.borrow());
        self.replace_identity(certificate_pem, key_pem, &ca_pem)
    }

    /// Replaces the certificate and the trusted CAs for new connections. An open connection of a
    /// caller whose CA is no longer trusted ends after a minute.
    ///
    /// # Errors
    /// Key, certificate and CAs cannot be read or do not match; the old ones stay.
    pub fn replace_identity(
        &self,
        certificate_pem: &str,
        key_pem: &str,
        ca_pem: &str,
    ) -> Result<(), TlsError> {
        let tls = acceptor(
            &self.cluster,
            certificate_pem,
            key_pem,
            ca_pem,
            &self.policy,
        )?;
        *self.tls.write().unwrap_or_else(PoisonError::into_inner) = tls;
        self.trusted.send_if_modified(|trusted| {
            let is_other = **trusted != *ca_pem;
            if is_other {
                *trusted = ca_pem.into();
            }
            is_other
        });
        Ok(())
    }

    fn acceptor(&self) -> TlsAcceptor {
        let tls = self.tls.read().unwrap_or_else(PoisonError::into_inner);
        tls.clone()
    }

    /// Serves until `stop` resolves. Then it accepts no more calls and gives the open ones a few
    /// seconds to finish.
    pub async fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        routes: Routes,
        stop: impl Future<Output = ()>,
    ) {
        let routes = routes.prepare();
        let (order, stopping) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut stop = pin!(stop);
        loop {
            tokio::select! {
                () = stop.as_mut() => break,
                Some(_) = connections.join_next(), if !connections.is_empty() => {}
                accepted = listener.accept(), if connections.len() < self.limits.connections => match accepted {
                    Ok((stream, address)) => {
                        // Small messages both ways: waiting to fill a packet only costs time.
                        let _ = stream.set_nodelay(true);
                        let place = self.limits.enter(address);
                        let server = Arc::clone(&self);
                        connections.spawn(server.connection(stream, address, place, routes.clone(), stopping.clone()));
                        // Before the limit is reached, so that the next caller finds a descriptor.
                        if connections.len() >= self.limits.connections && !self.limits.make_room() {
                            tracing::warn!(
                                connections = connections.len(),
                                "no further connection is accepted until one ends: all belong to minions and operators"
                            );
                        }
                    }
                    Err(error) => {
                        // Out of descriptors, or a caller that has disconnected: the next accept
                        // may succeed.
                        tracing::warn!(%error, "cannot accept a connection");
                        self.limits.make_room();
                        tokio::time::sleep(PAUSE).await;
                    }
                }
            }
        }
        drop(listener);
        let _ = order.send(true);
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            connections.shutdown().await;
        }
    }

    /// Serves one connection over any byte stream until it ends, its certificate expires, a newer
    /// connection takes its place, or the policy no longer admits the caller.
    async fn connection<S>(
        self: Arc<Self>,
        stream: S,
        address: SocketAddr,
        mut place: ConnectionPlace,
        routes: Routes,
        mut stopping: watch::Receiver<bool>,
    ) where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        // Subscribed before the handshake, so that no change between handshake and first check is
        // missed.
        let mut changes = self.policy.changes();
        let mut trusted = self.trusted.subscribe();
        let handshake = tokio::time::timeout(HANDSHAKE_TIMEOUT, self.acceptor().accept(stream));
        let handshake = tokio::select! {
            handshake = handshake => handshake,
            () = place.taken() => return self.policy.handshake_failed(address, REPLACED),
        };
        let stream = match handshake {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                return self.policy.handshake_failed(address, &chain(&error));
            }
            Err(_) => {
                return self
                    .policy
                    .handshake_failed(address, "no handshake in time");
            }
        };
        let presented = stream.get_ref().1.peer_certificates();
        let certificate = presented.and_then(<[_]>::first).cloned();
        let caller = match &certificate {
            None => None,
            Some(der) => match Caller::from_der(der) {
                Ok(caller) => Some(caller),
                Err(error) => {
                    return self.policy.handshake_failed(address, &chain(&error));
                }
            },
        };
        let peer = Peer {
            caller,
            role: None,
            address,
        };
        // The new place first, so that the connection is counted at each moment.
        place = self.limits.admit(&peer);
        let service = AuthorisedRoutes {
            peer: peer.clone(),
            policy: Arc::clone(&self.policy),
            routes,
            in_flight: Arc::clone(&self.limits.in_flight),
        };
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE_INTERVAL)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .max_concurrent_streams(streams(&peer));
        if let Some(window) = window(&peer) {
            builder
                .initial_stream_window_size(window)
                .initial_connection_window_size(window);
        }
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let mut end = pin!(tokio::time::sleep(time_left(&peer)));
        let (mut is_draining, mut is_distrusted) = (false, false);
        loop {
            tokio::select! {
                result = connection.as_mut() => {
                    if let Err(error) = result {
                        tracing::debug!(peer = peer.name(), error = chain(&error), "connection ended");
                    }
                    return;
                }
                Ok(()) = changes.changed() => {
                    let admitted = peer.caller.as_ref().map_or(Ok(()), |caller| self.policy.admit(caller));
                    if let Err(reason) = admitted {
                        tracing::info!(peer = peer.name(), %reason, "connection cut");
                        return;
                    }
                }
                Ok(()) = trusted.changed(), if !is_distrusted => {
                    let cas = Arc::clone(&trusted.borrow_and_update());
                    if certificate.as_ref().is_some_and(|own| !is_trusted(own, &cas)) {
                        is_distrusted = true;
                        end.as_mut().reset(tokio::time::Instant::now() + DISTRUSTED);
                    }
                }
                () = place.taken() => {
                    tracing::info!(peer = peer.name(), "connection cut: a newer one took its place");
                    return;
                }
                () = end.as_mut() => {
                    let is_checked = peer.caller.is_some() && !is_distrusted;
                    let left = if is_checked { time_left(&peer) } else { Duration::ZERO };
                    if left.is_zero() {
                        tracing::info!(peer = peer.name(), "connection cut: its time limit has passed");
                        return;
                    }
                    end.as_mut().reset(tokio::time::Instant::now() + left);
                }
                _ = stopping.wait_for(|stop| *stop), if !is_draining => {
                    is_draining = true;
                    connection.as_mut().graceful_shutdown();
                }
            }
        }
    }
}

/// The time until a connection must be checked again: the limit of a caller without identity, or
/// the remaining validity of the certificate.
fn time_left(peer: &Peer) -> Duration {
    let Some(caller) = &peer.caller else {
        return STRANGER_TIME;
    };
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let end = u64::try_from(caller.not_after).unwrap_or(0);
    // One second of grace: validity ends after its last second.
    Duration::from_secs((end + 1).saturating_sub(now).min(EXPIRY_CHECK))
}

/// Returns whether one of these CAs (PEM) has signed a certificate.
fn is_trusted(certificate: &[u8], cas_pem: &str) -> bool {
    let cas = pki::certificates(cas_pem);
    cas.is_ok_and(|cas| pki::issuer_among(certificate, &cas).is_some())
}

/// The TLS of a server with this certificate, which trusts callers of these CAs.
fn acceptor(
    cluster: &str,
    certificate_pem: &str,
    key_pem: &str,
    ca_pem: &str,
    policy: &Arc<dyn PeerPolicy>,
) -> Result<TlsAcceptor, TlsError> {
    let provider = provider();
    let cas = pki::certificates(ca_pem)?;
    let mut roots = RootCertStore::empty();
    for ca in &cas {
        roots.add(ca.clone())?;
    }
    let authority =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider))
            .allow_unauthenticated()
            .build()?;
    let verifier = CallerVerifier {
        authority,
        cluster: cluster.to_owned(),
        policy: Arc::clone(policy),
    };
    let mut chain: Vec<CertificateDer<'static>> = pki::certificates(certificate_pem)?;
    for ca in cas {
        if !chain.contains(&ca) {
            chain.push(ca);
        }
    }
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(verifier))
        .with_single_cert(chain, pki::private_key(key_pem)?)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}
