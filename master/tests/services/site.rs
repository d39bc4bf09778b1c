//! A master on a free port, and identities of all kinds.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use halite_cluster::etcd::Etcd;
use halite_cluster::kubernetes::access::Clusters;
use halite_cluster::kubernetes::fake::FakeApi;
use halite_core::app::App;
use halite_core::ca::{Cas, HALITE, Profile};
use halite_core::clock::{Clock as _, SystemClock};
use halite_core::config::Config;
use halite_core::init;
use halite_etcd::fake::FakeCluster;
use halite_fleet::keys;
use halite_master::backend::Backend;
use halite_master::serve;
use halite_proto::identity::{Identity, IdentityKind};
use halite_proto::pki::PrivateKey;
use halite_proto::transport::{Channel, ClientIdentity, connect};
use halite_store::{Store, note_epoch, raise_epoch};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::declared;

/// Timeout for expected events: it ends a test that would hang, even on the slowest machine.
pub const SOON: Duration = Duration::from_secs(120);

/// A running master.
pub struct Site {
    pub app: Arc<App>,
    pub endpoint: String,
    pub ca_pem: String,
    pub stop: Option<oneshot::Sender<()>>,
    pub task: JoinHandle<()>,
    pub directory: TempDir,
}

fn config(directory: &Path, cluster: &str) -> Config {
    let shown = directory.display();
    let text = format!(
        "cluster: {cluster}\nadvertise: [192.0.2.11]\nstate_dir: {shown}/state\nconfig_dir: {shown}/etc\n"
    );
    let mut config = Config::parse(&text).unwrap();
    let bundle = directory.join("bundle");
    declared::write(&config.config_dir, &bundle);
    config.bundle = Some(bundle);
    config
}

pub async fn start() -> Site {
    start_in(TempDir::new().unwrap(), None, false).await
}

/// A master that has the job of the one minion.
pub async fn start_with_job() -> Site {
    start_in(TempDir::new().unwrap(), None, true).await
}

/// Another master with the same CAs, and at least this epoch.
pub async fn start_beside(site: &Site, epoch: u64) -> Site {
    let directory = TempDir::new().unwrap();
    let state = directory.path().join("state");
    std::fs::create_dir_all(state.join("ca")).unwrap();
    for file in std::fs::read_dir(site.app.config.state_dir.join("ca")).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), state.join("ca").join(file.file_name())).unwrap();
    }
    start_in(directory, Some(epoch), false).await
}

async fn start_in(directory: TempDir, epoch: Option<u64>, has_job: bool) -> Site {
    let config = config(directory.path(), "prod");
    init::init(&config, SystemClock.now()).unwrap();
    if let Some(epoch) = epoch {
        let path = config.state_dir.join("store.db");
        Store::open(&path).await.unwrap().close().await;
        let starts = raise_epoch(&path, epoch).await.unwrap();
        note_epoch(&path, epoch, starts).unwrap();
    }
    let store: Arc<Store> = Arc::new(
        Store::open(&config.state_dir.join("store.db"))
            .await
            .unwrap(),
    );
    if has_job {
        declared::store_job(&store).await;
    }
    let app = App::open(config, Arc::new(SystemClock), store)
        .await
        .unwrap();
    // The API and the members of etcd are missing.
    let members = Arc::new(FakeCluster::new(&["bootstrap-1"]));
    let etcd = Etcd::without_gate(Arc::clone(&app), members);
    let clusters = Clusters::with_api(Arc::clone(&app), Arc::new(FakeApi::default()));
    let clusters = Arc::new(clusters.with_etcd(etcd));
    let backend = Backend::start(Arc::clone(&app), clusters).await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = listener.local_addr().unwrap().to_string();
    let ca_pem = app.cas.certificate_pem(HALITE).unwrap().to_owned();
    let (stop, stopped) = oneshot::channel::<()>();
    let serving = {
        let app = Arc::clone(&app);
        async move {
            let stopped = async {
                let _ = stopped.await;
            };
            serve::serve(app, backend, listener, stopped).await.unwrap();
        }
    };
    Site {
        app,
        endpoint,
        ca_pem,
        stop: Some(stop),
        task: tokio::spawn(serving),
        directory,
    }
}

/// An identity by a CA, valid from `days_ago`.
pub fn identity(
    cas: &Cas,
    cluster: &str,
    kind: IdentityKind,
    id: &str,
    days_ago: i64,
) -> ClientIdentity {
    let key = PrivateKey::generate().unwrap();
    let identity = Identity::new(cluster, kind, id).unwrap();
    let then = SystemClock.now() - days_ago * 24 * 60 * 60 * 1000;
    let issued = cas
        .sign(
            HALITE,
            &key.request(id).unwrap(),
            &Profile::identity(&identity),
            then,
        )
        .unwrap();
    ClientIdentity {
        certificate_pem: issued.certificate_pem,
        key_pem: key.to_pem(),
    }
}

impl Site {
    pub fn identity(&self, kind: IdentityKind, id: &str) -> ClientIdentity {
        identity(&self.app.cas, "prod", kind, id, 0)
    }

    /// The identity that init made for root.
    pub fn root(&self) -> ClientIdentity {
        let directory = self.app.config.config_dir.join("operator");
        let read = |name: &str| std::fs::read_to_string(directory.join(name)).unwrap();
        ClientIdentity {
            certificate_pem: read("operator.crt"),
            key_pem: read("operator.key"),
        }
    }

    /// A minion that enrolled with a token.
    pub async fn enrolled(&self, id: &str) -> ClientIdentity {
        self.enrolled_with(id, &PrivateKey::generate().unwrap())
            .await
    }

    /// The same, with an existing key.
    pub async fn enrolled_with(&self, id: &str, key: &PrivateKey) -> ClientIdentity {
        let wanted = keys::TokenRequest {
            id: id.to_owned(),
            ..keys::TokenRequest::default()
        };
        let (token, _) = keys::create_token(&self.app, "root", wanted).await.unwrap();
        let request = keys::EnrolmentRequest {
            id: id.to_owned(),
            csr_pem: key.request(id).unwrap(),
            token,
            grains_json: "{}".to_owned(),
            source: "10.0.0.7".to_owned(),
        };
        match keys::enrol(&self.app, &request).await.unwrap() {
            keys::EnrolAnswer::Accepted {
                certificate_pem, ..
            } => ClientIdentity {
                certificate_pem,
                key_pem: key.to_pem(),
            },
            other => panic!("not accepted: {other:?}"),
        }
    }

    pub async fn channel(&self, identity: Option<&ClientIdentity>) -> Channel {
        connect(&self.endpoint, &self.ca_pem, identity)
            .await
            .unwrap()
    }

    /// Waits until the condition holds; `what` names it.
    pub async fn until(&self, what: &str, is_so: impl AsyncFn() -> bool) {
        let so = async {
            while !is_so().await {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(SOON, so).await.is_err() {
            panic!("not so: {what}");
        }
    }
}
