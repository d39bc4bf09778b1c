//! A small master in the same process, and minions that call it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_minion::config::Config;
use halite_minion::jobs::Jobs;
use halite_minion::{enrol, link};
use halite_proto::pki::PrivateKey;
use halite_proto::role::Role;
use halite_proto::tonic::service::Routes;
use halite_proto::tonic::{Request, Response, Status, Streaming};
use halite_proto::transport::{Caller, Channel, NotAdmitted, Peer, PeerPolicy, Server};
use halite_proto::v1::enrolment_server::{Enrolment, EnrolmentServer};
use halite_proto::v1::master_message::Body as ToMinion;
use halite_proto::v1::minion_message::Body as ToMaster;
use halite_proto::v1::minion_server::{Minion, MinionServer};
use halite_proto::v1::*;
use halite_proto::{pki, tonic};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, IsCa, Issuer, KeyPair,
    PublicKeyData as _, SanType, SigningKey as _,
};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;

pub const TOKEN: &str = "first.secret";

pub struct Ca {
    pub pem: String,
    pub issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    pub fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, "test CA");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    /// The epoch of a master of this cluster.
    pub fn epoch(&self, number: u64) -> Epoch {
        let mut epoch = Epoch {
            number,
            holder: "cp-1".to_owned(),
            signature: String::new(),
        };
        let signature = self.issuer.key().sign(epoch.statement().as_bytes());
        epoch.signature = STANDARD.encode(signature.unwrap());
        epoch
    }

    pub fn params(uri: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
        params.extended_key_usages = vec![
            rcgen::ExtendedKeyUsagePurpose::ServerAuth,
            rcgen::ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params
    }
}

/// One stream of the minion as the test sees it.
pub struct Stream {
    pub received: Streaming<MinionMessage>,
    pub send: mpsc::Sender<Result<MasterMessage, Status>>,
}

impl Stream {
    pub async fn send(&self, body: ToMinion) {
        self.send
            .send(Ok(MasterMessage { body: Some(body) }))
            .await
            .unwrap();
    }

    pub async fn next(&mut self) -> ToMaster {
        self.received
            .message()
            .await
            .unwrap()
            .expect("the minion must send another message")
            .body
            .unwrap()
    }

    pub async fn returned(&mut self) -> JobReturn {
        loop {
            if let ToMaster::Returned(answer) = self.next().await {
                return answer;
            }
        }
    }
}

pub struct Master {
    pub ca: Arc<Ca>,
    /// The CA that signs.
    pub signer: Mutex<Arc<Ca>>,
    /// The master's first message.
    pub hello: Mutex<MasterHello>,
    pub files: Mutex<BTreeMap<String, Vec<u8>>>,
    /// The keys that were enrolled with a token.
    pub keys: Mutex<BTreeSet<Vec<u8>>>,
    pub streams: mpsc::Sender<Stream>,
    changes: watch::Sender<u64>,
}

impl PeerPolicy for Master {
    fn admit(&self, _: &Caller) -> Result<(), NotAdmitted> {
        Ok(())
    }
    fn role(&self, _: &Caller) -> Option<Role> {
        None
    }
    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
    fn refused(&self, _: &Peer, _: &str, _: &str) {}
    fn handshake_failed(&self, _: SocketAddr, _: &str) {}
}

#[derive(Clone)]
pub struct Service(Arc<Master>);

#[tonic::async_trait]
impl Enrolment for Service {
    async fn enrol(&self, request: Request<EnrolRequest>) -> Result<Response<EnrolReply>, Status> {
        let request = request.into_inner();
        let key = CertificateSigningRequestParams::from_pem(&request.csr_pem)
            .unwrap()
            .public_key
            .der_bytes()
            .to_vec();
        let is_known = self.0.keys.lock().unwrap().contains(&key);
        if !is_known && !request.token.starts_with(TOKEN) {
            let reason = "the token is unknown".to_owned();
            return Ok(Response::new(EnrolReply {
                state: 3,
                reason,
                ..EnrolReply::default()
            }));
        }
        self.0.keys.lock().unwrap().insert(key);
        let mut csr = CertificateSigningRequestParams::from_pem(&request.csr_pem).unwrap();
        csr.params = Ca::params(&format!("halite://test/minion/{}", request.id));
        let signer = Arc::clone(&self.0.signer.lock().unwrap());
        let certificate_pem = csr.signed_by(&signer.issuer).unwrap().pem();
        Ok(Response::new(EnrolReply {
            state: 1,
            certificate_pem,
            ..EnrolReply::default()
        }))
    }
}

#[tonic::async_trait]
impl Minion for Service {
    type ConnectStream = ReceiverStream<Result<MasterMessage, Status>>;
    type FetchStream = tokio_stream::Iter<std::vec::IntoIter<Result<FetchReply, Status>>>;

    async fn connect(
        &self,
        request: Request<Streaming<MinionMessage>>,
    ) -> Result<Response<Self::ConnectStream>, Status> {
        let (send, receiver) = mpsc::channel(16);
        let stream = Stream {
            received: request.into_inner(),
            send,
        };
        let hello = self.0.hello.lock().unwrap().clone();
        stream.send(ToMinion::Hello(hello)).await;
        self.0
            .streams
            .send(stream)
            .await
            .map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn sign(&self, _: Request<SignRequest>) -> Result<Response<SignReply>, Status> {
        Err(Status::permission_denied("nothing is signed here"))
    }

    async fn fetch(
        &self,
        request: Request<FetchRequest>,
    ) -> Result<Response<Self::FetchStream>, Status> {
        let content = self
            .0
            .files
            .lock()
            .unwrap()
            .get(&request.get_ref().sha256)
            .cloned();
        let content = content.ok_or_else(|| Status::not_found("no such file"))?;
        let pieces: Vec<_> = content
            .chunks(3)
            .map(|c| Ok(FetchReply { data: c.to_vec() }))
            .collect();
        Ok(Response::new(tokio_stream::iter(pieces)))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewReply>, Status> {
        let csr_pem = request.into_inner().csr_pem;
        let mut csr = CertificateSigningRequestParams::from_pem(&csr_pem).unwrap();
        csr.params = Ca::params("halite://test/minion/worker-1");
        let signer = Arc::clone(&self.0.signer.lock().unwrap());
        let certificate_pem = csr.signed_by(&signer.issuer).unwrap().pem();
        Ok(Response::new(RenewReply { certificate_pem }))
    }

    async fn take_turn(&self, _: Request<TurnRequest>) -> Result<Response<TurnReply>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

pub struct World {
    pub master: Arc<Master>,
    server: Arc<Server>,
    pub streams: mpsc::Receiver<Stream>,
    pub endpoint: String,
    pub config: Config,
    pub hash: String,
    stop: Option<oneshot::Sender<()>>,
    _dir: tempfile::TempDir,
}

pub async fn world() -> World {
    halite_proto::transport::install_crypto();
    server(Arc::new(Ca::new()), "halite://test/master/m").await
}

/// A server of that CA with this identity, and a minion that should call it.
async fn server(ca: Arc<Ca>, uri: &str) -> World {
    let hash = pki::sha256_hex(&pki::certificates(&ca.pem).unwrap()[0]);
    let key = PrivateKey::generate().unwrap();
    let own = Ca::params(uri)
        .signed_by(key.as_key_pair(), &ca.issuer)
        .unwrap()
        .pem();
    let (sender, streams) = mpsc::channel(4);
    let (ca_pem, evidence) = (ca.pem.clone(), ca.epoch(1));
    let master = Arc::new(Master {
        signer: Mutex::new(Arc::clone(&ca)),
        ca,
        hello: Mutex::new(MasterHello {
            protocol: halite_proto::PROTOCOL,
            evidence: Some(evidence),
            ..MasterHello::default()
        }),
        files: Mutex::default(),
        keys: Mutex::default(),
        streams: sender,
        changes: watch::Sender::new(0),
    });
    let server = Server::new(
        "test",
        &own,
        &key.to_pem(),
        &ca_pem,
        Arc::clone(&master) as _,
    )
    .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let service = Service(Arc::clone(&master));
    let routes =
        Routes::new(EnrolmentServer::new(service.clone())).add_service(MinionServer::new(service));
    let (stop, stopped) = oneshot::channel::<()>();
    let server = Arc::new(server);
    tokio::spawn(Arc::clone(&server).serve(listener, routes, async move {
        let _ = stopped.await;
    }));
    let dir = tempfile::tempdir().unwrap();
    let config = Config {
        state_dir: dir.path().join("minion"),
        masters: vec![endpoint.clone()],
        ..Config::default()
    };
    World {
        master,
        server,
        streams,
        endpoint,
        config,
        hash,
        stop: Some(stop),
        _dir: dir,
    }
}

impl World {
    /// Another master of the same cluster.
    pub async fn beside(&self) -> Self {
        server(Arc::clone(&self.master.ca), "halite://test/master/m").await
    }

    /// A standby of the same cluster.
    pub async fn standby_beside(&self) -> Self {
        server(Arc::clone(&self.master.ca), "halite://test/minion/cp-2").await
    }

    /// Sets the epoch and the masters of its hello from now on.
    pub fn says(&self, epoch: u64, masters: &[&Self]) {
        let mut hello = self.master.hello.lock().unwrap();
        hello.epoch = epoch;
        hello.evidence = Some(self.master.ca.epoch(epoch));
        hello.masters = masters.iter().map(|one| one.endpoint.clone()).collect();
    }

    /// Trusts these CAs from now on; the first one signs.
    pub fn has_cas(&self, cas: &[&Arc<Ca>]) {
        let key = PrivateKey::generate().unwrap();
        let own = Ca::params("halite://test/master/m").signed_by(key.as_key_pair(), &cas[0].issuer);
        let all: String = cas.iter().map(|ca| ca.pem.as_str()).collect();
        self.server
            .replace_identity(&own.unwrap().pem(), &key.to_pem(), &all)
            .unwrap();
        *self.master.signer.lock().unwrap() = Arc::clone(cas[0]);
        let mut hello = self.master.hello.lock().unwrap();
        hello.evidence = Some(cas[0].epoch(1));
        hello.ca_pem = all;
    }

    /// The hello, as it is sent again.
    pub fn hello(&self) -> ToMinion {
        ToMinion::Hello(self.master.hello.lock().unwrap().clone())
    }

    /// Ends the master.
    pub fn stop(&mut self) {
        drop(self.stop.take());
    }

    pub fn request(&self, token: &str) -> enrol::Request {
        enrol::Request {
            master: self.endpoint.clone(),
            id: "worker-1".into(),
            token: token.to_owned(),
            ca_hash: String::new(),
            force: false,
        }
    }

    pub async fn enrolled(&self) {
        let request = self.request(&format!("{TOKEN}.{}", self.hash));
        enrol::enrol(&self.config, &request, |_| ()).await.unwrap();
    }

    /// A running minion; dropping the sender does not end it, sending `true` does.
    pub fn minion(&self) -> watch::Sender<bool> {
        let (outbox, inbox) = mpsc::unbounded_channel();
        let (channel, connected): (watch::Sender<Option<Channel>>, _) = watch::channel(None);
        let (going, gone) = watch::channel(false);
        let jobs =
            Jobs::open(&self.config, "worker-1".parse().unwrap(), outbox, connected).unwrap();
        tokio::spawn(link::maintain(
            self.config.clone(),
            jobs,
            inbox,
            channel,
            gone,
        ));
        going
    }

    pub async fn stream(&mut self) -> (Stream, MinionHello) {
        let stream = tokio::time::timeout(Duration::from_secs(60), self.streams.recv()).await;
        let mut stream = stream.expect("the minion must connect").unwrap();
        match stream.next().await {
            ToMaster::Hello(hello) => (stream, hello),
            other => panic!("not a hello: {other:?}"),
        }
    }
}
