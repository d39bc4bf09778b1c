//! Real TLS servers on addresses of the loopback network.

#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use halite_errors::chain;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use super::*;
use crate::kubernetes::client::{Access, Identity, KubeApi};

const NAME: &str = "api.test.internal";

/// A CA, and the client that trusts it.
struct Pki {
    ca: CertifiedIssuer<'static, KeyPair>,
}

impl Pki {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Self { ca }
    }

    fn access(&self, port: u16) -> Access {
        let key = KeyPair::generate().unwrap();
        let signed = CertificateParams::new(Vec::new())
            .unwrap()
            .signed_by(&key, &self.ca)
            .unwrap();
        let admin = Identity {
            certificate: signed.pem(),
            key: key.serialize_pem(),
        };
        Access {
            port,
            server_name: NAME.to_owned(),
            ca: self.ca.pem(),
            admin: admin.clone(),
            super_admin: admin,
        }
    }

    fn acceptor(&self) -> TlsAcceptor {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        let signed = params.signed_by(&key, &self.ca).unwrap();
        let config = ServerConfig::builder()
            .with_no_client_auth()
            .with_single_cert(
                vec![signed.der().clone()],
                PrivatePkcs8KeyDer::from(key.serialize_der()).into(),
            )
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A server on one address, which stops when the value is dropped.
struct Server {
    asked: Arc<AtomicUsize>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Ready,
    NotReady,
    /// Reads the request and closes the connection.
    Hangs,
}

async fn listen(address: &str, port: u16) -> TcpListener {
    let address: Ipv4Addr = address.parse().unwrap();
    TcpListener::bind((address, port)).await.unwrap()
}

/// Serves `/readyz`, the resources of `v1`, and every Node. One request per connection, so that a
/// stopped server accepts no request over an old connection.
fn serve(listener: TcpListener, tls: TlsAcceptor, answer: Answer) -> Server {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let task = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = tls.accept(stream).await else {
                continue;
            };
            let mut request = Vec::new();
            let mut buffer = [0; 4096];
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                match stream.read(&mut buffer).await {
                    Ok(length) if length > 0 => request.extend_from_slice(&buffer[..length]),
                    _ => break,
                }
            }
            counter.fetch_add(1, Ordering::SeqCst);
            let line = String::from_utf8_lossy(&request).into_owned();
            let path = line.split_whitespace().nth(1).unwrap_or_default();
            let (status, body) = match (answer, path) {
                (Answer::Hangs, path) if path != "/api/v1" => continue,
                (Answer::NotReady, "/readyz") => (500, "etcd failed".to_owned()),
                (_, "/readyz") => (200, "ok".to_owned()),
                (_, "/api/v1") => (
                    200,
                    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": [
                        {"name": "nodes", "singularName": "node", "namespaced": false, "kind": "Node", "verbs": ["get", "delete"]}]})
                    .to_string(),
                ),
                _ => (
                    200,
                    json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": "n", "uid": "u"}})
                        .to_string(),
                ),
            };
            let head = format!(
                "HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
            let _ = stream.shutdown().await;
        }
    });
    Server { asked, task }
}

fn client(access: &Access, addresses: &[&str]) -> Addresses<KubeApi> {
    let one = |address: &&str| {
        let api = KubeApi::new(access, address.parse().unwrap()).unwrap();
        Address {
            endpoint: api.endpoint().to_owned(),
            api,
        }
    };
    Addresses::new(addresses.iter().map(one).collect())
}

fn node() -> ObjectRef {
    ObjectRef {
        api_version: "v1".into(),
        kind: "Node".into(),
        namespace: String::new(),
        name: "n".into(),
    }
}

#[tokio::test]
async fn the_next_address_is_asked_and_the_one_that_answered_is_remembered() {
    let pki = Pki::new();
    let first = listen("127.0.0.2", 0).await;
    let port = first.local_addr().unwrap().port();
    let second = serve(
        listen("127.0.0.3", port).await,
        pki.acceptor(),
        Answer::Ready,
    );
    let third = serve(
        listen("127.0.0.4", port).await,
        pki.acceptor(),
        Answer::Ready,
    );
    drop(first);
    let api = client(&pki.access(port), &["127.0.0.2", "127.0.0.3", "127.0.0.4"]);
    api.ready().await.unwrap();
    assert!(api.get(&node()).await.unwrap().is_some());
    assert_eq!(third.asked(), 0, "the client left an address that answers");
    // The first one is back: nothing changes, because the second one still answers.
    let first = serve(
        listen("127.0.0.2", port).await,
        pki.acceptor(),
        Answer::Ready,
    );
    api.ready().await.unwrap();
    assert_eq!((first.asked(), second.asked()), (0, 4));
}

#[tokio::test]
async fn an_address_of_another_cluster_and_one_that_never_speaks_tls_are_passed_over() {
    let (pki, other) = (Pki::new(), Pki::new());
    let foreign = listen("127.0.0.2", 0).await;
    let port = foreign.local_addr().unwrap().port();
    let _foreign = serve(foreign, other.acceptor(), Answer::Ready);
    // It accepts connections, as the kernel does, and never answers.
    let _silent = listen("127.0.0.3", port).await;
    let good = serve(
        listen("127.0.0.4", port).await,
        pki.acceptor(),
        Answer::Ready,
    );
    let api = client(&pki.access(port), &["127.0.0.2", "127.0.0.3", "127.0.0.4"]);
    // This also works for a deletion: no connection was made, so it was never sent.
    assert!(api.delete(&node()).await.unwrap());
    assert_eq!(good.asked(), 2);
}

#[tokio::test]
async fn the_error_names_each_address_with_its_cause() {
    let (pki, other) = (Pki::new(), Pki::new());
    let foreign = listen("127.0.0.2", 0).await;
    let port = foreign.local_addr().unwrap().port();
    let _foreign = serve(foreign, other.acceptor(), Answer::Ready);
    drop(listen("127.0.0.3", port).await);
    let api = client(&pki.access(port), &["127.0.0.2", "127.0.0.3"]);
    let error = chain(&api.ready().await.unwrap_err());
    let both =
        format!("the Kubernetes API at 127.0.0.2:{port}, 127.0.0.3:{port} does not answer: ");
    let causes = error
        .strip_prefix(&both)
        .unwrap_or_else(|| panic!("{error}"));
    let (first, second) = causes.split_once("; ").unwrap();
    assert!(
        first.starts_with(&format!("127.0.0.2:{port}: ")) && first.contains("certificate"),
        "{error}"
    );
    assert!(
        second.starts_with(&format!("127.0.0.3:{port}: ")) && second.contains("refused"),
        "{error}"
    );
    let one = client(&pki.access(port), &["127.0.0.3"]);
    let error = chain(&one.ready().await.unwrap_err());
    assert_eq!(error.matches("127.0.0.3").count(), 1, "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_ready_is_passed_over() {
    let pki = Pki::new();
    let first = listen("127.0.0.2", 0).await;
    let port = first.local_addr().unwrap().port();
    let first = serve(first, pki.acceptor(), Answer::NotReady);
    let second = serve(
        listen("127.0.0.3", port).await,
        pki.acceptor(),
        Answer::Ready,
    );
    let access = pki.access(port);
    let api = client(&access, &["127.0.0.2", "127.0.0.3"]);
    api.ready().await.unwrap();
    assert!(api.get(&node()).await.unwrap().is_some());
    assert_eq!((first.asked(), second.asked()), (1, 3));
    let alone = client(&access, &["127.0.0.2"]);
    assert!(matches!(
        alone.ready().await,
        Err(ApiError::Refused { code: 500, .. })
    ));
}

#[tokio::test]
async fn a_deletion_whose_answer_is_lost_is_not_sent_again_but_a_question_is() {
    let pki = Pki::new();
    let first = listen("127.0.0.2", 0).await;
    let port = first.local_addr().unwrap().port();
    let _first = serve(first, pki.acceptor(), Answer::Hangs);
    let second = serve(
        listen("127.0.0.3", port).await,
        pki.acceptor(),
        Answer::Ready,
    );
    let access = pki.access(port);
    let api = client(&access, &["127.0.0.2", "127.0.0.3"]);
    let error = api.delete(&node()).await.unwrap_err();
    assert!(
        matches!(error, ApiError::Unreachable { sent: true, .. }),
        "{error:?}"
    );
    assert_eq!(second.asked(), 0);
    // The next request starts at the next address.
    assert!(api.delete(&node()).await.unwrap());
    let api = client(&access, &["127.0.0.2", "127.0.0.3"]);
    assert!(api.get(&node()).await.unwrap().is_some());
}
