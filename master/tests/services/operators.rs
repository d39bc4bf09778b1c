//! Operators and their roles over the wire: created, listed, revoked, and the permissions of each
//! role.

use halite_proto::authz::{Verdict, judge};
use halite_proto::identity::IdentityKind;
use halite_proto::pki::PrivateKey;
use halite_proto::role::Role;
use halite_proto::tonic::{Code, Status};
use halite_proto::transport::ClientIdentity;
use halite_proto::v1::operator_client::OperatorClient;
use halite_proto::{METHODS, v1};
use halite_store::Job;
use serde_json::Value;

use super::authorisation::{outcome, verdict};
use super::declared::MINION;
use super::site::{SOON, Site, start, start_with_job};

/// Creates an operator over the wire.
pub async fn create(site: &Site, name: &str, role: &str) -> Result<ClientIdentity, Status> {
    let key = PrivateKey::generate().unwrap();
    let request = v1::CreateOperatorRequest {
        name: name.to_owned(),
        role: role.to_owned(),
        days: 0,
        csr_pem: key.request(name).unwrap(),
    };
    let mut root = OperatorClient::new(site.channel(Some(&site.root())).await);
    let reply = root.create_operator(request).await?.into_inner();
    assert_eq!(reply.ca_pem, site.ca_pem);
    Ok(ClientIdentity {
        certificate_pem: reply.certificate_pem,
        key_pem: key.to_pem(),
    })
}

fn run(function: &str) -> v1::RunRequest {
    v1::RunRequest {
        function: function.to_owned(),
        target: "*".to_owned(),
        ..v1::RunRequest::default()
    }
}

async fn revoke(site: &Site, by: &ClientIdentity, name: &str) -> Result<(), Status> {
    let mut operator = OperatorClient::new(site.channel(Some(by)).await);
    let name = name.to_owned();
    let request = v1::RevokeOperatorRequest { name };
    operator.revoke_operator(request).await.map(drop)
}

fn json(document: v1::Document) -> Value {
    serde_json::from_str(&document.json).unwrap()
}

#[tokio::test]
async fn every_method_by_every_role() {
    let site = start_with_job().await;
    site.enrolled(MINION).await;
    for role in Role::ALL {
        let identity = create(&site, role.as_str(), role.as_str()).await.unwrap();
        for method in METHODS {
            let wanted = match judge(method, Some(IdentityKind::Operator), Some(role)) {
                Verdict::Allowed => Code::Ok,
                _ => Code::PermissionDenied,
            };
            assert_eq!(
                verdict(&site, method, Some(&identity), MINION).await,
                Ok(wanted),
                "{role} {method}"
            );
        }
    }
}

#[tokio::test]
async fn a_role_allows_its_functions_and_the_refusal_is_in_the_audit() {
    let site = start().await;
    let no = Code::PermissionDenied;
    for (role, wanted) in [
        ("viewer", [Code::Ok, no, no]),
        ("deployer", [Code::Ok, Code::Ok, no]),
        ("admin", [Code::Ok; 3]),
    ] {
        let identity = create(&site, role, role).await.unwrap();
        let mut operator = OperatorClient::new(site.channel(Some(&identity)).await);
        for (function, wanted) in ["test.ping", "state.highstate", "cmd.run"]
            .into_iter()
            .zip(wanted)
        {
            let found = operator.run(run(function)).await;
            let code = found.map_or_else(|status| status.code(), |_| Code::Ok);
            assert_eq!(code == no, wanted == no, "{role} {function}: {code}");
        }
        let values = v1::OrchestrateRequest {
            sls: "own".to_owned(),
            pillar_json: "{\"node\": \"$(id)\"}".to_owned(),
            ..v1::OrchestrateRequest::default()
        };
        let refused = operator.orchestrate(values).await.err();
        let may = refused.is_none_or(|status| status.code() != no);
        assert_eq!(may, role == "admin", "{role}");
    }
    let jobs = site.app.store.jobs(100).await.unwrap();
    let is_forbidden = |job: &&Job| job.operator == "deployer" && job.function == "cmd.run";
    assert_eq!(jobs.iter().find(is_forbidden), None);
    let mut root = OperatorClient::new(site.channel(Some(&site.root())).await);
    let refused = async {
        loop {
            let request = v1::ReadAuditRequest {
                operator: "deployer".to_owned(),
                action: "Run".to_owned(),
                ..v1::ReadAuditRequest::default()
            };
            let audit = json(root.read_audit(request).await.unwrap().into_inner());
            let lines = audit["audit"].as_array().unwrap().clone();
            let outcome = |line: &Value| line["outcome"].as_str().unwrap().to_owned();
            if let Some(line) = lines.iter().find(|line| outcome(line).contains("cmd.run")) {
                return outcome(line);
            }
        }
    };
    let refused = tokio::time::timeout(SOON, refused).await.unwrap();
    assert!(
        refused
            .contains("operator:deployer has the role deployer, and cmd.run needs the role admin"),
        "{refused}"
    );
}

#[tokio::test]
async fn the_streams_of_a_revoked_operator_end_at_once() {
    let site = start().await;
    let alice = create(&site, "alice", "viewer").await.unwrap();
    let mut operator = OperatorClient::new(site.channel(Some(&alice)).await);
    // A minion that does not answer.
    site.enrolled(MINION).await;
    let ping = v1::RunRequest {
        target: MINION.to_owned(),
        ..run("test.ping")
    };
    let mut events = operator.run(ping).await.unwrap().into_inner();
    events.message().await.unwrap().unwrap();
    revoke(&site, &site.root(), "alice").await.unwrap();
    let end = tokio::time::timeout(SOON, events.message()).await;
    end.expect("the stream must end").unwrap_err();
    let back = outcome(&site, "/halite.v1.Operator/Status", Some(&alice), "alice").await;
    let error = back.unwrap_err();
    assert!(error.contains("does not accept this identity"), "{error}");
}

#[tokio::test]
async fn operators_are_listed_and_the_audit_has_each_step() {
    let site = start().await;
    create(&site, "alice", "deployer").await.unwrap();
    let viewer = create(&site, "carol", "viewer").await.unwrap();
    let last = revoke(&site, &site.root(), "root").await.unwrap_err();
    assert_eq!(last.code(), Code::FailedPrecondition, "{last}");
    revoke(&site, &site.root(), "alice").await.unwrap();
    let mut operator = OperatorClient::new(site.channel(Some(&viewer)).await);
    let listed = operator.list_operators(v1::ListOperatorsRequest {}).await;
    let listed = json(listed.unwrap().into_inner());
    let listed: Vec<[&str; 4]> = listed["operators"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| ["name", "role", "state", "by"].map(|key| one[key].as_str().unwrap()))
        .collect();
    assert_eq!(
        listed,
        [
            ["alice", "deployer", "revoked", "root"],
            ["carol", "viewer", "valid", "root"],
            ["root", "admin", "valid", "halite-master init"],
        ]
    );
    for (action, wanted) in [
        (
            "RevokeOperator",
            [
                ["alice", "ok"],
                ["alice", "begins"],
                ["root", "refused: cannot revoke root, the last administrator; first: ctl operator create NAME --role admin"],
                ["root", "begins"],
            ]
            .as_slice(),
        ),
        (
            "createoperator",
            &[
                ["carol as viewer", "ok"],
                ["carol as viewer", "begins"],
                ["alice as deployer", "ok"],
                ["alice as deployer", "begins"],
            ],
        ),
    ] {
        let request = v1::ReadAuditRequest {
            action: action.to_owned(),
            ..v1::ReadAuditRequest::default()
        };
        let audit = json(operator.read_audit(request).await.unwrap().into_inner());
        let lines: Vec<[&str; 2]> = audit["audit"]
            .as_array()
            .unwrap()
            .iter()
            .map(|line| ["what", "outcome"].map(|key| line[key].as_str().unwrap()))
            .collect();
        assert_eq!(lines, wanted, "{action}");
    }
    let request = v1::ReadAuditRequest {
        action: "Revoke".to_owned(),
        ..v1::ReadAuditRequest::default()
    };
    let unknown = operator.read_audit(request).await.unwrap_err();
    assert_eq!(unknown.code(), Code::InvalidArgument, "{unknown}");
}
