//! A backend that knows one job of one minion.

use std::sync::Mutex;

use futures_util::StreamExt as _;
use halite_api::{
    ClusterStatus, JobCancellation, JobList, JobOrRun, MasterMove, Run, RunCancellation, RunStatus,
    Time,
};
use halite_master::backend::{Backend, BackendFuture};
use halite_master::event_stream::EventStream;
use halite_master::files::ByteStream;
use halite_master::operator::backup::BackupParts;
use halite_master::operator::kubeconfig::ApiWay;
use halite_master::refusal::Refusal;
use halite_master::standby::isolation::Surroundings;
use halite_proto::ids::{JobId, MinionId};
use halite_proto::v1;
use halite_states::low::Chunk;
use serde_json::json;
use tokio::sync::{Notify, watch};

/// The one minion that has a job.
pub const MINION: &str = "worker-1";
/// Its id.
pub fn minion_id() -> MinionId {
    MINION.parse().unwrap()
}

/// Its job.
pub const JOB: &str = "20270101000000000000";
/// The tag of the chunk that asks for a certificate.
pub const TAG: &str = "x509_|-etcd_|-/etc/x.crt_|-certificate";
/// The tag of the chunk that asks for the certificate of root on its host.
pub const OPERATOR_TAG: &str = "x509_|-operator_|-/etc/halite/operator/operator.crt_|-certificate";
/// The one file that its job refers to.
pub const SHA256: &str = "aa";

/// A function whose events do not end.
pub const OPEN: &str = "test.open";

/// See the module.
pub struct OneJob {
    /// What was asked, with the id that the services gave for the caller.
    pub asked: Mutex<Vec<String>>,
    /// The name of a node for which `add_node` waits, and the order to go on.
    pub held: (&'static str, Notify),
    /// How many messages of streams came in.
    pub messages: watch::Sender<u32>,
    /// The declared masters.
    pub masters: Mutex<Vec<String>>,
}

impl OneJob {
    pub fn new() -> Self {
        Self {
            asked: Mutex::default(),
            held: ("held", Notify::new()),
            messages: watch::Sender::new(0),
            masters: Mutex::default(),
        }
    }

    fn note(&self, what: String) {
        self.asked.lock().unwrap().push(what);
    }

    fn answer<T: Send + 'static>(&self, what: String, value: T) -> BackendFuture<'_, T> {
        self.note(what);
        Box::pin(std::future::ready(Ok(value)))
    }

    fn if_own<T: Send + 'static>(&self, own: bool, what: String, value: T) -> BackendFuture<'_, T> {
        self.note(what);
        let refusal = Refusal::denied("no job of this minion asks for it");
        Box::pin(std::future::ready(if own {
            Ok(value)
        } else {
            Err(refusal)
        }))
    }
}

fn one_event() -> EventStream {
    let event = v1::Event {
        tag: "halite/job/1/ret".to_owned(),
        last: true,
        ..v1::Event::default()
    };
    Box::pin(futures_util::stream::iter([Ok(event)]))
}

/// The chunk as the compiler makes it.
fn chunk() -> Chunk {
    serde_json::from_value(json!({
        "state": "x509", "fun": "certificate", "id": "etcd", "name": "/etc/x.crt", "sls": "halite.base.etcd",
        "source": { "file": "halite/base/etcd.sls", "line": 1, "column": 1 },
        "args": { "ca": "etcd", "common_name": "worker-1", "client_auth": true },
    }))
    .unwrap()
}

impl Backend for OneJob {
    fn standbys(&self) -> BackendFuture<'_, Vec<String>> {
        Box::pin(std::future::ready(Ok(vec![MINION.to_owned()])))
    }

    fn surroundings(&self) -> BackendFuture<'_, Surroundings> {
        let seen = Surroundings {
            standbys: 0,
            alone_since: None,
            accepted: 1,
            connected: 1,
        };
        Box::pin(std::future::ready(Ok(seen)))
    }

    fn masters(&self) -> BackendFuture<'_, Vec<String>> {
        let masters = self.masters.lock().unwrap().clone();
        Box::pin(std::future::ready(Ok(masters)))
    }

    fn probe(&self) -> BackendFuture<'_, ()> {
        Box::pin(async { Ok(()) })
    }

    fn status(&self) -> BackendFuture<'_, ClusterStatus> {
        self.answer("status".to_owned(), status())
    }

    fn hand_over(&self, _request: v1::HandOverRequest) -> BackendFuture<'_, MasterMove> {
        Box::pin(async { Ok(MasterMove::default()) })
    }

    fn backup(&self) -> BackendFuture<'_, BackupParts> {
        Box::pin(async { Ok(Box::pin(futures_util::stream::empty()) as BackupParts) })
    }

    fn show(&self, request: v1::ShowRequest) -> BackendFuture<'_, v1::Document> {
        self.answer(format!("show {}", request.target), v1::Document::default())
    }

    fn run<'a>(
        &'a self,
        operator: &'a str,
        request: v1::RunRequest,
    ) -> BackendFuture<'a, EventStream> {
        let stream = if request.function == OPEN {
            Box::pin(one_event().chain(futures_util::stream::pending()))
        } else {
            one_event()
        };
        self.answer(format!("run {} by {operator}", request.function), stream)
    }

    fn orchestrate<'a>(
        &'a self,
        operator: &'a str,
        request: v1::OrchestrateRequest,
    ) -> BackendFuture<'a, EventStream> {
        self.answer(
            format!("orchestrate {} by {operator}", request.sls),
            one_event(),
        )
    }

    fn api_way<'a>(&'a self, requested: &'a str) -> BackendFuture<'a, ApiWay> {
        let way = ApiWay {
            server: "https://10.0.0.100:6443".to_owned(),
            tls_server_name: "api.prod.internal".to_owned(),
        };
        self.answer(format!("api_way {requested}"), way)
    }

    fn list_jobs(&self, limit: u32) -> BackendFuture<'_, JobList> {
        self.answer(format!("list_jobs {limit}"), JobList::default())
    }

    fn cancel_job<'a>(
        &'a self,
        jid: &'a JobId,
        operator: &'a str,
        force: bool,
    ) -> BackendFuture<'a, JobCancellation> {
        let cancelled = JobCancellation {
            job: jid.clone(),
            asked: Vec::new(),
            ended: Vec::new(),
            runs: Vec::new(),
        };
        self.answer(
            format!("cancel_job {jid} by {operator}, force {force}"),
            cancelled,
        )
    }

    fn cancel_run<'a>(
        &'a self,
        run: &'a JobId,
        operator: &'a str,
    ) -> BackendFuture<'a, RunCancellation> {
        let cancelled = RunCancellation {
            run: run.clone(),
            sls: String::new(),
            status: RunStatus::Cancelled,
            cancelled_by: Some(operator.to_owned()),
            step: None,
            jobs: Vec::new(),
        };
        self.answer(format!("cancel_run {run} by {operator}"), cancelled)
    }

    fn show_job<'a>(&'a self, jid: &'a JobId) -> BackendFuture<'a, JobOrRun> {
        let run = Run {
            run: jid.clone(),
            sls: String::new(),
            pillar: None,
            test: false,
            operator: String::new(),
            status: RunStatus::Running,
            cancelled_by: None,
            created: Time::from_millis(0),
            changed: Time::from_millis(0),
            withheld: None,
            steps: Vec::new(),
        };
        self.answer(format!("show_job {jid}"), JobOrRun::Run(Box::new(run)))
    }

    fn add_node<'a>(
        &'a self,
        operator: &'a str,
        request: &'a v1::AddNodeRequest,
    ) -> BackendFuture<'a, Vec<String>> {
        let names: Vec<&str> = request
            .nodes
            .iter()
            .map(|node| node.name.as_str())
            .collect();
        let (names, held) = (names.join(" "), names.contains(&self.held.0));
        self.note(format!("add_node {names} by {operator}"));
        self.messages.send_modify(|count| *count += 1);
        Box::pin(async move {
            if held {
                self.held.1.notified().await;
            }
            Ok(Vec::new())
        })
    }

    fn sign_allowed<'a>(
        &'a self,
        minion: &'a MinionId,
        job: &'a JobId,
        tag: &'a str,
    ) -> BackendFuture<'a, Chunk> {
        let own = *minion == MINION && *job == JOB && [TAG, OPERATOR_TAG].contains(&tag);
        let mut chunk = chunk();
        if tag == OPERATOR_TAG {
            let identity = format!("halite://prod/operator/root@{MINION}");
            chunk.args.insert("ca".to_owned(), json!("halite"));
            chunk.args.insert("sans_uri".to_owned(), json!([identity]));
        }
        self.if_own(own, format!("sign by {minion}"), chunk)
    }

    fn fetch<'a>(
        &'a self,
        minion: &'a MinionId,
        job: &'a JobId,
        sha256: &'a str,
    ) -> BackendFuture<'a, ByteStream> {
        let own = *minion == MINION && *job == JOB && sha256 == SHA256;
        let pieces = futures_util::stream::iter([Ok(b"con".to_vec()), Ok(b"tent".to_vec())]);
        self.if_own(own, format!("fetch by {minion}"), Box::pin(pieces))
    }

    fn on_connected<'a>(
        &'a self,
        minion: &'a MinionId,
        _hello: &'a v1::MinionHello,
    ) -> BackendFuture<'a, ()> {
        self.answer(format!("connected {minion}"), ())
    }

    fn on_message<'a>(
        &'a self,
        minion: &'a MinionId,
        message: v1::MinionMessage,
    ) -> BackendFuture<'a, ()> {
        use v1::minion_message::Body;
        let what = match message.body {
            Some(Body::Returned(returned)) => format!("return {} of {minion}", returned.job),
            Some(Body::Grains(_)) => format!("grains of {minion}"),
            other => format!("{other:?} of {minion}"),
        };
        let refused = what.contains("cannot be stored");
        let answer = self.if_own(!refused, what, ());
        self.messages.send_modify(|count| *count += 1);
        answer
    }

    fn on_key_gone<'a>(&'a self, minion: &'a MinionId) -> BackendFuture<'a, ()> {
        self.answer(format!("key gone {minion}"), ())
    }

    fn on_disconnected<'a>(&'a self, minion: &'a MinionId) -> BackendFuture<'a, ()> {
        let answer = self.answer(format!("disconnected {minion}"), ());
        self.messages.send_modify(|count| *count += 1);
        answer
    }
}

/// The status of a cluster of which nothing is known.
fn status() -> ClusterStatus {
    let document = json!({
        "cluster": "test", "version": "0.1.0", "master": [], "masters": {"epoch": 1, "standbys": []},
        "api": {"answers": false}, "certificates": {"renew": "report", "hosts": []}, "nodes": [], "runs": [],
        "problems": [], "health": {"healthy": true, "checks": []},
    });
    serde_json::from_value(document).unwrap()
}
