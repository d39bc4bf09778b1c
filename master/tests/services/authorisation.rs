//! Every method, called by every kind of caller.

use halite_core::ca::Cas;
use halite_core::clock::{Clock as _, SystemClock};
use halite_errors::chain;
use halite_proto::identity::IdentityKind;
use halite_proto::pki::{Inspected, PrivateKey};
use halite_proto::tonic::{Code, Request, Status};
use halite_proto::transport::{Channel, ClientIdentity, connect};
use halite_proto::v1::enrolment_client::EnrolmentClient;
use halite_proto::v1::minion_client::MinionClient;
use halite_proto::v1::operator_client::OperatorClient;
use halite_proto::{METHODS, PROTOCOL, v1};
use halite_store::AuditFilter;

use super::declared::{JOB, MINION, OPERATOR_TAG, TAG, open_run, sha256, turn};
use super::site::{SOON, Site, identity, start, start_with_job};
use super::{kubeconfig, own_cas, sinks, standbys};

/// Calls a method in its intended way; returns the outcome.
async fn call(method: &str, channel: Channel, key: &PrivateKey, id: &str) -> Result<(), Status> {
    let csr_pem = key.request(id).unwrap();
    let mut enrolment = EnrolmentClient::new(channel.clone());
    let mut minion = MinionClient::new(channel.clone());
    let mut operator = OperatorClient::new(channel.clone());
    let (job, run) = (JOB.to_owned(), open_run());
    match method.strip_prefix("/halite.v1.").unwrap() {
        "Enrolment/Enrol" => {
            let request = v1::EnrolRequest {
                protocol: 1,
                id: id.to_owned(),
                csr_pem,
                ..Default::default()
            };
            enrolment.enrol(request).await.map(drop)
        }
        "Minion/Connect" => {
            let hello = v1::MinionHello {
                protocol: PROTOCOL,
                grains_json: "{}".to_owned(),
                ..Default::default()
            };
            let hello = v1::MinionMessage {
                body: Some(v1::minion_message::Body::Hello(hello)),
            };
            let mut stream = minion
                .connect(Request::new(futures_util::stream::iter([hello])))
                .await?
                .into_inner();
            stream.message().await.map(drop)
        }
        "Standby/Follow" => standbys::greet(channel).await,
        "Standby/Compare" => standbys::compare(channel).await,
        "Minion/Sign" => minion
            .sign(v1::SignRequest {
                job,
                tag: TAG.to_owned(),
                csr_pem,
            })
            .await
            .map(drop),
        "Minion/Fetch" => {
            let request = v1::FetchRequest {
                sha256: sha256(),
                job,
            };
            let mut pieces = minion.fetch(request).await?.into_inner();
            let mut content = Vec::new();
            while let Some(piece) = pieces.message().await? {
                content.extend(piece.data);
            }
            assert_eq!(content, b"content");
            Ok(())
        }
        "Minion/Renew" => minion.renew(v1::RenewRequest { csr_pem }).await.map(drop),
        "Minion/TakeTurn" => minion.take_turn(turn(job)).await.map(drop),
        "Operator/Status" => operator.status(v1::StatusRequest {}).await.map(drop),
        "Operator/Show" => operator.show(v1::ShowRequest::default()).await.map(drop),
        "Operator/Run" => {
            let mut events = operator.run(v1::RunRequest::default()).await?.into_inner();
            assert!(events.message().await?.unwrap().last);
            Ok(())
        }
        "Operator/Orchestrate" => operator
            .orchestrate(v1::OrchestrateRequest::default())
            .await
            .map(drop),
        "Operator/ListJobs" => operator
            .list_jobs(v1::ListJobsRequest::default())
            .await
            .map(drop),
        "Operator/CancelJob" => operator
            .cancel_job(v1::CancelJobRequest { job, force: false })
            .await
            .map(drop),
        "Operator/CancelRun" => operator.cancel_run(run).await.map(drop),
        "Operator/ShowJob" => operator
            .show_job(v1::ShowJobRequest { job })
            .await
            .map(drop),
        "Operator/ListKeys" => operator.list_keys(v1::ListKeysRequest {}).await.map(drop),
        "Operator/ChangeKey" => {
            let request = v1::ChangeKeyRequest {
                id: MINION.to_owned(),
                action: "accept".to_owned(),
                force: true,
                ..Default::default()
            };
            operator.change_key(request).await.map(drop)
        }
        "Operator/CreateToken" => operator
            .create_token(v1::CreateTokenRequest::default())
            .await
            .map(drop),
        "Operator/ListTokens" => operator
            .list_tokens(v1::ListTokensRequest {})
            .await
            .map(drop),
        "Operator/RevokeToken" => {
            let made = operator
                .create_token(v1::CreateTokenRequest::default())
                .await?
                .into_inner();
            operator
                .revoke_token(v1::RevokeTokenRequest {
                    token_id: made.token,
                })
                .await
                .map(drop)
        }
        "Operator/AddNode" => {
            let request = v1::AddNodeRequest {
                nodes: vec![v1::NewNode {
                    name: "worker-9".to_owned(),
                    address: "192.0.2.19".to_owned(),
                    ..v1::NewNode::default()
                }],
                roles: vec!["worker".to_owned()],
                ..Default::default()
            };
            let reply = operator.add_node(request).await?.into_inner();
            let added = &reply.nodes[0];
            assert_eq!((added.name.as_str(), reply.nodes.len()), ("worker-9", 1));
            let join = "sh join worker-9 --master 192.0.2.11:4550";
            let wanted = format!("{join}) <<E\n{}\nE", &added.token[..49]);
            assert!(added.command.ends_with(&wanted), "{}", added.command);
            Ok(())
        }
        "Operator/CreateOperator" => operator.create_operator(new_operator()).await.map(drop),
        "Operator/RenewOperator" => operator
            .renew_operator(v1::RenewOperatorRequest { csr_pem })
            .await
            .map(drop),
        "Operator/Kubeconfig" => kubeconfig::ask(channel, csr_pem).await,
        "Operator/RequestCa" | "Operator/ImportCa" => own_cas::call(method, channel).await,
        "Operator/HandOver" => operator
            .hand_over(v1::HandOverRequest::default())
            .await
            .map(drop),
        "Operator/ListOperators" => operator
            .list_operators(v1::ListOperatorsRequest {})
            .await
            .map(drop),
        "Operator/RevokeOperator" => {
            let request = new_operator();
            let name = request.name.clone();
            operator.create_operator(request).await?;
            let request = v1::RevokeOperatorRequest { name };
            operator.revoke_operator(request).await.map(drop)
        }
        "Operator/ReadAudit" => operator
            .read_audit(v1::ReadAuditRequest::default())
            .await
            .map(drop),
        "Operator/ListSinks" | "Operator/TestSinks" => sinks::call(method, channel).await,
        "Operator/Backup" => {
            let mut parts = operator.backup(v1::BackupRequest {}).await?.into_inner();
            while parts.message().await?.is_some() {}
            Ok(())
        }
        "Operator/Watch" => operator.watch(v1::WatchRequest::default()).await.map(drop),
        other => panic!("this test cannot call {other}: add it here"),
    }
}

/// A request for an operator with a unique name.
fn new_operator() -> v1::CreateOperatorRequest {
    let key = PrivateKey::generate().unwrap();
    let name = format!("o{}", key.fingerprint().replace(':', ""));
    let name = name[..32].to_owned();
    v1::CreateOperatorRequest {
        csr_pem: key.request(&name).unwrap(),
        name,
        role: "viewer".to_owned(),
        days: 1,
    }
}

pub async fn outcome(
    site: &Site,
    method: &str,
    identity: Option<&ClientIdentity>,
    id: &str,
) -> Result<Code, String> {
    let channel = match connect(&site.endpoint, &site.ca_pem, identity).await {
        Ok(channel) => channel,
        Err(error) => return Err(chain(&error)),
    };
    let key = identity.map_or_else(
        || PrivateKey::generate().unwrap(),
        |own| PrivateKey::from_pem(&own.key_pem).unwrap(),
    );
    match call(method, channel, &key, id).await {
        Ok(()) => Ok(Code::Ok),
        // The outcome of a call whose connection was refused in the handshake.
        Err(status) if status.code() == Code::Unavailable => Err(status.message().to_owned()),
        Err(status) => Ok(status.code()),
    }
}

/// Like [`outcome`], for an admitted caller: the result of its work does not matter.
pub async fn verdict(
    site: &Site,
    method: &str,
    identity: Option<&ClientIdentity>,
    id: &str,
) -> Result<Code, String> {
    match outcome(site, method, identity, id).await {
        Ok(code @ (Code::PermissionDenied | Code::Unauthenticated)) => Ok(code),
        // No member of etcd answers, for example.
        Err(reason) if reason.contains("identity") => Err(reason),
        _ => Ok(Code::Ok),
    }
}

#[tokio::test]
async fn every_method_by_every_kind_of_caller() {
    let site = start_with_job().await;
    let minion = site.enrolled(MINION).await;
    let operator = site.root();
    let master = site.identity(IdentityKind::Master, "other-master");
    for method in METHODS {
        let of = |service: &str| method.starts_with(&format!("/halite.v1.{service}/"));
        let none = if of("Enrolment") {
            Code::Ok
        } else {
            Code::Unauthenticated
        };
        assert_eq!(
            verdict(&site, method, None, "newcomer").await,
            Ok(none),
            "no certificate {method}"
        );
        for (who, identity, service) in [
            ("minion", &minion, "Minion"),
            ("operator", &operator, "Operator"),
            ("master", &master, "-"),
        ] {
            let is_own = of(service) || (who == "minion" && of("Standby"));
            let wanted = if is_own {
                Code::Ok
            } else {
                Code::PermissionDenied
            };
            assert_eq!(
                verdict(&site, method, Some(identity), MINION).await,
                Ok(wanted),
                "{who} {method}"
            );
        }
    }
    // Refusals and changes have lines with their callers; refusals are written a moment later.
    let written = async {
        while let Some(missing) = missing(&site).await {
            tracing::debug!(?missing, "not written yet");
        }
    };
    if tokio::time::timeout(SOON, written).await.is_err() {
        panic!("not in the audit: {:?}", missing(&site).await);
    }
}

type Line = (&'static str, &'static str, &'static str);

/// The first of the required audit lines that is missing.
async fn missing(site: &Site) -> Option<Line> {
    let wanted = [
        ("minion:worker-1", "Operator/ChangeKey", "refused"),
        ("master:other-master", "Operator/AddNode", "refused"),
        ("127.0.0.1", "Minion/Sign", "refused"),
        ("operator:root", "Operator/ChangeKey", "ok"),
        ("operator:root", "Operator/AddNode", "ok"),
        ("operator:root", "Operator/Kubeconfig", "ok"),
        ("operator:root", "Operator/HandOver", ""),
        ("minion:worker-1", "Operator/Kubeconfig", "refused"),
        ("minion:worker-1", "Minion/Sign", "ok"),
        ("127.0.0.1", "Enrolment/Enrol", "ok"),
    ];
    let audit = site
        .app
        .store
        .audit(&AuditFilter::newest(1000))
        .await
        .unwrap();
    wanted.into_iter().find(|(who, method, outcome)| {
        !audit.iter().any(|line| {
            line.who == *who && line.method == *method && line.outcome.starts_with(outcome)
        })
    })
}

#[tokio::test]
async fn a_call_that_its_caller_ends_is_neither_half_done_nor_missing_in_the_audit() {
    let site = start().await;
    let mut operator = OperatorClient::new(site.channel(Some(&site.root())).await);
    // Each of them gets a token, so the work takes a while.
    let names: Vec<String> = (0..100)
        .map(|number| format!("worker-1{number:02}"))
        .collect();
    let node = |name: &String| v1::NewNode {
        name: name.clone(),
        ..v1::NewNode::default()
    };
    let request = v1::AddNodeRequest {
        nodes: names.iter().map(node).collect(),
        roles: vec!["worker".to_owned()],
        ..Default::default()
    };
    let call = tokio::spawn(async move { operator.add_node(request).await });
    let store = &site.app.store;
    let newest = async || store.audit(&AuditFilter::newest(1)).await.unwrap().pop();
    let begins = async || newest().await.is_some_and(|line| line.outcome == "begins");
    site.until("the call is in the audit", begins).await;
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
    let ended = async || newest().await.is_some_and(|line| line.outcome == "ok");
    site.until("the call ends in the audit", ended).await;
    let line = newest().await.unwrap();
    assert_eq!(
        [line.who, line.method],
        ["operator:root", "Operator/AddNode"]
    );
    let tokens = store.tokens().await.unwrap();
    for name in names {
        let mut bound = tokens.iter().filter_map(|token| token.bound_id.as_ref());
        assert!(bound.any(|bound| bound.as_str() == name), "{name}");
    }
}

#[tokio::test]
async fn no_bad_certificate_reaches_any_method() {
    let site = start().await;
    let stranger = tempfile::TempDir::new().unwrap();
    let stranger = Cas::create_or_load(stranger.path(), "prod", SystemClock.now()).unwrap();
    let revoked = site.identity(IdentityKind::Operator, "fired");
    site.app.gate.revoke(
        &Inspected::from_pem(&revoked.certificate_pem)
            .unwrap()
            .serial,
    );
    let deleted = site.enrolled("worker-2").await;
    let order = halite_fleet::keys::KeyOrder {
        id: "worker-2".to_owned(),
        action: "delete".to_owned(),
        ..Default::default()
    };
    halite_fleet::keys::change(&site.app, &order).await.unwrap();
    let issued = site.app.store.certificates(9).await.unwrap();
    let cas = &site.app.cas;
    let callers = [
        (
            "expired operator",
            identity(cas, "prod", IdentityKind::Operator, "root", 400),
            "expired",
        ),
        (
            "expired minion",
            identity(cas, "prod", IdentityKind::Minion, MINION, 400),
            "expired",
        ),
        (
            "unknown CA",
            identity(&stranger, "prod", IdentityKind::Operator, "root", 0),
            "not signed by this cluster's CA",
        ),
        ("revoked operator", revoked, "does not accept this identity"),
        ("deleted minion", deleted, "does not accept this identity"),
        (
            "minion never accepted",
            site.identity(IdentityKind::Minion, "worker-3"),
            "does not accept this identity",
        ),
        (
            "other cluster",
            identity(cas, "other", IdentityKind::Operator, "root", 0),
            "cluster",
        ),
    ];
    for method in METHODS {
        for (who, identity, wanted) in &callers {
            let error = outcome(&site, method, Some(identity), MINION)
                .await
                .unwrap_err();
            assert!(error.contains(wanted), "{who} {method}: {error}");
        }
    }
    assert_eq!(site.app.store.jobs(1).await.unwrap(), []);
    assert_eq!(site.app.store.certificates(9).await.unwrap(), issued);
}

#[tokio::test]
async fn a_minion_gets_nothing_of_another() {
    let site = start_with_job().await;
    site.enrolled(MINION).await;
    let other = site.enrolled("worker-2").await;
    for method in ["Sign", "Fetch", "TakeTurn"] {
        let method = format!("/halite.v1.Minion/{method}");
        let found = outcome(&site, &method, Some(&other), "worker-2").await;
        assert_eq!(found, Ok(Code::PermissionDenied), "{method}");
    }
    // Its own certificate names it again, whatever name the request contains.
    let key = PrivateKey::from_pem(&other.key_pem).unwrap();
    let mut minion = MinionClient::new(site.channel(Some(&other)).await);
    let csr_pem = key.request(MINION).unwrap();
    let renewed = minion.renew(v1::RenewRequest { csr_pem }).await;
    let renewed = renewed.unwrap().into_inner();
    let found = Inspected::from_pem(&renewed.certificate_pem).unwrap();
    assert_eq!(found.identity().unwrap().id(), "worker-2");
}

#[tokio::test]
async fn a_signature_says_what_was_compiled() {
    let site = start_with_job().await;
    let minion = site.enrolled(MINION).await;
    let channel = site.channel(Some(&minion)).await;
    let key = PrivateKey::generate().unwrap();
    let request = v1::SignRequest {
        job: JOB.to_owned(),
        tag: TAG.to_owned(),
        csr_pem: key.request("system:masters").unwrap(),
    };
    let reply = MinionClient::new(channel.clone())
        .sign(request.clone())
        .await;
    let reply = reply.unwrap().into_inner();
    let found = Inspected::from_pem(&reply.certificate_pem).unwrap();
    assert_eq!(
        (found.subject.as_str(), found.issuer.as_str()),
        ("CN=worker-1", "CN=etcd-ca")
    );
    assert_eq!(found.fingerprint, key.fingerprint());
    let recorded = site.app.store.certificates(1).await.unwrap().swap_remove(0);
    assert_eq!(
        (
            recorded.serial,
            recorded.job.map(String::from),
            recorded.tag
        ),
        (found.serial, Some(request.job), request.tag)
    );

    let bad = v1::SignRequest {
        job: JOB.to_owned(),
        tag: TAG.to_owned(),
        csr_pem: "x".to_owned(),
    };
    let refused = MinionClient::new(channel).sign(bad).await.unwrap_err();
    let signed = site.app.metrics.signed.get();
    assert_eq!((refused.code(), signed), (Code::InvalidArgument, 1));
}

#[tokio::test]
async fn a_state_makes_root_on_its_host_an_operator() {
    let site = start_with_job().await;
    let minion = site.enrolled(MINION).await;
    let channel = site.channel(Some(&minion)).await;
    let key = PrivateKey::generate().unwrap();
    let request = v1::SignRequest {
        job: JOB.to_owned(),
        tag: OPERATOR_TAG.to_owned(),
        csr_pem: key.request("root").unwrap(),
    };
    let reply = MinionClient::new(channel).sign(request).await;
    let reply = reply.unwrap().into_inner();
    assert_eq!(reply.ca_pem, site.ca_pem);
    let own = ClientIdentity {
        certificate_pem: reply.certificate_pem,
        key_pem: key.to_pem(),
    };
    let mut operator = OperatorClient::new(site.channel(Some(&own)).await);
    let run = v1::RunRequest {
        function: "cmd.run".to_owned(),
        target: MINION.to_owned(),
        args_json: "{\"cmd\": \"true\"}".to_owned(),
        ..v1::RunRequest::default()
    };
    operator.run(run).await.unwrap();
    let job = site.app.store.jobs(1).await.unwrap().swap_remove(0);
    assert_eq!(job.operator, format!("root@{MINION}"));
}
