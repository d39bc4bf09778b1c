//! The client: one verified connection to one master, shared by all clones of a [`Channel`].

use std::future::Future;
use std::io;
use std::io::ErrorKind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use halite_errors::chain;
use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::client::Resumption;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_rustls::TlsConnector;
use tonic::Status;
use tonic::body::Body;

use super::error::{ConnectError, HandshakeError};
use super::last_word::LastWord;
use super::peer::Caller;
use super::tls::{MasterVerifier, Trust, provider};
use super::{HANDSHAKE_TIMEOUT, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT};
use crate::identity::Identity;
use crate::pki;
use crate::pki::Inspected;

/// The time that a failed call waits for the reason why its connection ended.
const WHY: Duration = Duration::from_secs(1);
/// The time in which one of several hosts must accept the connection. The kernel accepts at once,
/// however busy the master is; the handshake has its own timeout.
const AMONG: Duration = Duration::from_secs(3);
/// The most bytes of headers of a response. The text of an error is one of them; hyper's own limit
/// of 16 KiB turns a long one into a transport error.
const HEADERS: u32 = 64 * 1024;

/// A certificate and its key, which a client presents. `Debug` does not print the key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate, PEM.
    pub certificate_pem: String,
    /// The private key, PEM: a secret.
    pub key_pem: String,
}

impl std::fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientIdentity")
            .field("certificate_pem", &self.certificate_pem)
            .finish_non_exhaustive()
    }
}

/// One connection to a master. Clones share it; it is not re-established after it ends.
#[derive(Clone)]
pub struct Channel {
    sender: SendRequest<Body>,
    authority: Authority,
    /// The identity of the master or standby.
    server: Identity,
    /// The CAs that it has presented, PEM.
    authorities: Arc<str>,
    /// The reason why the connection ended; `None` while it is open.
    ended: watch::Receiver<Option<Arc<str>>>,
}

impl Channel {
    /// The identity of the server: a master, or after [`connect_any`] the minion of a standby.
    #[must_use]
    pub fn server(&self) -> &Identity {
        &self.server
    }

    /// The CAs that the server trusts, PEM, the one that signs first: it presents them with its
    /// certificate.
    #[must_use]
    pub fn authorities(&self) -> &str {
        &self.authorities
    }

    /// Waits until the connection ends, and returns the reason.
    pub async fn closed(&self) -> String {
        let mut ended = self.ended.clone();
        match ended.wait_for(Option::is_some).await {
            Ok(reason) => reason.as_deref().unwrap_or_default().to_owned(),
            Err(_) => "the connection ended".to_owned(),
        }
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel")
            .field("server", &self.server)
            .finish_non_exhaustive()
    }
}

impl tower::Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        // The call itself detects a closed sender, and then knows the reason.
        let _ = self.sender.poll_ready(context);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(Scheme::HTTPS);
        parts.authority = Some(self.authority.clone());
        match Uri::from_parts(parts) {
            Ok(uri) => *request.uri_mut() = uri,
            Err(error) => {
                return Box::pin(std::future::ready(Err(Status::internal(error.to_string()))));
            }
        }
        let answer = self.sender.send_request(request);
        let channel = self.clone();
        Box::pin(async move {
            let error = match answer.await {
                Ok(response) => return Ok(response),
                Err(error) => error,
            };
            // The call often learns of the end before the reason is known: give it a moment.
            let reason = tokio::time::timeout(WHY, channel.closed()).await;
            Err(Status::unavailable(
                reason.unwrap_or_else(|_| error.to_string()),
            ))
        })
    }
}

/// Connects to a master at `endpoint` (`HOST:PORT`). It trusts the CAs in `ca_pem` and presents
/// `identity` if there is one; the master must then be of the same cluster.
///
/// # Errors
/// No server answers, or it is not such a master. If the master refuses the client, only the first
/// call fails, because TLS 1.3 ends the client's handshake before the server has verified its
/// certificate.
pub async fn connect(
    endpoint: &str,
    ca_pem: &str,
    identity: Option<&ClientIdentity>,
) -> Result<Channel, ConnectError> {
    let stream = dial(endpoint, HANDSHAKE_TIMEOUT).await?;
    connect_over(stream, endpoint, ca_pem, identity).await
}

/// Like [`connect`], to one of several masters: a silent host delays the others only briefly.
///
/// # Errors
/// Like [`connect`].
pub async fn connect_among(
    endpoint: &str,
    ca_pem: &str,
    identity: Option<&ClientIdentity>,
) -> Result<Channel, ConnectError> {
    let stream = dial(endpoint, AMONG).await?;
    connect_over(stream, endpoint, ca_pem, identity).await
}

/// Like [`connect`], to a master or a standby; [`Channel::server`] tells which one answered.
///
/// # Errors
/// Like [`connect`].
pub async fn connect_any(
    endpoint: &str,
    ca_pem: &str,
    identity: &ClientIdentity,
) -> Result<Channel, ConnectError> {
    let stream = dial(endpoint, AMONG).await?;
    let trust = Trust::Roots(roots(ca_pem)?);
    let (channel, _) = open(stream, endpoint, trust, Some(identity), true).await?;
    Ok(channel)
}

/// Like [`connect`], over an existing byte stream.
///
/// # Errors
/// Like [`connect`].
pub async fn connect_over<S>(
    stream: S,
    endpoint: &str,
    ca_pem: &str,
    identity: Option<&ClientIdentity>,
) -> Result<Channel, ConnectError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let trust = Trust::Roots(roots(ca_pem)?);
    Ok(open(stream, endpoint, trust, identity, false).await?.0)
}

fn roots(ca_pem: &str) -> Result<RootCertStore, ConnectError> {
    let mut roots = RootCertStore::empty();
    for ca in pki::certificates(ca_pem)? {
        roots.add(ca).map_err(ConnectError::Authority)?;
    }
    Ok(roots)
}

/// A first connection, made only with the hash in a token.
#[derive(Debug, Clone)]
pub struct Pinned {
    /// The connection; only enrolment may be called through it.
    pub channel: Channel,
    /// The CA that has the hash, PEM; the client may trust it from now on.
    pub ca_pem: String,
}

/// Connects without an identity to a master at `endpoint` whose chain contains a CA with this
/// SHA-256 (hex) of its DER.
///
/// # Errors
/// No server answers, or it is not a master of that CA.
pub async fn connect_pinned(endpoint: &str, ca_sha256: &str) -> Result<Pinned, ConnectError> {
    let stream = dial(endpoint, HANDSHAKE_TIMEOUT).await?;
    pinned_over(stream, endpoint, ca_sha256).await
}

/// Like [`connect_pinned`], over an existing byte stream.
///
/// # Errors
/// Like [`connect_pinned`].
pub async fn pinned_over<S>(
    stream: S,
    endpoint: &str,
    ca_sha256: &str,
) -> Result<Pinned, ConnectError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let pin = ca_sha256.to_ascii_lowercase();
    let trust = Trust::Pinned(pin.clone());
    let (channel, certificates) = open(stream, endpoint, trust, None, false).await?;
    let ca = certificates.iter().find(|der| pki::sha256_hex(der) == pin);
    let ca = ca.ok_or_else(|| untrusted(endpoint, HandshakeError::NoPinnedCa))?;
    Ok(Pinned {
        channel,
        ca_pem: pki::certificate_pem(ca),
    })
}

fn untrusted(endpoint: &str, reason: impl Into<HandshakeError>) -> ConnectError {
    ConnectError::Untrusted {
        endpoint: endpoint.to_owned(),
        source: reason.into(),
    }
}

async fn dial(endpoint: &str, limit: Duration) -> Result<TcpStream, ConnectError> {
    let unreachable = |source: io::Error| ConnectError::Unreachable {
        endpoint: endpoint.to_owned(),
        source,
    };
    let stream = tokio::time::timeout(limit, TcpStream::connect(endpoint))
        .await
        .map_err(|_| unreachable(io::Error::new(ErrorKind::TimedOut, "no answer in time")))?
        .map_err(unreachable)?;
    stream.set_nodelay(true).map_err(unreachable)?;
    Ok(stream)
}

async fn open<S>(
    stream: S,
    endpoint: &str,
    trust: Trust,
    identity: Option<&ClientIdentity>,
    standbys: bool,
) -> Result<(Channel, Vec<CertificateDer<'static>>), ConnectError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let authority: Authority = endpoint
        .parse()
        .map_err(|_| ConnectError::Endpoint(endpoint.to_owned()))?;
    if authority.port_u16().is_none() {
        return Err(ConnectError::Endpoint(endpoint.to_owned()));
    }
    let host = authority
        .host()
        .trim_start_matches('[')
        .trim_end_matches(']')
        .to_owned();
    let name =
        ServerName::try_from(host).map_err(|_| ConnectError::Endpoint(endpoint.to_owned()))?;
    let config = config(endpoint, trust, identity, standbys)?;
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, LastWord::new(stream));
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake)
        .await
        .map_err(|_| untrusted(endpoint, HandshakeError::Timeout))?
        .map_err(|error| untrusted(endpoint, error))?;
    let certificates: Vec<CertificateDer<'static>> = stream
        .get_ref()
        .1
        .peer_certificates()
        .unwrap_or_default()
        .iter()
        .map(|c| c.clone().into_owned())
        .collect();
    let leaf = certificates
        .first()
        .ok_or_else(|| untrusted(endpoint, HandshakeError::NoCertificate))?;
    let server = Caller::from_der(leaf)?.identity;
    let authorities = certificates.iter().filter(|der| is_root(der));
    let authorities: String = authorities.map(pki::certificate_pem).collect();

    let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .keep_alive_while_idle(true)
        .max_header_list_size(HEADERS)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| untrusted(endpoint, error))?;
    let (end, ended) = watch::channel(None);
    let shown = endpoint.to_owned();
    tokio::spawn(async move {
        let why = match connection.await {
            Ok(()) => format!("the connection to {shown} ended"),
            Err(error) => format!(
                "the connection to {shown} ended: {}",
                chain(&HandshakeError::from(error))
            ),
        };
        let _ = end.send(Some(why.into()));
    });
    Ok((
        Channel {
            sender,
            authority,
            server,
            authorities: authorities.into(),
            ended,
        },
        certificates,
    ))
}

/// Returns whether a certificate is that of a CA, signed by itself.
fn is_root(der: &CertificateDer<'static>) -> bool {
    let is_ca = Inspected::from_der(der).is_ok_and(|found| found.is_ca);
    is_ca && pki::issuer_among(der, std::slice::from_ref(der)).is_some()
}

fn config(
    endpoint: &str,
    trust: Trust,
    identity: Option<&ClientIdentity>,
    standbys: bool,
) -> Result<ClientConfig, ConnectError> {
    let tls = |error: rustls::Error| untrusted(endpoint, HandshakeError::Settings(error));
    let provider = provider();
    let cluster = match identity {
        Some(own) => Some(
            Inspected::from_pem(&own.certificate_pem)?
                .identity()?
                .cluster()
                .to_owned(),
        ),
        None => None,
    };
    let verifier = MasterVerifier {
        trust,
        cluster,
        standbys,
        provider: Arc::clone(&provider),
    };
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(tls)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(own) => builder
            .with_client_auth_cert(
                pki::certificates(&own.certificate_pem)?,
                pki::private_key(&own.key_pem)?,
            )
            .map_err(tls)?,
    };
    config.resumption = Resumption::disabled();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}
