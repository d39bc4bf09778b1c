//! The road, walked by everybody who may and may not.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tonic::{Code, Request, Response, Status};

use super::*;
use crate::pki::PrivateKey;
use crate::v1::enrolment_client::EnrolmentClient;
use crate::v1::enrolment_server::{Enrolment, EnrolmentServer};
use crate::{pki, v1};

struct TestCa {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl TestCa {
    fn new() -> Self {
        let key = PrivateKey::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, format!("test {}", key.fingerprint()));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let pem = params.self_signed(key.as_key_pair()).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key.into_key_pair()),
        }
    }

    fn hash(&self) -> String {
        pki::sha256_hex(&pki::certificates(&self.pem).unwrap()[0])
    }

    fn issue(&self, uris: &[&str], change: impl FnOnce(&mut CertificateParams)) -> ClientIdentity {
        let key = PrivateKey::generate().unwrap();
        let mut params = CertificateParams::default();
        for uri in uris {
            params
                .subject_alt_names
                .push(SanType::URI((*uri).try_into().unwrap()));
        }
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::ServerAuth,
        ];
        change(&mut params);
        let certificate = params.signed_by(key.as_key_pair(), &self.issuer).unwrap();
        ClientIdentity {
            certificate_pem: certificate.pem(),
            key_pem: key.to_pem(),
        }
    }

    fn identity(&self, uri: &str) -> ClientIdentity {
        self.issue(&[uri], |_| {})
    }
}

/// Lets everybody in but the named ids, and remembers what it was told.
struct Keeper {
    banned: Mutex<Vec<String>>,
    changes: watch::Sender<u64>,
    told: Mutex<Vec<String>>,
}

impl Keeper {
    fn new() -> Arc<Self> {
        let changes = watch::Sender::new(0);
        Arc::new(Self {
            banned: Mutex::default(),
            changes,
            told: Mutex::default(),
        })
    }

    fn ban(&self, id: &str) {
        self.banned.lock().unwrap().push(id.to_owned());
        self.changes.send_modify(|n| *n += 1);
    }
}

impl Doorkeeper for Keeper {
    fn admit(&self, caller: &Caller) -> Result<(), String> {
        let banned = self.banned.lock().unwrap();
        if banned.iter().any(|id| id == caller.identity.id()) {
            Err("banned".to_owned())
        } else {
            Ok(())
        }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn refused(&self, peer: &Peer, path: &str, _reason: &str) {
        self.told
            .lock()
            .unwrap()
            .push(format!("{} {path}", peer.name()));
    }

    fn handshake_failed(&self, _address: SocketAddr, reason: &str) {
        self.told
            .lock()
            .unwrap()
            .push(format!("handshake {reason}"));
    }
}

/// Answers with the caller's name; an id of `wait` never gets an answer.
struct Echo;

#[tonic::async_trait]
impl Enrolment for Echo {
    async fn enrol(
        &self,
        request: Request<v1::EnrolRequest>,
    ) -> Result<Response<v1::EnrolReply>, Status> {
        let name = Peer::of(&request)?.name();
        if request.get_ref().id == "wait" {
            std::future::pending::<()>().await;
        }
        Ok(Response::new(v1::EnrolReply {
            reason: name,
            ..Default::default()
        }))
    }
}

/// Shows an identity to whatever server there is, and reads what it says to that.
async fn careless(endpoint: &str, identity: &ClientIdentity) -> String {
    #[derive(Debug)]
    struct Anybody;
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    impl ServerCertVerifier for Anybody {
        fn verify_server_cert(
            &self,
            _: &rustls_pki_types::CertificateDer<'_>,
            _: &[rustls_pki_types::CertificateDer<'_>],
            _: &rustls_pki_types::ServerName<'_>,
            _: &[u8],
            _: rustls_pki_types::UnixTime,
        ) -> Result<ServerCertVerified, rustls::Error> {
            Ok(ServerCertVerified::assertion())
        }
        fn verify_tls12_signature(
            &self,
            _: &[u8],
            _: &rustls_pki_types::CertificateDer<'_>,
            _: &rustls::DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }
        fn verify_tls13_signature(
            &self,
            _: &[u8],
            _: &rustls_pki_types::CertificateDer<'_>,
            _: &rustls::DigitallySignedStruct,
        ) -> Result<HandshakeSignatureValid, rustls::Error> {
            Ok(HandshakeSignatureValid::assertion())
        }
        fn supported_verify_schemes(&self) -> Vec<rustls::SignatureScheme> {
            tls::provider()
                .signature_verification_algorithms
                .supported_schemes()
        }
    }
    let mut config = rustls::ClientConfig::builder_with_provider(tls::provider())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anybody))
        .with_client_auth_cert(
            pki::certificates(&identity.certificate_pem).unwrap(),
            pki::private_key(&identity.key_pem).unwrap(),
        )
        .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = tokio::net::TcpStream::connect(endpoint).await.unwrap();
    let name = rustls_pki_types::ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    tokio::io::AsyncReadExt::read_u8(&mut stream)
        .await
        .unwrap_err()
        .to_string()
}

struct Running {
    ca: TestCa,
    endpoint: String,
    keeper: Arc<Keeper>,
    server: Arc<Server>,
    stop: Option<oneshot::Sender<()>>,
    task: tokio::task::JoinHandle<()>,
}

async fn start_as(uri: &str) -> Running {
    let ca = TestCa::new();
    let keeper = Keeper::new();
    let own = ca.identity(uri);
    let doorkeeper = Arc::clone(&keeper) as Arc<dyn Doorkeeper>;
    let server = Arc::new(
        Server::new(
            "prod",
            &own.certificate_pem,
            &own.key_pem,
            &ca.pem,
            doorkeeper,
        )
        .unwrap(),
    );
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let routes = tonic::service::Routes::new(EnrolmentServer::new(Echo));
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = Arc::clone(&server).serve(listener, routes, async move {
        let _ = stopped.await;
    });
    Running {
        ca,
        endpoint,
        keeper,
        server,
        stop: Some(stop),
        task: tokio::spawn(serving),
    }
}

async fn start() -> Running {
    start_as("halite://prod/master/m1").await
}

impl Running {
    async fn call(&self, identity: Option<&ClientIdentity>) -> Result<String, Status> {
        let channel = connect(&self.endpoint, &self.ca.pem, identity)
            .await
            .map_err(|error| Status::unknown(error.to_string()))?;
        let reply = EnrolmentClient::new(channel)
            .enrol(v1::EnrolRequest::default())
            .await?;
        Ok(reply.into_inner().reason)
    }
}

#[tokio::test]
async fn a_caller_without_certificate_reaches_first_contact() {
    let running = start().await;
    assert_eq!(running.call(None).await.unwrap(), "127.0.0.1");
}

#[tokio::test]
async fn an_identity_is_judged_by_the_table_and_the_keeper_hears_of_it() {
    let running = start().await;
    let minion = running.ca.identity("halite://prod/minion/worker-1");
    let refused = running.call(Some(&minion)).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let told = running.keeper.told.lock().unwrap().clone();
    assert_eq!(told, ["minion:worker-1 /halite.v1.Enrolment/Enrol"]);
}

#[tokio::test]
async fn bad_certificates_end_the_handshake_and_the_caller_learns_why() {
    let running = start().await;
    let past = rcgen::date_time_ymd(2020, 1, 1);
    let stranger = TestCa::new();
    let ca = &running.ca;
    running.keeper.ban("gone");
    let good = "halite://prod/operator/root";
    let cases = [
        (
            "expired",
            ca.issue(&[good], |p| p.not_after = past),
            "it has expired",
        ),
        (
            "unknown CA",
            stranger.identity(good),
            "not of this cluster's CA",
        ),
        (
            "not admitted",
            ca.identity("halite://prod/minion/gone"),
            "does not accept this identity",
        ),
        (
            "two identities",
            ca.issue(&[good, "halite://prod/operator/eve"], |_| {}),
            "exactly one is needed",
        ),
        (
            "server certificate only",
            ca.issue(&[good], |p| {
                p.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth]
            }),
            "refused our certificate",
        ),
    ];
    for (what, identity, wanted) in cases {
        let error = running.call(Some(&identity)).await.unwrap_err();
        assert!(error.message().contains(wanted), "{what}: {error}");
        assert_ne!(
            error.code(),
            Code::PermissionDenied,
            "{what} reached the table"
        );
    }
    // Our own end finds out first that the master is of another cluster.
    let other = ca.identity("halite://other/operator/root");
    let error = running.call(Some(&other)).await.unwrap_err();
    assert!(
        error.message().contains("master of cluster \"prod\""),
        "{error}"
    );
    // A caller that does not look is refused by the server all the same.
    let error = careless(&running.endpoint, &other).await;
    assert!(error.contains("AccessDenied"), "{error}");
    let two = ca.issue(&[good, "halite://prod/operator/eve"], |_| {});
    let error = careless(&running.endpoint, &two).await;
    assert!(error.contains("CertificateUnknown"), "{error}");
    let told = running.keeper.told.lock().unwrap().clone();
    assert!(
        told.iter().all(|line| line.starts_with("handshake ")),
        "{told:?}"
    );
    assert!(told.len() >= 4, "{told:?}");
}

#[tokio::test]
async fn a_server_that_is_no_master_of_our_ca_and_cluster_is_not_believed() {
    for (uri, wanted) in [
        (
            "halite://prod/minion/worker-1",
            "of kind minion, not a master",
        ),
        (
            "halite://prod/operator/root",
            "of kind operator, not a master",
        ),
        ("https://prod.example", "exactly one is needed"),
    ] {
        let running = start_as(uri).await;
        let error = running.call(None).await.unwrap_err();
        assert!(error.message().contains(wanted), "{uri}: {error}");
        let error = connect_pinned(&running.endpoint, &running.ca.hash())
            .await
            .unwrap_err();
        assert!(error.to_string().contains(wanted), "{uri}: {error}");
    }
    let running = start().await;
    let error = connect(&running.endpoint, &TestCa::new().pem, None)
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("not of the CA that we trust"),
        "{error}"
    );
}

#[tokio::test]
async fn a_newcomer_knows_the_master_by_the_hash_of_its_ca() {
    let running = start().await;
    let pinned = connect_pinned(&running.endpoint, &running.ca.hash().to_uppercase())
        .await
        .unwrap();
    assert_eq!(pinned.ca_pem.trim(), running.ca.pem.trim());
    assert_eq!(
        pinned.channel.master().to_string(),
        "halite://prod/master/m1"
    );
    let reply = EnrolmentClient::new(pinned.channel)
        .enrol(v1::EnrolRequest::default())
        .await
        .unwrap();
    assert_eq!(reply.into_inner().reason, "127.0.0.1");

    let error = connect_pinned(&running.endpoint, &TestCa::new().hash())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("no CA with the hash"), "{error}");
}

#[tokio::test]
async fn the_hash_of_the_leaf_is_not_the_hash_of_a_ca() {
    let running = start().await;
    let own = running.ca.identity("halite://prod/master/m2");
    running
        .server
        .replace_certificate(&own.certificate_pem, &own.key_pem)
        .unwrap();
    let leaf = pki::sha256_hex(&pki::certificates(&own.certificate_pem).unwrap()[0]);
    let error = connect_pinned(&running.endpoint, &leaf).await.unwrap_err();
    assert!(error.to_string().contains("is not a CA"), "{error}");
}

#[tokio::test]
async fn a_new_certificate_is_shown_without_a_restart() {
    let running = start().await;
    let own = running.ca.identity("halite://prod/master/m2");
    running
        .server
        .replace_certificate(&own.certificate_pem, &own.key_pem)
        .unwrap();
    let channel = connect(&running.endpoint, &running.ca.pem, None)
        .await
        .unwrap();
    assert_eq!(channel.master().id(), "m2");
    let other = running.ca.identity("halite://prod/master/m3");
    assert!(
        running
            .server
            .replace_certificate(&own.certificate_pem, &other.key_pem)
            .is_err()
    );
}

#[tokio::test]
async fn who_is_no_longer_welcome_is_cut_off_at_once() {
    let running = start().await;
    let worker = running.ca.identity("halite://prod/minion/worker-1");
    let other = running.ca.identity("halite://prod/minion/worker-2");
    let cut = connect(&running.endpoint, &running.ca.pem, Some(&worker))
        .await
        .unwrap();
    let kept = connect(&running.endpoint, &running.ca.pem, Some(&other))
        .await
        .unwrap();
    // A first call proves that the server has taken both in.
    for channel in [&cut, &kept] {
        let refused = EnrolmentClient::new(channel.clone())
            .enrol(v1::EnrolRequest::default())
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
    }
    running.keeper.ban("worker-1");
    tokio::time::timeout(Duration::from_secs(10), cut.closed())
        .await
        .expect("the connection lives on");
    let refused = EnrolmentClient::new(kept)
        .enrol(v1::EnrolRequest::default())
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn an_open_call_ends_when_the_master_stops() {
    let mut running = start().await;
    let channel = connect(&running.endpoint, &running.ca.pem, None)
        .await
        .unwrap();
    let request = v1::EnrolRequest {
        id: "wait".to_owned(),
        ..Default::default()
    };
    let mut client = EnrolmentClient::new(channel.clone());
    let call = tokio::spawn(async move { client.enrol(request).await });
    // The second call on the same connection is answered only after the first was sent.
    EnrolmentClient::new(channel.clone())
        .enrol(v1::EnrolRequest::default())
        .await
        .unwrap();
    drop(running.stop.take());
    tokio::time::timeout(Duration::from_secs(20), running.task)
        .await
        .expect("the master does not stop")
        .unwrap();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
    let error = EnrolmentClient::new(channel)
        .enrol(v1::EnrolRequest::default())
        .await
        .unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error}");
}

#[tokio::test]
async fn where_nothing_answers_or_no_tls_the_error_says_so() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let ca = TestCa::new();
    let plain = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, b"HTTP/1.1 400 Bad Request\r\n\r\n")
            .await
            .unwrap();
    });
    let error = connect(&endpoint, &ca.pem, None).await.unwrap_err();
    assert!(matches!(error, ConnectError::Untrusted { .. }), "{error}");
    plain.await.unwrap();
    let error = connect(&endpoint, &ca.pem, None).await.unwrap_err();
    assert!(
        error.to_string().contains("cannot reach the master"),
        "{error}"
    );
    for bad in ["", "nowhere", "127.0.0.1", "https://x:1"] {
        assert!(connect(bad, &ca.pem, None).await.is_err(), "{bad:?}");
    }
}

#[test]
fn debug_output_of_an_identity_holds_no_key() {
    let identity = ClientIdentity {
        certificate_pem: "CERT".to_owned(),
        key_pem: "SECRET".to_owned(),
    };
    assert!(!format!("{identity:?}").contains("SECRET"));
}
