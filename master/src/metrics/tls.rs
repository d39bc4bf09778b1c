//! The port for Prometheus servers of other hosts: HTTPS with a certificate of the site's CA, for
//! the declared networks only (docs/decisions/0085).
//!
//! A state writes certificate and key, and renews them; the files are read again regularly, and new
//! connections use the new ones. A port that cannot be opened stops nothing else of the master: the
//! reason is logged, and the port is tried again.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use halite_core::config::PrometheusPort;
use halite_errors::chain;
use halite_proto::pki;
use halite_proto::pki::PkiError;
use halite_proto::transport::HANDSHAKE_TIMEOUT;
use rustls::crypto::ring;
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{interval, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::Exposition;
use super::http::{CONNECTIONS, PAUSE, connection};

/// The interval at which the files are read again, and after which a port that could not be opened
/// is tried again.
const AGAIN: Duration = Duration::from_secs(30);
/// The most addresses outside the declared networks whose attempts are logged.
const LOGGED: usize = 16;

/// The reason why the port cannot be served.
#[derive(Debug, thiserror::Error)]
pub(super) enum PortError {
    /// A file.
    #[error("cannot read {path}; `ctl highstate` for this host makes it")]
    Read {
        /// Its path.
        path: PathBuf,
        /// The reason of the operating system.
        source: io::Error,
    },
    /// The content of a file.
    #[error(
        "cannot use the certificates for the metrics; `ctl highstate` for this host makes them"
    )]
    Pki(#[from] PkiError),
    /// Certificate and key.
    #[error("cannot use the TLS settings of the metrics")]
    Tls(#[from] rustls::Error),
    /// The authorities of clients.
    #[error("cannot verify clients of the metrics with `master.metrics.clientCA`")]
    Verifier(#[from] VerifierBuilderError),
    /// The port.
    #[error("cannot listen on {address} for Prometheus")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason of the operating system.
        source: io::Error,
    },
}

/// The contents of the files.
#[derive(PartialEq, Eq)]
struct Files {
    certificate: String,
    key: String,
    client_ca: Option<String>,
}

async fn read(path: &Path) -> Result<String, PortError> {
    let content = tokio::fs::read_to_string(path).await;
    content.map_err(|source| PortError::Read {
        path: path.to_owned(),
        source,
    })
}

impl Files {
    async fn read(port: &PrometheusPort) -> Result<Self, PortError> {
        Ok(Self {
            certificate: read(&port.certificate).await?,
            key: read(&port.key).await?,
            client_ca: match &port.client_ca {
                Some(path) => Some(read(path).await?),
                None => None,
            },
        })
    }

    fn acceptor(&self) -> Result<TlsAcceptor, PortError> {
        let provider = Arc::new(ring::default_provider());
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()?;
        let builder = match &self.client_ca {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let mut roots = RootCertStore::empty();
                for ca in pki::certificates(pem)? {
                    roots.add(ca)?;
                }
                let roots = Arc::new(roots);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
                builder.with_client_cert_verifier(verifier.build()?)
            }
        };
        let chain = pki::certificates(&self.certificate)?;
        let mut config = builder.with_single_cert(chain, pki::private_key(&self.key)?)?;
        // A resumed session would admit a client without verifying its certificate again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

/// Serves the metrics over HTTPS; never returns.
pub async fn serve_tls(port: &PrometheusPort, exposition: &Arc<Exposition>) {
    let mut failures = Failures::default();
    let (listener, files, acceptor) = loop {
        match begin(port).await {
            Ok(begun) => break begun,
            Err(error) => failures.log(&error),
        }
        sleep(AGAIN).await;
    };
    tracing::info!(listen = %port.listen, "Prometheus may scrape");
    let server = PrometheusServer {
        port,
        exposition,
        files,
        acceptor,
        strangers: BTreeSet::new(),
    };
    server.serve(listener, failures).await;
}

/// Logs each reason once until another one follows.
#[derive(Default)]
struct Failures {
    last: String,
}

impl Failures {
    fn log(&mut self, error: &PortError) {
        let reason = chain(error);
        if reason != self.last {
            tracing::error!(
                reason,
                "cannot prepare the metrics for Prometheus; trying again"
            );
            self.last = reason;
        }
    }
}

async fn begin(port: &PrometheusPort) -> Result<(TcpListener, Files, TlsAcceptor), PortError> {
    let files = Files::read(port).await?;
    let acceptor = files.acceptor()?;
    let listener = TcpListener::bind(port.listen).await;
    let listener = listener.map_err(|source| PortError::Listen {
        address: port.listen,
        source,
    })?;
    Ok((listener, files, acceptor))
}

/// An open port.
struct PrometheusServer<'a> {
    port: &'a PrometheusPort,
    exposition: &'a Arc<Exposition>,
    files: Files,
    acceptor: TlsAcceptor,
    /// Addresses outside the declared networks that have tried to connect.
    strangers: BTreeSet<IpAddr>,
}

impl PrometheusServer<'_> {
    /// Serves; never returns. While changed files cannot be used, the previous ones are.
    async fn serve(mut self, listener: TcpListener, mut failures: Failures) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let mut checks = interval(AGAIN);
        loop {
            tokio::select! {
                _ = checks.tick() => match self.reload().await {
                    Ok(()) => failures.last.clear(),
                    Err(error) => failures.log(&error),
                },
                accepted = listener.accept() => match accepted {
                    Ok((stream, from)) => {
                        if !self.is_declared(from.ip()) {
                            continue;
                        }
                        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
                            continue;
                        };
                        let served = secured(stream, self.acceptor.clone(), Arc::clone(self.exposition));
                        tokio::spawn(async move {
                            served.await;
                            drop(place);
                        });
                    }
                    Err(error) => {
                        tracing::debug!(%error, "cannot accept a connection to the metrics");
                        sleep(PAUSE).await;
                    }
                },
            }
        }
    }

    /// Uses the files if they have changed.
    async fn reload(&mut self) -> Result<(), PortError> {
        let files = Files::read(self.port).await?;
        if files != self.files {
            self.acceptor = files.acceptor()?;
            self.files = files;
            tracing::info!("the certificate of the metrics was replaced");
        }
        Ok(())
    }

    /// Returns whether an address is in a declared network; logs the first attempt of any other.
    fn is_declared(&mut self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        let declared = &self.port.from;
        if declared.iter().any(|network| network.contains(&address)) {
            return true;
        }
        if self.strangers.len() < LOGGED && self.strangers.insert(address) {
            tracing::warn!(%address, "refused to serve metrics: no network of `master.metrics.from` has this address");
        }
        false
    }
}

async fn secured(stream: TcpStream, acceptor: TlsAcceptor, exposition: Arc<Exposition>) {
    match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => connection(stream, exposition).await,
        Ok(Err(error)) => {
            tracing::debug!(error = chain(&error), "a handshake for the metrics failed");
        }
        Err(_) => tracing::debug!("no handshake for the metrics in time"),
    }
}

#[cfg(test)]
#[path = "tls_tests.rs"]
mod tests;
