//! A restart with invalid documents: no minion is cut off, work that needs no declaration
//! continues, and work that needs it is refused with the position of the mistake.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use halite_proto::tonic::Status;
use halite_proto::transport::{Channel, connect};
use halite_proto::v1;
use halite_proto::v1::operator_client::OperatorClient;
use serde_json::Value;

use super::host::DaemonHost;
use super::minions::Minions;

const CANARY: &str = "canary-4711-do-not-keep";
const FIRST: &str = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: bootstrap-1}\nroles: [bootstrap, registry, etcd, control-plane]\naddress: 10.10.0.11\n";
const NODE: &str = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: worker-1}\nroles: [worker]\naddress: 10.10.1.12\n";
const CLUSTER: &str = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: prod}\nnetworks:\n  controlPlane: {cidrs: [10.10.0.0/24, 10.10.1.0/24]}\nkubernetes: {version: \"1.36\"}\nsecrets:\n  canary: {value: canary-4711-do-not-keep, roles: [worker]}\n";
/// The mistake is in line 5.
const BROKEN: &str = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: prod}\nnetworks:\n  controlPlane: {cidrs: [10.10.0.0/24\n";
const PLACE: &str = "cluster.yaml:";

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_with_invalid_documents_cuts_off_none_of_5_minions() {
    restart_with_invalid_documents(DaemonHost::new(4), 5).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_with_invalid_documents_cuts_off_none_of_1000_minions() {
    raise_descriptors();
    restart_with_invalid_documents(DaemonHost::new(5), 1000).await;
}

async fn restart_with_invalid_documents(host: DaemonHost, number: usize) {
    assert!(host.init().status.success());
    let document = host.path("etc/cluster.yaml");
    std::fs::create_dir_all(host.path("etc/nodes")).unwrap();
    std::fs::write(&document, CLUSTER).unwrap();
    std::fs::write(host.path("etc/nodes/bootstrap-1.yaml"), FIRST).unwrap();
    std::fs::write(host.path("etc/nodes/worker-1.yaml"), NODE).unwrap();
    let minions = Arc::new(Minions::accept(&host.path("state"), number).await);
    let worker = &minions.all[0];
    let child = start(&host);
    let (_, ca) = host.identity();
    minions.start(&format!("{}:4550", host.address), &ca);
    minions.until_connected(1).await;
    let site = Site::of(&host).await;
    for _ in 0..2 {
        site.begin("cmd.run", "worker-1").await.unwrap();
    }
    minions
        .until("the commands run", || worker.running() == 2)
        .await;
    host.stop(child);
    assert_eq!(host.told(), "STOPPING=1");

    // With the last valid documents.
    std::fs::write(&document, BROKEN).unwrap();
    let child = start(&host);
    minions.until_connected(2).await;
    let site = Site::of(&host).await;
    site.serves(number).await;
    let job = worker.end_command(CANARY).await;
    minions
        .until("the return is stored", || worker.unstored() == 0)
        .await;
    let shown = site.job(&job).await;
    assert!(
        shown.contains("(secret)") && !shown.contains(CANARY),
        "{shown}"
    );
    let problems = site.problems().await;
    assert!(
        problems[1].contains("the last valid documents"),
        "{problems:?}"
    );
    assert_hellos(&minions, 2);
    host.stop(child);
    assert_eq!(host.told(), "STOPPING=1");

    // Without it.
    std::fs::remove_dir_all(host.path("state/last-valid")).unwrap();
    let child = start(&host);
    minions.until_connected(3).await;
    let site = Site::of(&host).await;
    let refused = site.begin("cmd.run", "worker-1").await.unwrap_err();
    assert!(
        refused.message().contains(PLACE),
        "its output may have secrets: {refused}"
    );
    let job = worker.end_command(CANARY).await;
    // The answers to it come after the return on the same stream.
    site.serves(number).await;
    let shown = site.job(&job).await;
    assert!(
        worker.unstored() == 1 && !shown.contains("stdout"),
        "{shown}"
    );
    assert_hellos(&minions, 3);

    // The mistake has been corrected.
    std::fs::write(&document, CLUSTER).unwrap();
    minions
        .until("the return is stored", || worker.unstored() == 0)
        .await;
    let shown = site.job(&job).await;
    assert!(
        shown.contains("(secret)") && !shown.contains(CANARY),
        "{shown}"
    );
    let again: usize = minions
        .all
        .iter()
        .map(|it| it.hellos.load(Ordering::SeqCst))
        .sum();
    assert_eq!(
        again,
        number * 3 + 1,
        "only the one that kept a return connects again"
    );
    host.stop(child);
}

fn start(host: &DaemonHost) -> std::process::Child {
    let child = host
        .command("run")
        .stderr(std::process::Stdio::null())
        .spawn();
    assert_eq!(host.told(), "READY=1");
    child.unwrap()
}

fn assert_hellos(minions: &Minions, times: usize) {
    for minion in &minions.all {
        assert_eq!(
            minion.hellos.load(Ordering::SeqCst),
            times,
            "{} was cut off",
            minion.id
        );
    }
}

fn raise_descriptors() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).unwrap();
}

/// A running master, as an operator sees it.
struct Site(Channel);

impl Site {
    async fn of(host: &DaemonHost) -> Self {
        let (identity, ca) = host.identity();
        let endpoint = format!("{}:4550", host.address);
        Self(connect(&endpoint, &ca, Some(&identity)).await.unwrap())
    }

    fn operator(&self) -> OperatorClient<Channel> {
        OperatorClient::new(self.0.clone())
    }

    async fn begin(
        &self,
        function: &str,
        target: &str,
    ) -> Result<halite_proto::tonic::Streaming<v1::Event>, Status> {
        let request = v1::RunRequest {
            target: target.to_owned(),
            function: function.to_owned(),
            args_json: "{\"cmd\": \"true\"}".to_owned(),
            timeout_seconds: 3600,
            ..v1::RunRequest::default()
        };
        Ok(self.operator().run(request).await?.into_inner())
    }

    /// Work that needs no declaration succeeds on all minions; work that needs it is refused.
    async fn serves(&self, number: usize) {
        for function in ["test.ping", "grains.items"] {
            let mut events = self.begin(function, "*").await.unwrap();
            let last = loop {
                let event = events.message().await.unwrap().unwrap();
                if event.last {
                    break event;
                }
            };
            let done: Value = serde_json::from_str(&last.data_json).unwrap();
            assert_eq!(
                done["succeeded"].as_array().unwrap().len(),
                number,
                "{function}"
            );
        }
        let keys = self.operator().list_keys(v1::ListKeysRequest {}).await;
        let keys: Value = serde_json::from_str(&keys.unwrap().into_inner().json).unwrap();
        let connected = keys["keys"].as_array().unwrap().iter();
        let connected = connected.filter(|key| key["connected"] == true);
        assert_eq!(connected.count(), number);
        let refused = self.begin("state.highstate", "worker-1").await.unwrap_err();
        assert!(refused.message().contains(PLACE), "{refused}");
        let problems = self.problems().await;
        assert!(problems[0].contains(PLACE), "{problems:?}");
    }

    async fn status(&self) -> Value {
        let status = self.operator().status(v1::StatusRequest {}).await;
        serde_json::from_str(&status.unwrap().into_inner().json).unwrap()
    }

    /// The problems of the status; the first one is also the first of the health.
    async fn problems(&self) -> Vec<String> {
        let status = self.status().await;
        let first = &status["health"]["checks"][0];
        assert_eq!(first["name"], "declaration");
        assert_eq!(first["state"], "failure");
        let problems: Vec<String> = serde_json::from_value(status["problems"].clone()).unwrap();
        assert_eq!(first["findings"][0]["message"], problems[0].as_str());
        problems
    }

    async fn job(&self, id: &str) -> String {
        let request = v1::ShowJobRequest { job: id.to_owned() };
        self.operator()
            .show_job(request)
            .await
            .unwrap()
            .into_inner()
            .json
    }
}
