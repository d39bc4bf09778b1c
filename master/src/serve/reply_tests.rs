//! The master's answers that are messages, not documents, as `ctl` receives them.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use halite_api::BackupHead;
use halite_core::clock::ManualClock;
use halite_etcd::fake::FakeCluster;
use halite_proto::identity::{Identity, IdentityKind};
use halite_proto::pki::PrivateKey;
use halite_proto::role::Role;
use halite_proto::tonic::Request;
use halite_proto::transport::{Caller, Peer};
use halite_proto::v1;
use halite_proto::v1::backup_part::Part;
use halite_proto::v1::operator_server::Operator;
use halite_testkit::empty_etcd_snapshot;
use serde_json::{Value, json, to_value};

use super::Services;
use crate::backend::contract::check;
use crate::backend::fixture::{Life, Site};

const NOW: i64 = 1_800_000_000_000;
/// Replaces the random part of a token.
const TOKEN: &str = "6e6f746f.7365637265746b";

fn site() -> Site {
    let mut site = Site::new(&[("top.sls", "base: {}\n")]);
    let cluster = FakeCluster::new(&["bootstrap-1"]);
    cluster.set_snapshot(empty_etcd_snapshot().chunks(1000).map(Vec::from).collect());
    site.etcd = Some((Arc::new(cluster), Duration::ZERO));
    site
}

fn life(site: &Site) -> Life {
    site.live_at(Arc::new(ManualClock::at(NOW)))
}

fn services(life: &Life) -> Services {
    Services {
        app: Arc::clone(&life.app),
        backend: Arc::clone(&life.backend),
        shares: Arc::default(),
    }
}

/// A request of the administrator `alice`.
fn request<T>(message: T) -> Request<T> {
    request_of("alice", message)
}

/// A request of this operator.
fn request_of<T>(operator: &str, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.extensions_mut().insert(Peer {
        caller: Some(Caller {
            identity: Identity::new("test", IdentityKind::Operator, operator).unwrap(),
            fingerprint: "ab".repeat(32),
            serial: "01".to_owned(),
            not_after: i64::MAX,
        }),
        role: Some(Role::Admin),
        address: (Ipv4Addr::LOCALHOST, 4550).into(),
    });
    request
}

fn csr_pem(name: &str) -> String {
    PrivateKey::generate().unwrap().request(name).unwrap()
}

/// The digest of a random certificate.
fn digest() -> String {
    "ab".repeat(32)
}

/// A new node whose command has replacements for its token and for the digest of the CA.
fn steady(node: v1::AddedNode) -> v1::AddedNode {
    let (token, _) = node.token.rsplit_once('.').unwrap();
    let command = node.command.replace(token, TOKEN);
    let (before, after) = command.split_once("echo \"").unwrap();
    let (_, after) = after.split_once(' ').unwrap();
    v1::AddedNode {
        command: format!("{before}echo \"{} {after}", digest()),
        ..node
    }
}

#[test]
fn replies_to_who_joins_or_operates_the_cluster() {
    let site = site();
    let life = life(&site);
    let services = services(&life);
    life.runtime.block_on(async {
        let token = v1::CreateTokenRequest {
            roles: vec!["worker".to_owned()],
            ..v1::CreateTokenRequest::default()
        };
        let reply = services.create_token(request(token)).await.unwrap();
        check("create-token-reply", to_value(reply.into_inner()).unwrap());

        let nodes = v1::AddNodeRequest {
            nodes: vec![v1::NewNode {
                name: "worker-2".to_owned(),
                address: "10.10.1.13".to_owned(),
                ..v1::NewNode::default()
            }],
            roles: vec!["worker".to_owned()],
            ..v1::AddNodeRequest::default()
        };
        let reply = services.add_node(request(nodes)).await.unwrap();
        let v1::AddNodeReply { nodes, warnings } = reply.into_inner();
        let nodes = nodes.into_iter().map(steady).collect();
        let reply = v1::AddNodeReply { nodes, warnings };
        check("add-node-reply", to_value(reply).unwrap());

        let bob = v1::CreateOperatorRequest {
            name: "bob".to_owned(),
            role: "viewer".to_owned(),
            days: 0,
            csr_pem: csr_pem("bob"),
        };
        let renewal = v1::RenewOperatorRequest {
            csr_pem: bob.csr_pem.clone(),
        };
        let reply = services.create_operator(request(bob)).await.unwrap();
        check(
            "create-operator-reply",
            to_value(reply.into_inner()).unwrap(),
        );

        let renewal = request_of("bob", renewal);
        let reply = services.renew_operator(renewal).await.unwrap();
        check(
            "renew-operator-reply",
            to_value(reply.into_inner()).unwrap(),
        );

        let access = v1::KubeconfigRequest {
            csr_pem: csr_pem("kubeconfig"),
            ttl_seconds: 3600,
            ..v1::KubeconfigRequest::default()
        };
        let reply = services.kubeconfig(request(access)).await.unwrap();
        check("kubeconfig-reply", to_value(reply.into_inner()).unwrap());
    });
    drop(services);
    life.kill();
}

#[test]
fn the_parts_of_a_backup() {
    let site = site();
    let life = life(&site);
    let services = services(&life);
    let parts = life.runtime.block_on(async {
        let parts = services.backup(request(v1::BackupRequest {})).await;
        parts.unwrap().into_inner().collect::<Vec<_>>().await
    });
    let mut parts = parts.into_iter().map(|part| part.unwrap().part.unwrap());
    let Some(Part::HeadJson(head)) = parts.next() else {
        panic!("the head must come first");
    };
    let mut head: BackupHead = serde_json::from_str(&head).unwrap();
    head.cluster_id = digest();
    let parts: Vec<Part> = parts.collect();
    assert_eq!(parts.last(), Some(&Part::End(true)));
    let files = parts.into_iter().filter_map(|part| match part {
        Part::File(file) => Some(json!({"path": file.path, "mode": file.mode})),
        _ => None,
    });
    let files: Vec<Value> = files.collect();
    check("backup-parts", json!({"head": head, "files": files}));
    drop(services);
    life.kill();
}
