//! The data of these tests' master: two declared hosts, an empty bundle, and a job of one minion.

use std::path::Path;

use halite_pillar::bundle_facts::components;
use halite_proto::ids::{JobId, MinionId};
use halite_proto::pki::sha256_hex;
use halite_proto::v1;
use halite_store::{Job, JobRow, JobStatus, Store};
use serde_json::{Map, Value, json};

/// The one minion that has a job; its host has a control plane.
pub const MINION: &str = "worker-1";
/// Its id.
pub fn minion_id() -> MinionId {
    MINION.parse().unwrap()
}

/// Its job.
pub const JOB: &str = "20270101000000000000";
/// The tag of the chunk that requests a certificate.
pub const TAG: &str = "x509_|-etcd_|-/etc/x.crt_|-certificate";
/// The tag of the chunk that requests the certificate of root on its host.
pub const OPERATOR_TAG: &str = "x509_|-operator_|-/etc/halite/operator/operator.crt_|-certificate";
/// The one file that its job refers to.
const FILE: &[u8] = b"content";
/// The digest of that file.
pub fn sha256() -> String {
    sha256_hex(FILE)
}

const CLUSTER: &str = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: prod}\nnetworks:\n  controlPlane: \
                       {cidrs: [192.0.2.0/24]}\nkubernetes: {version: \"1.36\"}\napiServer: {vip: 192.0.2.100}\n";

/// Writes the operator's documents and a bundle.
pub fn write(etc: &Path, bundle: &Path) {
    let put = |path: &Path, text: &str| {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    put(&etc.join("cluster.yaml"), CLUSTER);
    for (name, address, roles) in [
        (
            "bootstrap-1",
            "192.0.2.11",
            "bootstrap, registry, etcd, control-plane",
        ),
        (MINION, "192.0.2.12", "etcd, control-plane"),
    ] {
        let node = format!(
            "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [{roles}]\naddress: {address}\n"
        );
        put(&etc.join(format!("nodes/{name}.yaml")), &node);
    }
    let images: Map<String, Value> = components()
        .map(|name| (name.to_owned(), json!(format!("registry.k8s.io/{name}:1"))))
        .collect();
    let top = "base: {}\n";
    let files =
        json!({"states/top.sls": {"sha256": sha256_hex(top.as_bytes()), "size": top.len()}});
    let manifest = json!({"format": 1, "name": "halite", "version": "0.1.0", "built": "2026-01-01T00:00:00Z",
        "kubernetes": "v1.36.3", "components": {"etcd": "3.6.8-0"}, "images": images, "packages": {}, "files": files});
    let manifest = manifest.to_string();
    put(&bundle.join("manifest.json"), &manifest);
    let digest = sha256_hex(manifest.as_bytes());
    put(
        &bundle.join("manifest.json.sha256"),
        &format!("{digest}  manifest.json\n"),
    );
    put(&bundle.join("states/top.sls"), top);
}

/// The chunks in the compiler's form.
fn chunks() -> Value {
    let chunk = |id: &str, name: &str, args: Value| {
        json!({
            "state": "x509", "fun": "certificate", "id": id, "name": name, "sls": "halite.base.etcd",
            "source": { "file": "halite/base/etcd.sls", "line": 1, "column": 1 }, "args": args,
        })
    };
    let root = format!("halite://prod/operator/root@{MINION}");
    json!([
        chunk(
            "etcd",
            "/etc/x.crt",
            json!({"ca": "etcd", "common_name": MINION, "client_auth": true})
        ),
        chunk(
            "operator",
            "/etc/halite/operator/operator.crt",
            json!({"ca": "halite", "common_name": MINION, "client_auth": true, "sans_uri": [root]})
        ),
        {
            "state": "file", "fun": "managed", "id": "/etc/x", "name": "/etc/x", "sls": "halite.base.etcd",
            "source": { "file": "halite/base/etcd.sls", "line": 1, "column": 1 },
            "args": {"source": format!("blob:{}", sha256())},
        },
    ])
}

/// Stores the job, before the master starts.
pub async fn store_job(store: &Store) {
    let job_id: JobId = JOB.parse().unwrap();
    let low = json!({"format": 1, "minion": MINION, "chunks": chunks()});
    let job = Job {
        job_id: job_id.clone(),
        function: "state.highstate".to_owned(),
        args_json: "{}".to_owned(),
        test: false,
        operator: "root".to_owned(),
        target: MINION.to_owned(),
        minions: vec![minion_id()],
        order: Vec::new(),
        created: 1,
        deadline: None,
        steady_deadline: None,
        request_id: None,
        status: JobStatus::Running,
        retcode: None,
        finished: None,
        bundle: None,
    };
    let row = JobRow::queued(&job_id, &minion_id(), Some(low.to_string()));
    store.create_job(&job, &[row]).await.unwrap();
    store.put_blob(&sha256(), FILE, 1).await.unwrap();
}

/// The question of a minion for a turn in a job.
pub fn turn(job: String) -> v1::TurnRequest {
    let unit = "kubelet.service".to_owned();
    v1::TurnRequest { job, unit }
}

/// The request to cancel a run, with an id that belongs to none.
pub fn open_run() -> v1::CancelRunRequest {
    v1::CancelRunRequest {
        run: JOB.to_owned(),
        pause: false,
    }
}
