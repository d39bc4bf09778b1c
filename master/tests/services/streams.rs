//! The life of a minion's stream.

use halite_fleet::keys;
use halite_proto::PROTOCOL;
use halite_proto::WATCH_POSITION;
use halite_proto::pki::PrivateKey;
use halite_proto::tonic::{Code, Request, Response, Status, Streaming};
use halite_proto::transport::{ClientIdentity, connect_pinned};
use halite_proto::v1;
use halite_proto::v1::enrolment_client::EnrolmentClient;
use halite_proto::v1::minion_client::MinionClient;
use halite_proto::v1::operator_client::OperatorClient;
use halite_proto::v1::{
    Epoch, MasterMessage, MinionHello, MinionMessage, master_message, minion_message,
};
use halite_store::{AuditFilter, RowState};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::declared::{JOB, MINION, TAG, minion_id};
use super::site::{SOON, Site, start, start_with_job};

type Line = (mpsc::Sender<MinionMessage>, Streaming<MasterMessage>);

fn hello(protocol: u32) -> MinionMessage {
    let hello = MinionHello {
        protocol,
        version: "1.2.3".to_owned(),
        grains_json: "{\"id\":\"worker-1\"}".to_owned(),
        ..MinionHello::default()
    };
    MinionMessage {
        body: Some(minion_message::Body::Hello(hello)),
    }
}

fn returned(job: &str) -> MinionMessage {
    let returned = v1::JobReturn {
        job: job.to_owned(),
        return_json: "{}".to_owned(),
        ..Default::default()
    };
    MinionMessage {
        body: Some(minion_message::Body::Returned(returned)),
    }
}

async fn open(site: &Site, identity: &ClientIdentity, first: MinionMessage) -> Line {
    let channel = site.channel(Some(identity)).await;
    let (sender, receiver) = mpsc::channel(8);
    sender.send(first).await.unwrap();
    let stream = MinionClient::new(channel)
        .connect(Request::new(ReceiverStream::new(receiver)))
        .await
        .unwrap();
    (sender, stream.into_inner())
}

async fn next(stream: &mut Streaming<MasterMessage>) -> Option<master_message::Body> {
    let message = tokio::time::timeout(SOON, stream.message())
        .await
        .expect("nothing comes");
    message.ok().flatten().and_then(|message| message.body)
}

#[tokio::test]
async fn hello_jobs_and_returns_travel() {
    let site = start_with_job().await;
    let minion = site.enrolled(MINION).await;
    let (sender, mut stream) = open(&site, &minion, hello(PROTOCOL)).await;
    let Some(master_message::Body::Hello(answer)) = next(&mut stream).await else {
        panic!("no hello")
    };
    assert_eq!((answer.protocol, answer.refused.as_str()), (2, ""));
    assert!(answer.evidence.unwrap().is_proven(&site.ca_pem));
    assert_eq!(answer.masters, ["192.0.2.11:4550", "192.0.2.12:4550"]);
    assert!(
        site.app
            .connections
            .wait_connected(&minion_id(), SOON)
            .await
    );
    assert_eq!(site.app.metrics.connected.get(), 1);
    let facts = site.app.store.facts(&minion_id()).await.unwrap().unwrap();
    assert_eq!(
        (facts.version.as_str(), facts.grains_json.as_str()),
        ("1.2.3", "{\"id\":\"worker-1\"}")
    );

    // Its pending messages arrive without a request.
    let Some(master_message::Body::Job(job)) = next(&mut stream).await else {
        panic!("no job")
    };
    assert_eq!(job.job, JOB);
    sender.send(returned(JOB)).await.unwrap();
    let Some(master_message::Body::Stored(stored)) = next(&mut stream).await else {
        panic!("not stored")
    };
    assert_eq!(stored.job, JOB);
    let (job_id, minion) = (JOB.parse().unwrap(), minion_id());
    let row = site.app.store.row(&job_id, &minion).await.unwrap().unwrap();
    assert_eq!(row.state, RowState::Returned);
    let grains = v1::Grains {
        grains_json: "{\"new\":1}".to_owned(),
    };
    sender
        .send(MinionMessage {
            body: Some(minion_message::Body::Grains(grains)),
        })
        .await
        .unwrap();
    let known = async || {
        let facts = site.app.store.facts(&minion_id()).await.unwrap();
        facts.unwrap().grains_json == "{\"new\":1}"
    };
    site.until("the new grains are stored", known).await;

    drop(sender);
    let gone = async || !site.app.connections.is_connected(&minion_id());
    site.until("the minion is disconnected", gone).await;
    let job = MasterMessage {
        body: Some(master_message::Body::Job(job)),
    };
    assert!(site.app.connections.send(&minion_id(), job).await.is_err());
}

#[tokio::test]
async fn another_protocol_is_refused_with_a_reason() {
    let site = start().await;
    let minion = site.enrolled(MINION).await;
    for protocol in [0, 3] {
        let (_sender, mut stream) = open(&site, &minion, hello(protocol)).await;
        let Some(master_message::Body::Hello(answer)) = next(&mut stream).await else {
            panic!("no hello")
        };
        assert!(
            answer.refused.contains("update the older"),
            "{}",
            answer.refused
        );
        assert_eq!(next(&mut stream).await, None);
    }
    assert!(!site.app.connections.is_connected(&minion_id()));
}

#[tokio::test]
async fn a_stream_without_hello_is_refused() {
    let site = start().await;
    let minion = site.enrolled(MINION).await;
    let channel = site.channel(Some(&minion)).await;
    let stream = futures_util::stream::iter([returned("7")]);
    let refused = MinionClient::new(channel)
        .connect(Request::new(stream))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_master_stops_when_a_minion_has_obeyed_a_higher_epoch() {
    let site = start().await;
    let minion = site.enrolled(MINION).await;
    let mut first = hello(1);
    if let Some(minion_message::Body::Hello(hello)) = &mut first.body {
        let next = site.app.store.epoch() + 1;
        hello.obeyed = Some(site.app.cas.sign_epoch(next, "cp-2-22").unwrap());
    }
    let channel = site.channel(Some(&minion)).await;
    let stream = futures_util::stream::iter([first]);
    let refused = MinionClient::new(channel)
        .connect(Request::new(stream))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("was replaced"), "{refused}");
    let replaced = tokio::time::timeout(SOON, site.app.succession.replaced()).await;
    assert_eq!(replaced.unwrap().witness, "minion:worker-1");
    assert!(!site.app.connections.is_connected(&minion_id()));
}

#[tokio::test]
async fn a_minion_that_claims_an_epoch_without_evidence_is_refused_and_stops_no_master() {
    let site = start().await;
    let minion = site.enrolled(MINION).await;
    let own = site.app.succession.own().clone();
    let numbers = [u64::MAX, 1 << 63, i64::MAX.unsigned_abs(), 1 << 62].map(|n| (Some(n), None));
    let raised = Epoch {
        number: own.number + 1,
        ..own.clone()
    };
    let claims = [(Some(own.number + 1), None), (None, Some(raised))];
    for (epoch, obeyed) in numbers.into_iter().chain(claims) {
        let mut first = hello(1);
        if let Some(minion_message::Body::Hello(hello)) = &mut first.body {
            (hello.epoch, hello.obeyed) = (epoch, obeyed);
        }
        let channel = site.channel(Some(&minion)).await;
        let stream = futures_util::stream::iter([first]);
        let refused = MinionClient::new(channel)
            .connect(Request::new(stream))
            .await
            .unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        assert!(refused.message().contains("cannot believe"), "{refused}");
    }
    // It still serves, including the same host once that tells the truth.
    let (_sender, mut stream) = open(&site, &minion, hello(1)).await;
    next(&mut stream).await.unwrap();
}

#[tokio::test]
async fn the_newer_stream_of_a_minion_wins() {
    let site = start().await;
    let minion = site.enrolled(MINION).await;
    let (_old_sender, mut old) = open(&site, &minion, hello(1)).await;
    next(&mut old).await.unwrap();
    let (_sender, mut new) = open(&site, &minion, hello(1)).await;
    next(&mut new).await.unwrap();
    assert_eq!(next(&mut old).await, None, "the old one ends");
    assert!(
        site.app.connections.is_connected(&minion_id()),
        "the end of the old one does not take the new one out"
    );
    let cancel = MasterMessage {
        body: Some(master_message::Body::Cancel(v1::Cancel {
            job: "1".to_owned(),
            ..v1::Cancel::default()
        })),
    };
    site.app
        .connections
        .send(&minion_id(), cancel.clone())
        .await
        .unwrap();
    assert_eq!(next(&mut new).await, cancel.body);
}

#[tokio::test]
async fn a_return_that_cannot_be_stored_ends_the_stream_so_that_it_is_said_again() {
    let site = start().await;
    let minion = site.enrolled(MINION).await;
    let (sender, mut stream) = open(&site, &minion, hello(1)).await;
    next(&mut stream).await.unwrap();
    sender.send(returned("cannot be stored")).await.unwrap();
    assert_eq!(next(&mut stream).await, None);
}

#[tokio::test]
async fn deleting_a_connected_minion_needs_the_name_of_the_cluster_and_cuts_it_off() {
    let site = start().await;
    let minion = site.enrolled(MINION).await;
    let (_sender, mut stream) = open(&site, &minion, hello(1)).await;
    next(&mut stream).await.unwrap();
    let mut operator = OperatorClient::new(site.channel(Some(&site.root())).await);
    let request = v1::ChangeKeyRequest {
        id: MINION.to_owned(),
        action: "delete".to_owned(),
        ..Default::default()
    };
    let refused = operator.change_key(request.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("--force"), "{refused}");
    let request = v1::ChangeKeyRequest {
        force: true,
        cluster: "prod".to_owned(),
        ..request
    };
    operator.change_key(request).await.unwrap();
    assert_eq!(next(&mut stream).await, None);
    let channel = site.channel(Some(&minion)).await;
    let why = tokio::time::timeout(SOON, channel.closed())
        .await
        .expect("the connection must end");
    assert!(why.contains("does not accept this identity"), "{why}");
}

#[tokio::test]
async fn streams_end_when_the_master_stops() {
    let mut site = start().await;
    let minion = site.enrolled(MINION).await;
    let (_sender, mut stream) = open(&site, &minion, hello(1)).await;
    next(&mut stream).await.unwrap();
    let mut operator = OperatorClient::new(site.channel(Some(&site.root())).await);
    let events = operator.watch(v1::WatchRequest::default()).await.unwrap();
    let position = events.metadata().get(WATCH_POSITION).unwrap();
    // The enrolment was stored before.
    assert!(position.to_str().unwrap().parse::<i64>().unwrap() > 0);
    let mut events = events.into_inner();
    drop(site.stop.take());
    // The master ends both. A stream that is cut at the end of its patience ends with an error of
    // the connection.
    let ended = tokio::time::timeout(SOON, stream.message()).await;
    let ended = ended.expect("the minion's stream must end").unwrap();
    assert_eq!(ended, None);
    let ended = tokio::time::timeout(SOON, events.message()).await;
    let ended = ended.expect("the events must end").unwrap_err();
    assert_eq!(
        (ended.code(), ended.message()),
        (Code::Unavailable, "the master is stopping")
    );
    tokio::time::timeout(SOON, site.task)
        .await
        .expect("the master must stop")
        .unwrap();
}

/// Enrols as a new host does, which identifies the master by its token alone.
pub async fn enrol(
    site: &Site,
    id: &str,
    key: &PrivateKey,
    token: &str,
) -> Result<v1::EnrolReply, Status> {
    let ca_sha256 = token.rsplit('.').next().unwrap();
    let pinned = connect_pinned(&site.endpoint, ca_sha256).await.unwrap();
    let request = v1::EnrolRequest {
        protocol: 1,
        id: id.to_owned(),
        csr_pem: key.request(id).unwrap(),
        token: token.to_owned(),
        grains_json: "{}".to_owned(),
    };
    let mut enrolment = EnrolmentClient::new(pinned.channel);
    enrolment.enrol(request).await.map(Response::into_inner)
}

/// Otherwise any holder of a token could become a declared control plane that has not joined yet,
/// and get the keys of the CAs.
#[tokio::test]
async fn a_token_for_any_host_makes_no_control_plane() {
    let site = start().await;
    let nodes = site.directory.path().join("etc/nodes");
    std::fs::create_dir_all(&nodes).unwrap();
    let document =
        "apiVersion: halite/v1\nkind: Node\nmetadata: {name: cp-2}\nroles: [control-plane, etcd]\n";
    std::fs::write(nodes.join("cp-2.yaml"), document).unwrap();
    let mut operator = OperatorClient::new(site.channel(Some(&site.root())).await);
    let mut tokens = Vec::new();
    for id in ["", "cp-2"] {
        let wanted = v1::CreateTokenRequest {
            id: id.to_owned(),
            ..v1::CreateTokenRequest::default()
        };
        let made = operator.create_token(wanted).await.unwrap();
        tokens.push(made.into_inner().token);
    }
    let key = PrivateKey::generate().unwrap();
    let refused = enrol(&site, "cp-2", &key, &tokens[0]).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    assert!(
        refused
            .message()
            .ends_with("but cp-2 is declared with control-plane; use a token for this host: ctl token create --id cp-2"),
        "{refused}"
    );
    // The remedy works.
    let reply = enrol(&site, "cp-2", &key, &tokens[1]).await.unwrap();
    assert_eq!(reply.state(), v1::enrol_reply::State::Accepted);
}

/// The same for a host that enrols before it is declared, or before it gets the role.
#[tokio::test]
async fn a_token_for_any_host_makes_no_control_plane_later() {
    let site = start().await;
    let mut operator = OperatorClient::new(site.channel(Some(&site.root())).await);
    let key = PrivateKey::generate().unwrap();
    let any = keys::TokenRequest::default();
    let (token, _) = keys::create_token(&site.app, "root", any).await.unwrap();
    enrol(&site, "cp-3", &key, &token).await.unwrap();
    let add = |roles: &[&str]| v1::AddNodeRequest {
        nodes: vec![v1::NewNode {
            name: "cp-3".to_owned(),
            address: "192.0.2.13".to_owned(),
            ..v1::NewNode::default()
        }],
        roles: roles.iter().map(|role| (*role).to_owned()).collect(),
        ..v1::AddNodeRequest::default()
    };
    let added = operator.add_node(add(&["control-plane", "etcd"])).await;
    let refused = added.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let remedy = "token for it: ctl token create --id cp-3 --roles control-plane,etcd";
    assert!(refused.message().ends_with(remedy), "{refused}");
    assert!(!site.directory.path().join("etc/nodes/cp-3.yaml").exists());
    operator.add_node(add(&["worker"])).await.unwrap();
    let change = v1::OrchestrateRequest {
        sls: "halite.orchestrate.add_node".to_owned(),
        pillar_json: r#"{"node": "cp-3", "roles": ["worker", "etcd"]}"#.to_owned(),
        ..v1::OrchestrateRequest::default()
    };
    let refused = operator.orchestrate(change).await.unwrap_err();
    assert!(
        refused.message().contains("cannot give cp-3 the role etcd"),
        "{refused}"
    );
}

/// Whatever its states request, also states that its grains have added.
#[tokio::test]
async fn a_worker_gets_no_certificate_of_etcd() {
    let site = start_with_job().await;
    let minion = site.enrolled(MINION).await;
    let mut client = MinionClient::new(site.channel(Some(&minion)).await);
    let request = v1::SignRequest {
        job: JOB.to_owned(),
        tag: TAG.to_owned(),
        csr_pem: PrivateKey::generate().unwrap().request(MINION).unwrap(),
    };
    client.sign(request.clone()).await.unwrap();
    let document = site.directory.path().join("etc/nodes/worker-1.yaml");
    let text = std::fs::read_to_string(&document).unwrap();
    std::fs::write(&document, text.replace("etcd, control-plane", "worker")).unwrap();
    let refused = client.sign(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    assert!(
        refused.message().contains("only hosts with the role"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_newcomer_with_nothing_but_a_token_becomes_a_minion() {
    let site = start().await;
    let mut operator = OperatorClient::new(site.channel(Some(&site.root())).await);
    let wanted = v1::CreateTokenRequest {
        id: "worker-5".to_owned(),
        ..Default::default()
    };
    let token = operator
        .create_token(wanted)
        .await
        .unwrap()
        .into_inner()
        .token;
    let key = PrivateKey::generate().unwrap();
    let reply = enrol(&site, "worker-5", &key, &token).await.unwrap();
    assert_eq!(reply.state(), v1::enrol_reply::State::Accepted);
    assert_eq!(reply.fingerprint, key.fingerprint());
    let identity = ClientIdentity {
        certificate_pem: reply.certificate_pem,
        key_pem: key.to_pem(),
    };
    let (_sender, mut stream) = open(&site, &identity, hello(1)).await;
    assert!(matches!(
        next(&mut stream).await,
        Some(master_message::Body::Hello(_))
    ));
    let listed = operator
        .list_keys(v1::ListKeysRequest {})
        .await
        .unwrap()
        .into_inner()
        .json;
    assert!(listed.contains("\"connected\":true"), "{listed}");
    // The secret appears nowhere afterwards.
    let secret = token.split('.').nth(1).unwrap();
    let audit = format!(
        "{:?}",
        site.app
            .store
            .audit(&AuditFilter::newest(100))
            .await
            .unwrap()
    );
    assert!(!audit.contains(secret));
    for directory in ["state", "etc"] {
        for file in std::fs::read_dir(site.directory.path().join(directory)).unwrap() {
            let path = file.unwrap().path();
            if path.is_file() {
                let bytes = std::fs::read(&path).unwrap();
                assert!(
                    !bytes
                        .windows(secret.len())
                        .any(|part| part == secret.as_bytes()),
                    "{}",
                    path.display()
                );
            }
        }
    }
}
