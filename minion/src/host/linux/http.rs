//! One GET, for `http.wait_for_successful_query` and health checks.
//!
//! Names are looked up only in `/etc/hosts`: the minion's binary is static and libc's resolver
//! would load the host's modules.

use std::io;
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

use crate::host::effect::Trust;
use crate::host::{HostError, HostResult};

const DEADLINE: Duration = Duration::from_secs(10);
const LARGEST: usize = 1 << 20;
/// The CAs that the host trusts, which Debian and Red Hat collect in one file.
const HOST_CAS: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
];

/// Status and body; `None` without an answer (no connection, no TLS, no HTTP in time).
///
/// # Errors
/// The URL or the CAs cannot be used.
pub async fn get(url: &str, trust: &Trust) -> HostResult<Option<(u16, String)>> {
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
        Some(config(trust).map_err(|e| HostError::failed(url, e))?)
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

/// The reason why a server has no certificate of a CA for a name.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotCertified {
    /// No connection, or no TLS.
    #[error("no answer")]
    Silent(#[source] io::Error),
    /// Another certificate.
    #[error("its certificate is not accepted")]
    Certificate(#[source] io::Error),
}

/// Connects to a server, and compares its certificate with a CA (PEM) and a name.
///
/// # Errors
/// Nothing answers, or a server with another certificate does.
pub(crate) async fn certified(
    server: SocketAddr,
    name: &str,
    ca: &str,
) -> Result<(), NotCertified> {
    let invalid = |error: CaError| NotCertified::Silent(io::Error::other(error));
    let config = config(&Trust::Ca(ca.to_owned())).map_err(invalid)?;
    let name = ServerName::try_from(name.to_owned());
    let name = name.map_err(|error| NotCertified::Silent(io::Error::other(error)))?;
    let stream = TcpStream::connect(server).await;
    let stream = stream.map_err(NotCertified::Silent)?;
    let connected = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await;
    connected.map(drop).map_err(|error| {
        let cause = error.get_ref().and_then(|error| error.downcast_ref());
        match cause {
            Some(rustls::Error::InvalidCertificate(_)) => NotCertified::Certificate(error),
            _ => NotCertified::Silent(error),
        }
    })
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
    #[error("there is no CA's certificate to verify with")]
    Empty,
    #[error(
        "this host has no trusted CAs ({0} cannot be read); install ca-certificates, give `ca`, or `verify_ssl: False`"
    )]
    NoneOnHost(String),
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

fn config(trust: &Trust) -> Result<ClientConfig, CaError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let roots = match trust {
        Trust::Unverified => {
            let verifier = Arc::new(Unchecked(provider));
            return Ok(builder
                .dangerous()
                .with_custom_certificate_verifier(verifier)
                .with_no_client_auth());
        }
        Trust::Ca(pem) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                roots.add(certificate.map_err(CaError::Read)?)?;
            }
            roots
        }
        Trust::Host => host_cas(HOST_CAS)?,
    };
    if roots.is_empty() {
        return Err(CaError::Empty);
    }
    Ok(builder.with_root_certificates(roots).with_no_client_auth())
}

/// The CAs in the first existing file; CAs that rustls cannot use are left out.
fn host_cas(files: &[&str]) -> Result<RootCertStore, CaError> {
    let pem = files
        .iter()
        .find_map(|file| std::fs::read(file).ok())
        .ok_or_else(|| CaError::NoneOnHost(files.join(" and ")))?;
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(CertificateDer::pem_slice_iter(&pem).filter_map(Result::ok));
    Ok(roots)
}

/// Accepts any certificate, for states with `verify_ssl: False`.
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
        let answer = get(
            &format!("http://127.0.0.1:{port}/readyz?verbose"),
            &Trust::Host,
        )
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
            get(&format!("https://127.0.0.1:{port}/"), &Trust::Unverified)
                .await
                .unwrap(),
            None
        );
        assert!(get("ftp://a/", &Trust::Host).await.is_err());
        let ca = Trust::Ca("no pem".to_owned());
        assert!(get("https://127.0.0.1/", &ca).await.is_err());
    }

    #[test]
    fn a_host_without_cas_is_an_error_with_the_remedy() {
        let error = host_cas(&["/no/such/file"]).unwrap_err().to_string();
        assert!(
            error.contains("/no/such/file") && error.contains("verify_ssl: False"),
            "{error}"
        );
    }

    /// A server whose certificate only its own CA signed, for some connections.
    async fn https_server() -> (u16, String) {
        let signed = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = signed.cert.der().clone();
        let pem = signed.cert.pem();
        let key =
            rustls_pki_types::PrivateKeyDer::try_from(signed.signing_key.serialize_der()).unwrap();
        let config = rustls::ServerConfig::builder_with_provider(Arc::new(
            rustls::crypto::ring::default_provider(),
        ))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    continue;
                };
                let mut request = vec![0; 1024];
                let _ = stream.read(&mut request).await;
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .await;
            }
        });
        (port, pem)
    }

    #[tokio::test]
    async fn a_server_of_another_ca_is_told_from_none() {
        let (port, own) = https_server().await;
        let (_, other) = https_server().await;
        let server = SocketAddr::from(([127, 0, 0, 1], port));
        certified(server, "127.0.0.1", &own).await.unwrap();
        for (name, ca) in [("127.0.0.1", &other), ("api.prod.internal", &own)] {
            let error = certified(server, name, ca).await.unwrap_err();
            assert!(matches!(error, NotCertified::Certificate(_)), "{error:?}");
        }
        let closed = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nothing = closed.local_addr().unwrap();
        drop(closed);
        let error = certified(nothing, "127.0.0.1", &own).await.unwrap_err();
        assert!(matches!(error, NotCertified::Silent(_)), "{error:?}");
    }

    #[tokio::test]
    async fn a_certificate_is_verified_unless_the_state_says_otherwise() {
        let (port, own) = https_server().await;
        let (_, other) = https_server().await;
        let url = format!("https://127.0.0.1:{port}/");
        let answer = Some((200, "ok".to_owned()));
        assert_eq!(get(&url, &Trust::Unverified).await.unwrap(), answer);
        assert_eq!(get(&url, &Trust::Ca(own)).await.unwrap(), answer);
        assert_eq!(get(&url, &Trust::Ca(other)).await.unwrap(), None);
        // Not trusted, or no CAs at all: never an answer.
        assert_ne!(get(&url, &Trust::Host).await.ok().flatten(), answer);
    }
}
