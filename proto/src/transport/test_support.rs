//! A server with its own CA, for the tests of the transport.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use halite_errors::chain;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot, watch};
use tonic::{Request, Response, Status};

use super::identity_flood_tests::Reads;
use super::{Caller, ClientIdentity, NotAdmitted, Peer, PeerPolicy, Server, connect, tls};
use crate::identity::IdentityKind;
use crate::pki::PrivateKey;
use crate::role::Role;
use crate::v1::enrolment_client::EnrolmentClient;
use crate::v1::enrolment_server::{Enrolment, EnrolmentServer};
use crate::{pki, v1};
pub(super) struct TestCa {
    pub(super) pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl TestCa {
    pub(super) fn new() -> Self {
        let key = PrivateKey::generate().unwrap();
        Self::with_key(&format!("test {}", key.fingerprint()), key)
    }

    /// A CA with this name, which others may have too.
    pub(super) fn named(name: &str) -> Self {
        Self::with_key(name, PrivateKey::generate().unwrap())
    }

    fn with_key(name: &str, key: PrivateKey) -> Self {
        let params = Self::params(name);
        let pem = params.self_signed(key.as_key_pair()).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key.into_key_pair()),
        }
    }

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params
    }

    /// The certificate of this CA, signed by an older one of the same name.
    pub(super) fn cross_signed(&self, name: &str, older: &Self) -> String {
        let mut params = Self::params(name);
        params.use_authority_key_identifier_extension = true;
        let signed = params.signed_by(self.issuer.key(), &older.issuer);
        signed.unwrap().pem()
    }

    pub(super) fn hash(&self) -> String {
        pki::sha256_hex(&pki::certificates(&self.pem).unwrap()[0])
    }

    pub(super) fn issue(
        &self,
        uris: &[&str],
        change: impl FnOnce(&mut CertificateParams),
    ) -> ClientIdentity {
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

    pub(super) fn identity(&self, uri: &str) -> ClientIdentity {
        self.issue(&[uri], |_| {})
    }
}

/// The id of a caller that arrives after the master has moved.
pub(super) const LATE: &str = "late";

/// Admits every caller except the banned ids and [`LATE`], and records its notifications.
pub(super) struct TestPolicy {
    banned: Mutex<Vec<String>>,
    changes: watch::Sender<u64>,
    pub(super) events: Mutex<Vec<String>>,
}

impl TestPolicy {
    pub(super) fn new() -> Arc<Self> {
        let changes = watch::Sender::new(0);
        Arc::new(Self {
            banned: Mutex::default(),
            changes,
            events: Mutex::default(),
        })
    }

    pub(super) fn ban(&self, id: &str) {
        self.banned.lock().unwrap().push(id.to_owned());
        self.changes.send_modify(|n| *n += 1);
    }
}

impl PeerPolicy for TestPolicy {
    fn admit(&self, caller: &Caller) -> Result<(), NotAdmitted> {
        if caller.identity.id() == LATE {
            return Err(NotAdmitted::Moved);
        }
        let banned = self.banned.lock().unwrap();
        if banned.iter().any(|id| id == caller.identity.id()) {
            Err(NotAdmitted::NotAccepted)
        } else {
            Ok(())
        }
    }

    fn role(&self, caller: &Caller) -> Option<Role> {
        (caller.identity.kind() == IdentityKind::Operator).then_some(Role::Admin)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn refused(&self, peer: &Peer, path: &str, _reason: &str) {
        self.events
            .lock()
            .unwrap()
            .push(format!("{} {path}", peer.name()));
    }

    fn handshake_failed(&self, _address: SocketAddr, reason: &str) {
        self.events
            .lock()
            .unwrap()
            .push(format!("handshake {reason}"));
    }
}

/// Answers with the caller's name; the id `wait` never gets an answer.
pub(super) struct Echo {
    /// Notified when a call starts to wait.
    waiting: Arc<Notify>,
}

#[tonic::async_trait]
impl Enrolment for Echo {
    async fn enrol(
        &self,
        request: Request<v1::EnrolRequest>,
    ) -> Result<Response<v1::EnrolReply>, Status> {
        let name = Peer::of(&request)?.name();
        if request.get_ref().id == "wait" {
            self.waiting.notify_one();
            std::future::pending::<()>().await;
        }
        Ok(Response::new(v1::EnrolReply {
            reason: name,
            ..Default::default()
        }))
    }
}

/// Connects with an identity without verifying the server, and returns the error that the server
/// answers.
pub(super) async fn connect_unverified(endpoint: &str, identity: &ClientIdentity) -> String {
    #[derive(Debug)]
    struct AnyServer;
    use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
    impl ServerCertVerifier for AnyServer {
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
        .with_custom_certificate_verifier(Arc::new(AnyServer))
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

pub(super) struct Running {
    pub(super) ca: TestCa,
    pub(super) endpoint: String,
    pub(super) policy: Arc<TestPolicy>,
    pub(super) server: Arc<Server>,
    pub(super) waiting: Arc<Notify>,
    pub(super) stop: Option<oneshot::Sender<()>>,
    pub(super) task: tokio::task::JoinHandle<()>,
}

pub(super) async fn start_as(uri: &str) -> Running {
    start_with(uri, |server| server).await
}

pub(super) async fn start_with(uri: &str, change: impl FnOnce(Server) -> Server) -> Running {
    start_made(|ca| ca.identity(uri), change).await
}

/// A server with the identity that the CA issues.
pub(super) async fn start_issued(issue: impl FnOnce(&TestCa) -> ClientIdentity) -> Running {
    start_made(issue, |server| server).await
}

async fn start_made(
    issue: impl FnOnce(&TestCa) -> ClientIdentity,
    change: impl FnOnce(Server) -> Server,
) -> Running {
    start_of(TestCa::new(), issue, change).await
}

/// A server of this CA.
pub(super) async fn start_of(
    ca: TestCa,
    issue: impl FnOnce(&TestCa) -> ClientIdentity,
    change: impl FnOnce(Server) -> Server,
) -> Running {
    let policy = TestPolicy::new();
    let own = issue(&ca);
    let dynamic = Arc::clone(&policy) as Arc<dyn PeerPolicy>;
    let server = Server::new("prod", &own.certificate_pem, &own.key_pem, &ca.pem, dynamic).unwrap();
    let server = Arc::new(change(server));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let waiting: Arc<Notify> = Arc::default();
    let routes = tonic::service::Routes::new(EnrolmentServer::new(Echo {
        waiting: Arc::clone(&waiting),
    }))
    .add_service(Reads::<true>)
    .add_service(Reads::<false>);
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = Arc::clone(&server).serve(listener, routes, async move {
        let _ = stopped.await;
    });
    Running {
        ca,
        endpoint,
        policy,
        server,
        waiting,
        stop: Some(stop),
        task: tokio::spawn(serving),
    }
}

pub(super) async fn start() -> Running {
    start_as("halite://prod/master/m1").await
}

impl Running {
    pub(super) async fn call(&self, identity: Option<&ClientIdentity>) -> Result<String, Status> {
        let channel = connect(&self.endpoint, &self.ca.pem, identity)
            .await
            .map_err(|error| Status::unknown(chain(&error)))?;
        let reply = EnrolmentClient::new(channel)
            .enrol(v1::EnrolRequest::default())
            .await?;
        Ok(reply.into_inner().reason)
    }
}
