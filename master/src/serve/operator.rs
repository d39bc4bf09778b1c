//! The service for operators; `ctl` is its client.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _};
use halite_core::clock::rfc3339;
use halite_core::declared::node_roles;
use halite_core::event_stream::EventStream;
use halite_fleet::jobs::function::Function;
use halite_fleet::keys;
use halite_fleet::keys::{KeyOrder, TokenRequest};
use halite_orchestrate::ignored;
use halite_proto::WATCH_POSITION;
use halite_proto::tonic;
use halite_proto::tonic::{Request, Response, Status};
use halite_proto::transport::Peer;
use halite_proto::v1::operator_server::Operator;
use halite_proto::v1::{
    AddNodeReply, AddNodeRequest, AddedNode, BackupPart, BackupRequest, CancelJobRequest,
    CancelRunRequest, ChangeKeyRequest, CreateOperatorReply, CreateOperatorRequest,
    CreateTokenReply, CreateTokenRequest, Document, Event, HandOverRequest, ImportCaRequest,
    KubeconfigReply, KubeconfigRequest, ListJobsRequest, ListKeysRequest, ListOperatorsRequest,
    ListSinksRequest, ListTokensRequest, OrchestrateRequest, ReadAuditRequest,
    RenewOperatorRequest, RequestCaRequest, RevokeOperatorRequest, RevokeTokenRequest, RunRequest,
    ShowJobRequest, ShowRequest, StatusRequest, TestSinksRequest, WatchRequest,
};
use halite_states::shipped;

use super::added::{command, named};
use super::roles::{check_function, check_pillar, withhold};
use super::watch::watch;
use super::{Call, Services, caller_id, kubeconfig, own_cas, status};
use crate::operator::{audit, document, hand_over, history};

/// The number of listed jobs: default and maximum.
const JOBS: (u32, u32) = (20, 1000);

type Parts = Pin<Box<dyn Stream<Item = Result<BackupPart, Status>> + Send>>;
type Events = Pin<Box<dyn Stream<Item = Result<Event, Status>> + Send>>;

fn events(stream: EventStream) -> Events {
    Box::pin(stream.map(|event| event.map_err(status)))
}

#[tonic::async_trait]
impl Operator for Services {
    async fn status(&self, request: Request<StatusRequest>) -> Result<Response<Document>, Status> {
        let peer = Peer::of(&request)?;
        let call = Call::new(peer, "Operator/Status", String::new());
        self.counted(call, async { Ok(document(&self.backend.status().await?)) })
            .await
    }

    async fn show(&self, request: Request<ShowRequest>) -> Result<Response<Document>, Status> {
        let peer = Peer::of(&request)?.clone();
        let request = request.into_inner();
        // The document may contain the content of files, so the audit names the operator who reads
        // it.
        let call = Call::new(
            &peer,
            "Operator/Show",
            format!("{} {}", request.what, request.target),
        );
        let backend = Arc::clone(&self.backend);
        self.audited(call, async move { backend.show(request).await })
            .await
    }

    type RunStream = Events;

    async fn run(&self, request: Request<RunRequest>) -> Result<Response<Self::RunStream>, Status> {
        let peer = Peer::of(&request)?.clone();
        let operator = caller_id(&peer)?.to_owned();
        let request = request.into_inner();
        self.check(
            &peer,
            "Operator/Run",
            check_function(&peer, &request.function),
        )?;
        let test = if request.test { " (test)" } else { "" };
        let what = format!("{} on {}{test}", request.function, request.target);
        let call = Call::new(&peer, "Operator/Run", what);
        let query = Function::find(&request.function).is_ok_and(Function::is_query);
        let backend = Arc::clone(&self.backend);
        let work = async move { Ok(events(backend.run(&operator, request).await?)) };
        // The record of the job names the operator already; the answer need not wait for an audit
        // line.
        if query {
            self.counted(call, work).await
        } else {
            self.audited(call, work).await
        }
    }

    type BackupStream = Parts;

    async fn backup(
        &self,
        request: Request<BackupRequest>,
    ) -> Result<Response<Self::BackupStream>, Status> {
        let peer = Peer::of(&request)?;
        let call = Call::new(peer, "Operator/Backup", String::new());
        let backend = Arc::clone(&self.backend);
        self.audited(call, async move {
            let parts = backend.backup().await?;
            Ok(Box::pin(parts.map(|part| part.map_err(status))) as Parts)
        })
        .await
    }

    async fn kubeconfig(
        &self,
        request: Request<KubeconfigRequest>,
    ) -> Result<Response<KubeconfigReply>, Status> {
        kubeconfig::sign(self, request).await
    }

    async fn request_ca(
        &self,
        request: Request<RequestCaRequest>,
    ) -> Result<Response<Document>, Status> {
        own_cas::request(self, request).await
    }

    async fn import_ca(
        &self,
        request: Request<ImportCaRequest>,
    ) -> Result<Response<Document>, Status> {
        own_cas::import(self, request).await
    }

    async fn hand_over(
        &self,
        request: Request<HandOverRequest>,
    ) -> Result<Response<Document>, Status> {
        let peer = Peer::of(&request)?.clone();
        let request = request.into_inner();
        let backend = Arc::clone(&self.backend);
        let call = Call::new(&peer, "Operator/HandOver", hand_over::words(&request));
        let is_question = request.check_only;
        let work = async move { Ok(document(&backend.hand_over(request).await?)) };
        if is_question {
            self.counted(call, work).await
        } else {
            self.audited(call, work).await
        }
    }

    type OrchestrateStream = Events;

    async fn orchestrate(
        &self,
        request: Request<OrchestrateRequest>,
    ) -> Result<Response<Self::OrchestrateStream>, Status> {
        let peer = Peer::of(&request)?.clone();
        let operator = caller_id(&peer)?.to_owned();
        let request = request.into_inner();
        let checked = check_pillar(&peer, &request.pillar_json);
        self.check(&peer, "Operator/Orchestrate", checked)?;
        let test = if request.test { " (test)" } else { "" };
        let ignored = ignored(&request.pillar_json);
        let ignored =
            ignored.map_or_else(String::new, |names| format!(" (ignores preflight {names})"));
        let what = format!("{}{test}{ignored}", request.sls);
        let call = Call::new(&peer, "Operator/Orchestrate", what);
        let Self { app, backend, .. } = self.clone();
        self.audited(call, async move {
            if request.sls == shipped::ADD_NODE {
                keys::check_role_change(&app, &request.pillar_json).await?;
            }
            Ok(events(backend.orchestrate(&operator, request).await?))
        })
        .await
    }

    type WatchStream = Events;

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let peer = Peer::of(&request)?;
        let request = request.get_ref().clone();
        let call = Call::new(peer, "Operator/Watch", request.prefix.clone());
        let mut position = 0;
        let watched = self.counted(call, async {
            let (stream, after) = watch(&self.app, peer.role, request).await?;
            position = after;
            Ok(events(stream))
        });
        let mut watched = watched.await?;
        let metadata = watched.metadata_mut();
        metadata.insert(WATCH_POSITION, position.into());
        Ok(watched)
    }

    async fn list_jobs(
        &self,
        request: Request<ListJobsRequest>,
    ) -> Result<Response<Document>, Status> {
        let peer = Peer::of(&request)?;
        let limit = match request.get_ref().limit {
            0 => JOBS.0,
            limit => limit.min(JOBS.1),
        };
        let call = Call::new(peer, "Operator/ListJobs", String::new());
        self.counted(call, async {
            let jobs = self.backend.list_jobs(limit).await?;
            Ok(document(&withhold(peer.role, jobs)))
        })
        .await
    }

    async fn show_job(
        &self,
        request: Request<ShowJobRequest>,
    ) -> Result<Response<Document>, Status> {
        let peer = Peer::of(&request)?;
        let job = &request.get_ref().job;
        let call = Call::new(peer, "Operator/ShowJob", job.clone());
        self.counted(call, async {
            let job = self.backend.show_job(&job.parse()?).await?;
            Ok(document(&withhold(peer.role, job)))
        })
        .await
    }

    async fn cancel_job(
        &self,
        request: Request<CancelJobRequest>,
    ) -> Result<Response<Document>, Status> {
        let peer = Peer::of(&request)?.clone();
        let operator = caller_id(&peer)?.to_owned();
        let request = request.into_inner();
        let force = if request.force { " (force)" } else { "" };
        let call = Call::new(
            &peer,
            "Operator/CancelJob",
            format!("{}{force}", request.job),
        );
        let backend = Arc::clone(&self.backend);
        self.audited(call, async move {
            let job_id = request.job.parse()?;
            let answer = backend
                .cancel_job(&job_id, &operator, request.force)
                .await?;
            Ok(document(&answer))
        })
        .await
    }

    async fn cancel_run(
        &self,
        request: Request<CancelRunRequest>,
    ) -> Result<Response<Document>, Status> {
        let peer = Peer::of(&request)?.clone();
        let operator = caller_id(&peer)?.to_owned();
        let request = request.into_inner();
        let call = Call::new(&peer, "Operator/CancelRun", history::words(&request));
        let backend = Arc::clone(&self.backend);
        self.audited(
            call,
            async move { backend.end_run(&request, &operator).await },
        )
        .await
    }

    async fn list_keys(
        &self,
        request: Request<ListKeysRequest>,
    ) -> Result<Response<Document>, Status> {
        let peer = Peer::of(&request)?;
        let call = Call::new(peer, "Operator/ListKeys", String::new());
        self.counted(call, async { Ok(document(&keys::list(&self.app).await?)) })
            .await
    }

    async fn change_key(
        &self,
        request: Request<ChangeKeyRequest>,
    ) -> Result<Response<Document>, Status> {
        let peer = Peer::of(&request)?.clone();
        let request = request.into_inner();
        let what = format!("{} {}", request.action, request.id);
        let mut call = Call::new(&peer, "Operator/ChangeKey", what);
        call.urgent = request.action != "accept";
        let change = KeyOrder {
            id: request.id,
            action: request.action,
            fingerprint: request.fingerprint,
            cluster: request.cluster,
            force: request.force,
        };
        let services = self.clone();
        self.audited(call, async move {
            let answer = keys::change(&services.app, &change).await?;
            if change.action == "delete" {
                services.backend.on_key_gone(&change.id.parse()?).await?;
            }
            Ok(document(&answer))
        })
        .await
    }

    async fn create_token(
        &self,
        request: Request<CreateTokenRequest>,
    ) -> Result<Response<CreateTokenReply>, Status> {
        let peer = Peer::of(&request)?.clone();
        let operator = caller_id(&peer)?.to_owned();
        let request = request.into_inner();
        let what = if request.id.is_empty() {
            "for any id".to_owned()
        } else {
            format!("for {}", request.id)
        };
        let call = Call::new(&peer, "Operator/CreateToken", what);
        let wanted = TokenRequest {
            ttl_seconds: request.ttl_seconds,
            uses: request.uses,
            roles: request.roles,
            id: request.id,
        };
        let app = Arc::clone(&self.app);
        self.audited(call, async move {
            let (token, expires) = keys::create_token(&app, &operator, wanted).await?;
            Ok(CreateTokenReply {
                token,
                expires: rfc3339(expires),
            })
        })
        .await
    }

    async fn list_tokens(
        &self,
        request: Request<ListTokensRequest>,
    ) -> Result<Response<Document>, Status> {
        let peer = Peer::of(&request)?;
        let call = Call::new(peer, "Operator/ListTokens", String::new());
        self.counted(call, async {
            Ok(document(&keys::list_tokens(&self.app).await?))
        })
        .await
    }

    async fn revoke_token(
        &self,
        request: Request<RevokeTokenRequest>,
    ) -> Result<Response<Document>, Status> {
        let peer = Peer::of(&request)?;
        // Only the id: the operator may have pasted the whole token.
        let id = request
            .get_ref()
            .token_id
            .split('.')
            .next()
            .unwrap_or_default()
            .to_owned();
        let mut call = Call::new(peer, "Operator/RevokeToken", id.clone());
        call.urgent = true;
        let app = Arc::clone(&self.app);
        self.audited(call, async move {
            Ok(document(&keys::revoke_token(&app, &id).await?))
        })
        .await
    }

    async fn add_node(
        &self,
        request: Request<AddNodeRequest>,
    ) -> Result<Response<AddNodeReply>, Status> {
        let peer = Peer::of(&request)?.clone();
        let operator = caller_id(&peer)?.to_owned();
        let request = request.into_inner();
        let named: Vec<String> = request.nodes.iter().map(named).collect();
        let what = format!("{} {}", named.join(" "), request.roles.join(","));
        let call = Call::new(&peer, "Operator/AddNode", what.trim_end().to_owned());
        let services = self.clone();
        self.audited(call, async move {
            let app = &services.app;
            let warnings = {
                // No other host enrols with one of the names in the meantime.
                let _turn = app.enrolling.lock().await;
                for node in &request.nodes {
                    let roles = node_roles(&request, node);
                    keys::check_new_roles(app, &node.name, &roles).await?;
                }
                services.backend.add_node(&operator, &request).await?
            };
            let mut nodes = Vec::new();
            for node in &request.nodes {
                let wanted = TokenRequest {
                    id: node.name.clone(),
                    roles: node_roles(&request, node),
                    ..TokenRequest::default()
                };
                let (token, _) = keys::create_token(app, &operator, wanted).await?;
                let command = command(app, &node.name, &token)?;
                nodes.push(AddedNode {
                    name: node.name.clone(),
                    token,
                    command,
                });
            }
            Ok(AddNodeReply { nodes, warnings })
        })
        .await
    }

    async fn create_operator(
        &self,
        request: Request<CreateOperatorRequest>,
    ) -> Result<Response<CreateOperatorReply>, Status> {
        let peer = Peer::of(&request)?.clone();
        self.made_operator(&peer, request.into_inner()).await
    }

    async fn renew_operator(
        &self,
        request: Request<RenewOperatorRequest>,
    ) -> Result<Response<CreateOperatorReply>, Status> {
        let peer = Peer::of(&request)?.clone();
        self.renewed_operator(&peer, request.into_inner()).await
    }

    async fn list_operators(
        &self,
        request: Request<ListOperatorsRequest>,
    ) -> Result<Response<Document>, Status> {
        let peer = Peer::of(&request)?;
        let call = Call::new(peer, "Operator/ListOperators", String::new());
        self.counted(call, async {
            Ok(document(&keys::list_operators(&self.app).await?))
        })
        .await
    }

    async fn revoke_operator(
        &self,
        request: Request<RevokeOperatorRequest>,
    ) -> Result<Response<Document>, Status> {
        let peer = Peer::of(&request)?.clone();
        let by = caller_id(&peer)?.to_owned();
        let name = request.into_inner().name;
        let mut call = Call::new(&peer, "Operator/RevokeOperator", name.clone());
        call.urgent = true;
        let app = Arc::clone(&self.app);
        self.audited(call, async move {
            Ok(document(&keys::revoke_operator(&app, &by, &name).await?))
        })
        .await
    }

    async fn read_audit(
        &self,
        request: Request<ReadAuditRequest>,
    ) -> Result<Response<Document>, Status> {
        let peer = Peer::of(&request)?;
        let call = Call::new(peer, "Operator/ReadAudit", String::new());
        self.counted(call, async {
            Ok(document(&audit::read(&self.app, request.get_ref()).await?))
        })
        .await
    }

    async fn list_sinks(
        &self,
        request: Request<ListSinksRequest>,
    ) -> Result<Response<Document>, Status> {
        let peer = Peer::of(&request)?;
        let call = Call::new(peer, "Operator/ListSinks", String::new());
        self.counted(call, async {
            Ok(document(&self.backend.list_sinks().await?))
        })
        .await
    }

    async fn test_sinks(
        &self,
        request: Request<TestSinksRequest>,
    ) -> Result<Response<Document>, Status> {
        let peer = Peer::of(&request)?.clone();
        let operator = caller_id(&peer)?.to_owned();
        // The request may contain any text.
        let sink: String = request.into_inner().sink.chars().take(80).collect();
        let call = Call::new(&peer, "Operator/TestSinks", sink.clone());
        let backend = Arc::clone(&self.backend);
        self.audited(call, async move {
            Ok(document(&backend.test_sinks(&operator, &sink).await?))
        })
        .await
    }
}
