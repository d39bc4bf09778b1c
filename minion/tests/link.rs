//! The link, walked with a small master in the same process: enrolment, jobs, files, and answers
//! that survive a lost stream.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a test stops where it fails"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use halite_durable::digest::sha256;
use halite_minion::config::Config;
use halite_minion::jobs::Jobs;
use halite_minion::{enrol, identity, link};
use halite_proto::ids::JobId;
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
    PublicKeyData as _, SanType,
};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;

const TOKEN: &str = "first.secret";

struct Ca {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Ca {
    fn new() -> Self {
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

    fn params(uri: &str) -> CertificateParams {
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
struct Stream {
    received: Streaming<MinionMessage>,
    send: mpsc::Sender<Result<MasterMessage, Status>>,
}

impl Stream {
    async fn send(&self, body: ToMinion) {
        self.send
            .send(Ok(MasterMessage { body: Some(body) }))
            .await
            .unwrap();
    }

    async fn next(&mut self) -> ToMaster {
        self.received
            .message()
            .await
            .unwrap()
            .expect("the minion sent nothing more")
            .body
            .unwrap()
    }

    async fn returned(&mut self) -> JobReturn {
        loop {
            if let ToMaster::Returned(answer) = self.next().await {
                return answer;
            }
        }
    }
}

struct Master {
    ca: Ca,
    files: Mutex<BTreeMap<String, Vec<u8>>>,
    /// The keys that were enrolled with a token.
    keys: Mutex<BTreeSet<Vec<u8>>>,
    streams: mpsc::Sender<Stream>,
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
struct Service(Arc<Master>);

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
        let certificate_pem = csr.signed_by(&self.0.ca.issuer).unwrap().pem();
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
        stream
            .send(ToMinion::Hello(MasterHello {
                protocol: 1,
                ..MasterHello::default()
            }))
            .await;
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

    async fn renew(&self, _: Request<RenewRequest>) -> Result<Response<RenewReply>, Status> {
        Err(Status::unimplemented("not here"))
    }
}

struct World {
    master: Arc<Master>,
    streams: mpsc::Receiver<Stream>,
    endpoint: String,
    config: Config,
    hash: String,
    _stop: oneshot::Sender<()>,
    _dir: tempfile::TempDir,
}

async fn world() -> World {
    halite_proto::transport::install_crypto();
    let ca = Ca::new();
    let hash = pki::sha256_hex(&pki::certificates(&ca.pem).unwrap()[0]);
    let key = PrivateKey::generate().unwrap();
    let own = Ca::params("halite://test/master/m")
        .signed_by(key.as_key_pair(), &ca.issuer)
        .unwrap()
        .pem();
    let (sender, streams) = mpsc::channel(4);
    let ca_pem = ca.pem.clone();
    let master = Arc::new(Master {
        ca,
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
    tokio::spawn(Arc::new(server).serve(listener, routes, async move {
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
        streams,
        endpoint,
        config,
        hash,
        _stop: stop,
        _dir: dir,
    }
}

impl World {
    fn request(&self, token: &str) -> enrol::Request {
        enrol::Request {
            master: self.endpoint.clone(),
            id: "worker-1".into(),
            token: token.to_owned(),
            ca_hash: String::new(),
            force: false,
        }
    }

    async fn enrolled(&self) {
        let request = self.request(&format!("{TOKEN}.{}", self.hash));
        enrol::enrol(&self.config, &request, |_| ()).await.unwrap();
    }

    /// A running minion; dropping the sender does not end it, sending true does.
    fn minion(&self) -> watch::Sender<bool> {
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

    async fn stream(&mut self) -> (Stream, MinionHello) {
        let stream = tokio::time::timeout(Duration::from_secs(20), self.streams.recv()).await;
        let mut stream = stream.expect("the minion did not connect").unwrap();
        match stream.next().await {
            ToMaster::Hello(hello) => (stream, hello),
            other => panic!("not a hello: {other:?}"),
        }
    }
}

fn id(number: u64) -> String {
    JobId::from_number(number).into()
}

fn job(number: u64, function: &str, args: serde_json::Value) -> Job {
    Job {
        job: id(number),
        function: function.into(),
        args_json: args.to_string(),
        ..Job::default()
    }
}

fn managed(path: &Path, hash: &str) -> String {
    json!({"format": 1, "minion": "worker-1", "chunks": [{
        "state": "file", "fun": "managed", "id": "f", "name": path, "sls": "s",
        "source": {"file": "s.sls", "line": 1, "column": 1}, "args": {"source": format!("blob:{hash}")}}]})
    .to_string()
}

#[tokio::test]
async fn enrolment_verifies_both_ways() {
    let world = world().await;
    let wrong = world.request(&format!("{TOKEN}.{}", "0".repeat(64)));
    let error = enrol::enrol(&world.config, &wrong, |_| ())
        .await
        .unwrap_err();
    assert!(matches!(error, enrol::EnrolError::Connect(_)), "{error}");
    let unknown = world.request(&format!("other.secret.{}", world.hash));
    let error = enrol::enrol(&world.config, &unknown, |_| ())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, enrol::EnrolError::Rejected(reason) if reason == "the token is unknown"),
        "{error}"
    );
    assert!(!world.config.certificate().exists());
    world.enrolled().await;
    let found = identity::Identity::load(&world.config).unwrap();
    assert_eq!(
        (found.id.as_str(), found.cluster.as_str()),
        ("worker-1", "test")
    );
    let again = world.request(&format!("{TOKEN}.{}", world.hash));
    let error = enrol::enrol(&world.config, &again, |_| ())
        .await
        .unwrap_err();
    assert!(
        matches!(&error, enrol::EnrolError::Enrolled(id) if id == "worker-1"),
        "{error}"
    );
}

#[tokio::test]
async fn a_minion_pings_and_applies_with_files_of_the_master() {
    let mut world = world().await;
    world.enrolled().await;
    let going = world.minion();
    let (mut stream, hello) = world.stream().await;
    assert!(hello.grains_json.contains("\"id\":\"worker-1\""));
    stream
        .send(ToMinion::Job(job(1, "test.ping", json!({}))))
        .await;
    assert_eq!(stream.returned().await.return_json, "true");

    let hash = sha256(b"from the master");
    let path = world.config.state_dir.join("target");
    for (number, retcode) in [(2, 1), (3, 0)] {
        let order = Job {
            low_json: managed(&path, &hash),
            ..job(number, "state.apply", json!({}))
        };
        stream.send(ToMinion::Job(order)).await;
        let answer = stream.returned().await;
        assert_eq!(
            (answer.job.as_str(), answer.retcode),
            (id(number).as_str(), retcode),
            "{answer:?}"
        );
        stream
            .send(ToMinion::Stored(ReturnStored { job: id(number) }))
            .await;
        world
            .master
            .files
            .lock()
            .unwrap()
            .insert(hash.clone(), b"from the master".to_vec());
    }
    assert_eq!(std::fs::read(&path).unwrap(), b"from the master");
    going.send_replace(true);
}

#[tokio::test]
async fn a_minion_that_was_off_for_longer_than_its_certificate_lasts_comes_back_with_its_key() {
    let mut world = world().await;
    world.enrolled().await;
    let before = identity::Identity::load(&world.config).unwrap();
    let key = PrivateKey::from_pem(&before.client.key_pem).unwrap();
    let mut ended = Ca::params("halite://test/minion/worker-1");
    ended.not_before = rcgen::date_time_ymd(2020, 1, 1);
    ended.not_after = rcgen::date_time_ymd(2021, 1, 1);
    let ended = ended.signed_by(key.as_key_pair(), &world.master.ca.issuer);
    std::fs::write(world.config.certificate(), ended.unwrap().pem()).unwrap();
    let going = world.minion();
    let (mut stream, _) = world.stream().await;
    stream
        .send(ToMinion::Job(job(1, "test.ping", json!({}))))
        .await;
    assert_eq!(stream.returned().await.return_json, "true");
    let after = identity::Identity::load(&world.config).unwrap();
    assert_eq!(after.client.key_pem, before.client.key_pem);
    assert!(after.not_after > before.not_before);
    going.send_replace(true);
}

#[tokio::test]
async fn an_answer_is_sent_until_it_is_stored_and_the_job_runs_once() {
    let mut world = world().await;
    world.enrolled().await;
    let going = world.minion();
    let ran = world.config.state_dir.join("ran");
    let order = job(
        7,
        "cmd.run",
        json!({"cmd": format!("echo x >> {}", ran.display())}),
    );
    let (mut stream, _) = world.stream().await;
    stream.send(ToMinion::Job(order.clone())).await;
    assert_eq!(stream.returned().await.retcode, 0);
    drop(stream);

    let (mut stream, hello) = world.stream().await;
    assert!(hello.running_jobs.is_empty());
    assert_eq!(stream.returned().await.job, id(7), "handed in again");
    stream.send(ToMinion::Job(order.clone())).await;
    assert_eq!(stream.returned().await.job, id(7));
    stream
        .send(ToMinion::Stored(ReturnStored { job: id(7) }))
        .await;
    // Answered after `stored` was heard: messages keep their order.
    stream
        .send(ToMinion::Job(job(8, "test.ping", json!({}))))
        .await;
    assert_eq!(stream.returned().await.job, id(8));
    going.send_replace(true);
    drop(stream);

    let going = world.minion();
    let (mut stream, _) = world.stream().await;
    stream.send(ToMinion::Job(order)).await;
    let answer = stream.returned().await;
    assert_eq!(
        (answer.job, answer.retcode),
        (id(7), 2),
        "a finished job is never begun again"
    );
    assert_eq!(std::fs::read_to_string(&ran).unwrap(), "x\n");
    going.send_replace(true);
}
