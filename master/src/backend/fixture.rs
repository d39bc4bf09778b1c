//! A whole master without its network, for tests: real store, CAs, bundle directory and documents
//! in a temporary directory, an API in memory, and scripted minions. Each life of the master has
//! its own runtime, so ending it is a crash: every task stops at once.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use halite_cluster::etcd::Etcd;
use halite_cluster::kubernetes::access::Clusters;
use halite_cluster::kubernetes::fake::FakeApi;
use halite_core::app::App;
use halite_core::ca::Cas;
use halite_core::clock::{Clock, SystemClock};
use halite_core::config::{Config, KeptJobs};
use halite_core::declared::{Declarations, Look, look};
use halite_core::names::minion;
use halite_etcd::Members;
use halite_etcd::fake::FakeCluster;
use halite_pillar::bundle_facts::components;
use halite_proto::v1;
use halite_store::{Facts, KeyState, Millis, Store, StoredKey};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::watch;

use super::scripted_minion::named;
use crate::backend::Backend;

pub(crate) use super::scripted_minion::{Journal, JournalEntry, ScriptedMinion};

/// The files and the API, which outlive a master.
pub(crate) struct Site {
    pub directory: TempDir,
    pub api: Arc<FakeApi>,
    /// The members of etcd, and the time that an ordered job waits for them; `None` for one member
    /// that no job waits for.
    pub etcd: Option<(Arc<dyn Members>, Duration)>,
    /// The hosts whose API servers answer.
    pub servers: Vec<&'static str>,
    /// The retention of jobs.
    pub jobs: KeptJobs,
}

/// One life of a master.
pub(crate) struct Life {
    pub runtime: Runtime,
    pub backend: Arc<Backend>,
    pub app: Arc<App>,
    pub store: Arc<Store>,
}

/// Timeout for expected events: it ends a test that would hang, even on the slowest machine.
pub(crate) const WATCHDOG: Duration = Duration::from_secs(300);

/// A secret that no record may contain.
pub(crate) const CANARY: &str = "canary-4711-do-not-keep";

const CLUSTER: &str = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: test}\nnetworks:\n  controlPlane: {cidrs: [10.10.0.0/24, 10.10.1.0/24]}\nkubernetes: {version: \"1.36\"}\nbackup: {recipients: [age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj]}\nsecrets:\n  canary: {value: canary-4711-do-not-keep, roles: [worker]}\n";

impl Site {
    /// A site with these files in the bundle's state tree, and two nodes: `bootstrap-1` and
    /// `worker-1`.
    pub fn new(tree: &[(&str, &str)]) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = directory.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let node = |name: &str, address: &str, roles: &str| {
            format!(
                "apiVersion: halite/v1\nkind: Node\nmetadata: {{name: {name}}}\nroles: [{roles}]\naddress: {address}\n"
            )
        };
        put("etc/cluster.yaml", CLUSTER);
        put(
            "etc/nodes/bootstrap-1.yaml",
            &node(
                "bootstrap-1",
                "10.10.0.11",
                "bootstrap, registry, etcd, control-plane",
            ),
        );
        put(
            "etc/nodes/worker-1.yaml",
            &node("worker-1", "10.10.1.12", "worker"),
        );
        let site = Self {
            directory,
            api: Arc::default(),
            etcd: None,
            servers: Vec::new(),
            jobs: KeptJobs::default(),
        };
        site.bundle("bundle", "0.1.0", tree);
        site
    }

    /// The same site with this retention of jobs.
    pub fn with_jobs(self, jobs: KeptJobs) -> Self {
        Self { jobs, ..self }
    }

    /// Makes a bundle below the site's directory.
    pub fn bundle(&self, place: &str, version: &str, tree: &[(&str, &str)]) {
        let put = |path: &str, text: &str| {
            let path = self.path().join(place).join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let payload = if version == "0.1.0" {
            "a file of the bundle\n".to_owned()
        } else {
            format!("a file of the bundle {version}\n")
        };
        put("files/payload", &payload);
        let images: BTreeMap<&str, String> = components()
            .map(|name| (name, format!("registry.k8s.io/{name}:1")))
            .collect();
        let all = tree
            .iter()
            .map(|(path, text)| (format!("states/{path}"), *text));
        let all = all.chain([("files/payload".to_owned(), payload.as_str())]);
        let files: BTreeMap<String, Value> = all
            .map(|(path, text)| (path, json!({"sha256": sha256(text), "size": text.len()})))
            .collect();
        let manifest =
            json!({"format": 1, "name": "halite", "version": version, "built": "2026-01-01T00:00:00Z",
            "kubernetes": "v1.36.3", "components": {"etcd": "3.6.8-0"}, "images": images, "packages": {},
            "files": files})
            .to_string();
        put("manifest.json", &manifest);
        put(
            "manifest.json.sha256",
            &format!("{}  manifest.json\n", sha256(&manifest)),
        );
        for (path, text) in tree {
            put(&format!("states/{path}"), text);
        }
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Starts a master.
    pub fn live(&self) -> Life {
        self.live_at(Arc::new(SystemClock))
    }

    /// Starts a master with this clock.
    pub fn live_at(&self, clock: Arc<dyn Clock>) -> Life {
        self.live_with(clock, Arc::new(look))
    }

    /// Starts a master that counts how often it reads the documents.
    pub fn live_counting(&self) -> (Life, Arc<AtomicUsize>) {
        let looks: Arc<AtomicUsize> = Arc::default();
        let counter = Arc::clone(&looks);
        let counting = Arc::new(move |directory: &Path| {
            counter.fetch_add(1, Ordering::SeqCst);
            look(directory)
        });
        (self.live_with(Arc::new(SystemClock), counting), looks)
    }

    fn live_with(&self, clock: Arc<dyn Clock>, look: Look) -> Life {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (app, backend, store) = runtime.block_on(async {
            let state_dir = self.path().join("state");
            if !state_dir.join("ca").exists() {
                put_cas(&state_dir);
            }
            let config = Config {
                cluster: "test".into(),
                listen: "127.0.0.1:0".parse().unwrap(),
                state_dir: state_dir.clone(),
                config_dir: self.path().join("etc"),
                bundles: self.path().join("bundles"),
                bundle: Some(self.path().join("bundle")),
                advertise: vec!["10.10.0.11".parse().unwrap()],
                metrics: "127.0.0.1:0".parse().unwrap(),
                prometheus: None,
                jobs: self.jobs,
            };
            let store = Arc::new(Store::open(&state_dir.join("store.db")).await.unwrap());
            let app = App::open(config, clock, store.clone()).await.unwrap();
            app.isolation.settle();
            let etcd = match self.etcd.clone() {
                Some((members, limit)) => Etcd::of_members(Arc::clone(&app), members, limit),
                None => Etcd::without_gate(Arc::clone(&app), one_member()),
            };
            let clusters = Clusters::with_api(Arc::clone(&app), self.api.clone());
            let clusters = clusters.with_etcd(etcd).with_servers(&self.servers);
            let declarations = Declarations::with_look(&app, look);
            let backend = Backend::over(Arc::clone(&app), declarations, Arc::new(clusters))
                .await
                .unwrap();
            (app, backend, store)
        });
        Life {
            runtime,
            backend,
            app,
            store,
        }
    }
}

/// The time at which the CAs were made.
const CAS_MADE: Millis = 1_800_000_000_000;

/// Writes the CAs of a site. They are the same for all sites of the process: keys take much longer
/// to make than to copy, and a test that kills a master makes many sites.
fn put_cas(state_dir: &Path) {
    static MADE: LazyLock<Vec<(PathBuf, Vec<u8>)>> = LazyLock::new(|| {
        let directory = tempfile::tempdir().unwrap();
        Cas::create_or_load(directory.path(), "test", CAS_MADE).unwrap();
        let files =
            ["", "ca"].map(|place| std::fs::read_dir(directory.path().join(place)).unwrap());
        let files = files.into_iter().flatten().map(|file| file.unwrap().path());
        let files = files.filter(|file| file.is_file());
        let content = |file: PathBuf| {
            let content = std::fs::read(&file).unwrap();
            (
                file.strip_prefix(directory.path()).unwrap().to_owned(),
                content,
            )
        };
        files.map(content).collect()
    });
    std::fs::create_dir_all(state_dir.join("ca")).unwrap();
    for (file, content) in MADE.iter() {
        let mut options = std::fs::OpenOptions::new();
        let file = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(state_dir.join(file));
        file.unwrap().write_all(content).unwrap();
    }
}

fn one_member() -> Arc<dyn Members> {
    Arc::new(FakeCluster::new(&["bootstrap-1"]))
}

fn sha256(text: &str) -> String {
    halite_proto::pki::sha256_hex(text.as_bytes())
}

impl Life {
    /// Ends the master like `kill -9`: no work is finished, no peer is notified.
    pub fn kill(self) {
        drop(self.backend);
        drop(self.app);
        drop(self.store);
        // No task of this life may continue in the next one; threads blocked in a file system are
        // left behind.
        self.runtime.shutdown_timeout(Duration::from_secs(2));
    }

    /// Accepts a minion that does not connect.
    pub fn accept(&self, id: &str) {
        self.runtime.block_on(accept(&self.app, id));
    }

    /// Accepts a minion, connects it and lets it follow its script.
    pub fn connect(&self, minion: &ScriptedMinion) {
        self.accept(&minion.id);
        self.reconnect(minion);
    }

    /// Connects a minion that was accepted, and lets it follow its script.
    pub fn reconnect(&self, minion: &ScriptedMinion) {
        let (backend, app, minion) = (
            Arc::clone(&self.backend),
            Arc::clone(&self.app),
            minion.clone(),
        );
        self.runtime.block_on(async move {
            let (connection, mut messages) = app
                .connections
                .join(&minion.id, std::net::Ipv4Addr::LOCALHOST.into());
            let hello = v1::MinionHello {
                protocol: 1,
                grains_json: grains(&minion.id).to_string(),
                running_jobs: named(&minion, JournalEntry::Started),
                unstored: Some(v1::JobList {
                    jobs: named(&minion, JournalEntry::Returned),
                }),
                ..v1::MinionHello::default()
            };
            backend.on_connected(&minion.id, &hello).await.unwrap();
            tokio::spawn(async move {
                let _connection = connection;
                minion.hand_in(&backend).await;
                while let Some(message) = messages.recv().await {
                    minion.hear(&backend, message).await;
                }
            });
        });
    }

    /// All events of a stream, up to and with the last one.
    pub fn collect(&self, stream: halite_core::event_stream::EventStream) -> Vec<v1::Event> {
        use futures_util::StreamExt;
        self.runtime.block_on(async {
            let all = stream.map(|event| event.unwrap()).collect::<Vec<_>>();
            tokio::time::timeout(WATCHDOG, all)
                .await
                .expect("the stream must end")
        })
    }

    /// Runs a job and returns its events.
    pub fn run(&self, function: &str, target: &str, args: Value, test: bool) -> Vec<v1::Event> {
        let request = v1::RunRequest {
            target: target.into(),
            function: function.into(),
            args_json: args.to_string(),
            test,
            ..v1::RunRequest::default()
        };
        let stream = self
            .runtime
            .block_on(self.backend.run("root", request))
            .unwrap();
        self.collect(stream)
    }

    /// The whole content of the store, as one text.
    pub fn everything_stored(&self, site: &Site) -> String {
        let mut text = String::new();
        for file in std::fs::read_dir(site.path().join("state"))
            .unwrap()
            .flatten()
        {
            if file.path().is_file() && !file.file_name().to_string_lossy().starts_with("sa.") {
                text.push_str(&String::from_utf8_lossy(
                    &std::fs::read(file.path()).unwrap(),
                ));
            }
        }
        text
    }
}

/// Waits until the store has refused a write that [`Store::refuse`] names, and its retry.
pub(crate) async fn refused_again(refused: &mut watch::Receiver<u32>) {
    let twice = refused.wait_for(|count| *count >= 2);
    let twice = tokio::time::timeout(WATCHDOG, twice).await;
    let _ = twice.expect("the store must refuse a write twice").unwrap();
}

async fn accept(app: &App, id: &str) {
    let now = app.clock.now();
    let key = StoredKey {
        id: minion(id),
        state: KeyState::Accepted,
        // A deleted key stays out by its fingerprint, under any name.
        fingerprint: format!("00:{id}"),
        csr_pem: String::new(),
        serial: None,
        certificate_pem: None,
        roles: Vec::new(),
        grains_json: "{}".into(),
        token: None,
        created: now,
        changed: now,
    };
    app.store.put_key(&key).await.unwrap();
    let facts = Facts {
        minion: minion(id),
        grains_json: grains(id).to_string(),
        version: "0.1.0".into(),
        last_seen: now,
    };
    app.store.put_facts(&facts).await.unwrap();
}

fn grains(id: &str) -> Value {
    let address = match id {
        "worker-1" => "10.10.1.12",
        "cp-2" => "10.10.0.12",
        "cp-3" => "10.10.0.13",
        _ => "10.10.0.11",
    };
    json!({"id": id, "os": "Debian", "ip4_interfaces": {"host0": [address]}})
}
