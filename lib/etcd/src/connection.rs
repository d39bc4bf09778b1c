//! One HTTP/2 connection to one member: over TLS, or through a socket of this host.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::uri::{Authority, Scheme};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tonic::Status;
use tonic::body::Body;

use crate::error::NoAnswer;

/// Timeout of a connection with its handshakes.
const CONNECT: Duration = Duration::from_secs(2);
/// Silence after which a ping is sent, and time for its answer.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// The transport to the addresses of a client.
pub(crate) enum AddressPath {
    /// TLS; the addresses are `https://HOST:PORT`.
    Tls(Arc<ClientConfig>),
    /// Sockets of this host; the addresses are paths.
    Socket,
}

/// A connection; clones share it.
#[derive(Clone)]
pub(crate) struct Connection {
    sender: SendRequest<Body>,
    scheme: Scheme,
    authority: Authority,
}

impl Connection {
    /// Connects to an address.
    pub(crate) async fn open(address: &str, way: &AddressPath) -> Result<Self, NoAnswer> {
        let opened = async {
            match way {
                AddressPath::Tls(config) => Self::open_tls(address, Arc::clone(config)).await,
                AddressPath::Socket => {
                    let stream = UnixStream::connect(address).await;
                    let authority = Authority::from_static("localhost");
                    let stream = stream.map_err(NoAnswer::Connect)?;
                    Self::begin(stream, Scheme::HTTP, authority).await
                }
            }
        };
        let limited = tokio::time::timeout(CONNECT, opened).await;
        limited.unwrap_or(Err(NoAnswer::ConnectTimeout(CONNECT.as_secs())))
    }

    async fn open_tls(url: &str, config: Arc<ClientConfig>) -> Result<Self, NoAnswer> {
        let url: Uri = url.parse().map_err(|_| NoAnswer::Address)?;
        let authority = url.authority().cloned().ok_or(NoAnswer::Address)?;
        if url.scheme() != Some(&Scheme::HTTPS) || authority.port().is_none() {
            return Err(NoAnswer::Address);
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(|_| NoAnswer::Address)?;
        let stream = TcpStream::connect(authority.as_str())
            .await
            .map_err(NoAnswer::Connect)?;
        stream.set_nodelay(true).map_err(NoAnswer::Connect)?;
        let stream = TlsConnector::from(config)
            .connect(name, stream)
            .await
            .map_err(NoAnswer::Tls)?;
        Self::begin(stream, Scheme::HTTPS, authority).await
    }

    async fn begin(
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        scheme: Scheme,
        authority: Authority,
    ) -> Result<Self, NoAnswer> {
        let (sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(NoAnswer::Http2)?;
        // Ends with the last clone of the sender; a failure is reported by the calls.
        tokio::spawn(connection);
        Ok(Self {
            sender,
            scheme,
            authority,
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

impl tower::Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Status>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        // A closed sender is detected by the call itself.
        let _ = self.sender.poll_ready(context);
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let mut parts = std::mem::take(request.uri_mut()).into_parts();
        parts.scheme = Some(self.scheme.clone());
        parts.authority = Some(self.authority.clone());
        match Uri::from_parts(parts) {
            Ok(uri) => *request.uri_mut() = uri,
            Err(error) => {
                return Box::pin(std::future::ready(Err(Status::internal(error.to_string()))));
            }
        }
        let answer = self.sender.send_request(request);
        Box::pin(async move {
            answer
                .await
                .map_err(|error| Status::unavailable(format!("the connection ended: {error}")))
        })
    }
}
