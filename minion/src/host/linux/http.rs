//! One GET, for `http.wait_for_successful_query` and health checks.
//!
//! Names are looked up in `/etc/hosts` only: the minion's binary is static and libc's resolver
//! would load the host's modules.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::host::{HostError, HostResult};

const DEADLINE: Duration = Duration::from_secs(10);
const LARGEST: usize = 1 << 20;

/// Status and body; `None` when nothing answers (no connection, no TLS, no HTTP in time).
///
/// # Errors
/// The URL or the CA cannot be used.
pub async fn get(url: &str, ca: Option<&str>) -> HostResult<Option<(u16, String)>> {
    let bad = |what: &str| HostError::refused(format!("{url}: {what}"));
    let uri: http::Uri = url
        .parse()
        .map_err(|e: http::uri::InvalidUri| HostError::failed(format!("{url}: not a URL"), e))?;
    let tls = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => return Err(bad("neither http nor https")),
    };
    let host = uri
        .host()
        .ok_or_else(|| bad("no host in it"))?
        .trim_matches(['[', ']'])
        .to_owned();
    let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let address =
        address(&host).ok_or_else(|| bad("its host is neither an address nor in /etc/hosts"))?;
    let config = if tls {
        Some(config(ca).map_err(|e| HostError::failed(url, e))?)
    } else {
        None
    };
    let exchange = async {
        let stream = TcpStream::connect(SocketAddr::new(address, port))
            .await
            .ok()?;
        match config {
            None => ask(stream, &uri).await,
            Some(config) => {
                let name = ServerName::try_from(host).ok()?;
                let stream = TlsConnector::from(Arc::new(config))
                    .connect(name, stream)
                    .await
                    .ok()?;
                ask(stream, &uri).await
            }
        }
    };
    Ok(tokio::time::timeout(DEADLINE, exchange)
        .await
        .ok()
        .flatten())
}

async fn ask<S>(stream: S, uri: &http::Uri) -> Option<(u16, String)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .ok()?;
    let driver = tokio::spawn(connection);
    let path = uri
        .path_and_query()
        .map_or("/", http::uri::PathAndQuery::as_str);
    let request = http::Request::get(path)
        .header(http::header::HOST, uri.authority()?.as_str())
        .header(
            http::header::USER_AGENT,
            concat!("halite-minion/", env!("CARGO_PKG_VERSION")),
        )
        .body(Empty::<Bytes>::new())
        .ok()?;
    let response = sender.send_request(request).await.ok()?;
    let status = response.status().as_u16();
    let body = Limited::new(response.into_body(), LARGEST)
        .collect()
        .await
        .ok()?
        .to_bytes();
    driver.abort();
    Some((status, String::from_utf8_lossy(&body).into_owned()))
}

fn address(host: &str) -> Option<IpAddr> {
    if let Ok(address) = host.parse() {
        return Some(address);
    }
    let hosts = std::fs::read_to_string("/etc/hosts").unwrap_or_default();
    lookup(&hosts, host).or_else(|| (host == "localhost").then(|| IpAddr::from([127, 0, 0, 1])))
}

/// The given CA cannot check a server's certificate.
#[derive(Debug, thiserror::Error)]
enum CaError {
    #[error("cannot read the CA")]
    Read(#[source] rustls_pki_types::pem::Error),
    #[error("cannot use the CA")]
    Use(#[from] rustls::Error),
    #[error("the given CA contains no certificate")]
    Empty,
}

/// The first address of a name in a hosts(5) file.
fn lookup(hosts: &str, name: &str) -> Option<IpAddr> {
    hosts.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = words.next()?.parse().ok()?;
        words
            .any(|n| n.eq_ignore_ascii_case(name))
            .then_some(address)
    })
}

fn config(ca: Option<&str>) -> Result<ClientConfig, CaError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let Some(pem) = ca else {
        let verifier = Arc::new(Unchecked(provider));
        return Ok(builder
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth());
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        roots.add(certificate.map_err(CaError::Read)?)?;
    }
    if roots.is_empty() {
        return Err(CaError::Empty);
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// Accepts any certificate: the request only tests for an answer and contains no secret.
#[derive(Debug)]
struct Unchecked(Arc<CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[test]
    fn hosts_files() {
        let hosts =
            "127.0.0.1 localhost\n# 1.1.1.1 api\n10.0.0.1 API.prod.internal api # the VIP\n";
        assert_eq!(lookup(hosts, "api"), Some(IpAddr::from([10, 0, 0, 1])));
        assert_eq!(
            lookup(hosts, "api.PROD.internal"),
            Some(IpAddr::from([10, 0, 0, 1]))
        );
        assert_eq!(lookup(hosts, "vip"), None);
    }

    #[tokio::test]
    async fn a_plain_answer() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; 1024];
            let length = stream.read(&mut request).await.unwrap();
            stream
                .write_all(b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\nwait")
                .await
                .unwrap();
            String::from_utf8_lossy(&request[..length]).into_owned()
        });
        let answer = get(&format!("http://127.0.0.1:{port}/readyz?verbose"), None)
            .await
            .unwrap();
        assert_eq!(answer, Some((503, "wait".to_owned())));
        assert!(
            server
                .await
                .unwrap()
                .starts_with("GET /readyz?verbose HTTP/1.1\r\n")
        );
    }

    #[tokio::test]
    async fn no_listener_is_an_answer_too() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        drop(listener);
        assert_eq!(
            get(&format!("https://127.0.0.1:{port}/"), None)
                .await
                .unwrap(),
            None
        );
        assert!(get("ftp://a/", None).await.is_err());
        assert!(get("https://127.0.0.1/", Some("no pem")).await.is_err());
    }
}
