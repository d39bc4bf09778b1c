//! One request to a sink: HTTP/1.1, with TLS for `https`, without redirects or proxies.

use std::sync::Arc;
use std::time::Duration;

use halite_pillar::notify::SinkForm;
use halite_pillar::sink_target::SinkTarget;
use http::header::{CONTENT_TYPE, HOST, InvalidHeaderName, InvalidHeaderValue, LOCATION};
use http::uri::{InvalidUri, PathAndQuery};
use http::{HeaderName, HeaderValue, Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, InvalidDnsNameError, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::payload::ALERTS;

/// The longest time of a request, from the search for the server's address to its answer.
pub const LIMIT: Duration = Duration::from_secs(10);

/// The reason why a sink has not taken a request. No text contains the path of its address or the
/// value of a header.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The address cannot be used.
    #[error("its address cannot be used; declare one such as https://alerts.example.com:9093")]
    Address,
    /// The header cannot be used.
    #[error("its header cannot be used; write name and secret in ASCII characters")]
    Header,
    /// No connection.
    #[error("cannot connect to {0}")]
    Connect(String, #[source] std::io::Error),
    /// No authority is known.
    #[error("no authority is known for its certificate; declare one as `ca`")]
    Roots,
    /// TLS.
    #[error(
        "cannot speak TLS with {0}; if its certificate is of an authority of the site, declare that one as `ca`"
    )]
    Tls(String, #[source] std::io::Error),
    /// The connection broke.
    #[error("the connection to {0} broke")]
    Http(String, #[source] hyper::Error),
    /// No answer in time.
    #[error("{0} did not answer within {1} s")]
    Late(String, u64),
    /// It redirects.
    #[error("it answers {0} and redirects{1}; declare the address to which it redirects")]
    Redirect(StatusCode, String),
    /// It refuses.
    #[error("it answers {0}{1}")]
    Status(StatusCode, &'static str),
}

impl SendError {
    /// Returns `true` if the sink refuses the content of the request, and may take another one.
    #[must_use]
    pub fn is_about_content(&self) -> bool {
        let of_content = [
            StatusCode::BAD_REQUEST,
            StatusCode::PAYLOAD_TOO_LARGE,
            StatusCode::UNPROCESSABLE_ENTITY,
        ];
        matches!(self, Self::Status(status, _) if of_content.contains(status))
    }
}

impl From<InvalidUri> for SendError {
    fn from(_: InvalidUri) -> Self {
        Self::Address
    }
}

impl From<InvalidDnsNameError> for SendError {
    fn from(_: InvalidDnsNameError) -> Self {
        Self::Address
    }
}

impl From<InvalidHeaderName> for SendError {
    fn from(_: InvalidHeaderName) -> Self {
        Self::Header
    }
}

impl From<InvalidHeaderValue> for SendError {
    fn from(_: InvalidHeaderValue) -> Self {
        Self::Header
    }
}

/// Posts JSON to a sink; returns once it has answered with success.
///
/// # Errors
/// The sink has not taken the request within `limit`.
pub async fn post(target: &SinkTarget, json: String, limit: Duration) -> Result<(), SendError> {
    let uri: Uri = target.url.reveal().parse()?;
    let host = uri.host().ok_or(SendError::Address)?;
    // Without a scheme, the word before a colon is the host: nothing is sent there.
    let is_tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(SendError::Address),
    };
    let port = uri.port_u16().unwrap_or(if is_tls { 443 } else { 80 });
    let server = format!("{host}:{port}");
    let sent = async {
        let request = request(target, &uri, json)?;
        // A literal IPv6 address is in brackets.
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let connected = TcpStream::connect((bare, port)).await;
        let stream = connected.map_err(|error| SendError::Connect(server.clone(), error))?;
        if !is_tls {
            return exchange(stream, request, &server).await;
        }
        let config = Arc::new(trust(target.ca.as_deref()).await?);
        let name = ServerName::try_from(bare.to_owned())?;
        let secured = TlsConnector::from(config).connect(name, stream).await;
        let stream = secured.map_err(|error| SendError::Tls(server.clone(), error))?;
        exchange(stream, request, &server).await
    };
    match tokio::time::timeout(limit, sent).await {
        Ok(answered) => answered,
        Err(_) => Err(SendError::Late(server.clone(), limit.as_secs())),
    }
}

/// The path of the requests: that of the address, or the API of an Alertmanager below it.
fn path(form: SinkForm, uri: &Uri) -> Result<PathAndQuery, SendError> {
    let own = uri.path_and_query().cloned();
    let own = own.unwrap_or_else(|| PathAndQuery::from_static("/"));
    if form != SinkForm::Alertmanager || uri.path().ends_with(ALERTS) {
        return Ok(own);
    }
    let below = format!("{}{ALERTS}", uri.path().trim_end_matches('/'));
    Ok(PathAndQuery::try_from(below)?)
}

fn request(
    target: &SinkTarget,
    uri: &Uri,
    json: String,
) -> Result<Request<Full<Bytes>>, SendError> {
    let authority = uri.authority().ok_or(SendError::Address)?;
    let mut request = Request::new(Full::new(Bytes::from(json)));
    *request.method_mut() = http::Method::POST;
    *request.uri_mut() = Uri::from(path(target.form, uri)?);
    let headers = request.headers_mut();
    headers.insert(HOST, HeaderValue::from_str(authority.as_str())?);
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some((name, secret)) = &target.header {
        let mut value = HeaderValue::from_str(secret.reveal())?;
        value.set_sensitive(true);
        headers.insert(HeaderName::try_from(name.as_str())?, value);
    }
    Ok(request)
}

/// TLS with the declared authorities, or else with those of the host. It is made for each request:
/// requests are rare, and the host's authorities take memory and change.
async fn trust(ca: Option<&str>) -> Result<ClientConfig, SendError> {
    let mut roots = RootCertStore::empty();
    let declared: Vec<CertificateDer<'static>> = match ca {
        Some(pem) => CertificateDer::pem_slice_iter(pem.as_bytes())
            .filter_map(Result::ok)
            .collect(),
        None => {
            let read = tokio::task::spawn_blocking(rustls_native_certs::load_native_certs);
            read.await.map(|found| found.certs).unwrap_or_default()
        }
    };
    roots.add_parsable_certificates(declared);
    if roots.is_empty() {
        return Err(SendError::Roots);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        // Only a provider without any version lacks them.
        .map_err(|_| SendError::Roots)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    request: Request<Full<Bytes>>,
    server: &str,
) -> Result<(), SendError> {
    let broken = |error| SendError::Http(server.to_owned(), error);
    let started = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = started.map_err(broken)?;
    let answer = async {
        let answer = sender.send_request(request).await.map_err(broken)?;
        judge(&answer)
    };
    // The connection works for the answer alone: with it, it is dropped.
    tokio::select! {
        biased;
        answered = answer => answered,
        Err(error) = connection => Err(broken(error)),
    }
}

/// Judges an answer. Its body is not read: it may contain what was sent.
fn judge<T>(answer: &http::Response<T>) -> Result<(), SendError> {
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    if status.is_redirection() {
        let target = answer.headers().get(LOCATION);
        let target: Option<Uri> = target.and_then(|to| to.to_str().ok()?.parse().ok());
        // Without its path, which may be a key.
        let origin = target.and_then(|to| Some(format!("{}://{}", to.scheme_str()?, to.host()?)));
        let to = origin.map_or_else(String::new, |origin| format!(" to {origin}"));
        return Err(SendError::Redirect(status, to));
    }
    let remedy = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "; check the secret of its `header`",
        StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => {
            "; check the path of its address, and its `form`"
        }
        StatusCode::BAD_REQUEST | StatusCode::UNPROCESSABLE_ENTITY => "; check its `form`",
        _ => "; its log says why",
    };
    Err(SendError::Status(status, remedy))
}

#[cfg(test)]
#[path = "client_tests.rs"]
mod tests;
