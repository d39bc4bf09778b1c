//! Minions that only follow the protocol, over real TLS.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use halite_core::ca::{Cas, HALITE, Profile};
use halite_core::clock::{Clock as _, SystemClock};
use halite_proto::identity::{Identity, IdentityKind};
use halite_proto::pki::PrivateKey;
use halite_proto::tonic::{Request, Streaming};
use halite_proto::transport::{ClientIdentity, connect};
use halite_proto::v1;
use halite_proto::v1::master_message::Body as ToMinion;
use halite_proto::v1::minion_client::MinionClient;
use halite_proto::v1::minion_message::Body as ToMaster;
use halite_store::{KeyState, Store, StoredKey};
use tokio::sync::{Semaphore, mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;

use super::host::SOON;

/// The pause before a minion reconnects.
const AGAIN: Duration = Duration::from_millis(150);
/// Concurrent handshakes: the master closes surplus ones from one address.
const HANDSHAKES: usize = 64;

/// A minion.
pub struct Minion {
    pub id: String,
    identity: ClientIdentity,
    /// The number of times that it has connected.
    pub hellos: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    sender: Option<mpsc::Sender<v1::MinionMessage>>,
    /// Received commands that have not returned.
    running: Vec<String>,
    /// Returns that the master has not acknowledged.
    unstored: BTreeMap<String, v1::JobReturn>,
}

/// Minions of one master.
pub struct Minions {
    pub all: Vec<Arc<Minion>>,
    /// Changes with every message that a minion receives.
    heard: watch::Sender<u64>,
    handshakes: Semaphore,
}

impl Minions {
    /// Accepts minions in the directory of a master that does not run.
    pub async fn accept(state_dir: &Path, number: usize) -> Self {
        let now = SystemClock.now();
        let cas = Cas::load(state_dir).unwrap();
        let store = Store::open(&state_dir.join("store.db")).await.unwrap();
        let mut all = Vec::new();
        for number in 1..=number {
            let id = format!("worker-{number}");
            let key = PrivateKey::generate().unwrap();
            let csr_pem = key.request(&id).unwrap();
            let identity = Identity::new("prod", IdentityKind::Minion, &id).unwrap();
            let issued = cas.sign(HALITE, &csr_pem, &Profile::identity(&identity), now);
            let issued = issued.unwrap();
            let accepted = StoredKey {
                id: id.parse().unwrap(),
                state: KeyState::Accepted,
                fingerprint: key.fingerprint(),
                csr_pem,
                serial: Some(issued.serial),
                certificate_pem: Some(issued.certificate_pem.clone()),
                roles: Vec::new(),
                grains_json: "{}".to_owned(),
                token: None,
                created: now,
                changed: now,
            };
            store.put_key(&accepted).await.unwrap();
            all.push(Arc::new(Minion {
                id,
                identity: ClientIdentity {
                    certificate_pem: issued.certificate_pem,
                    key_pem: key.to_pem(),
                },
                hellos: AtomicUsize::new(0),
                state: Mutex::default(),
            }));
        }
        Self {
            all,
            heard: watch::Sender::new(0),
            handshakes: Semaphore::new(HANDSHAKES),
        }
    }

    /// Keeps all minions connected from now on.
    pub fn start(self: &Arc<Self>, endpoint: &str, ca: &str) {
        for minion in &self.all {
            let (minions, minion) = (Arc::clone(self), Arc::clone(minion));
            let (endpoint, ca) = (endpoint.to_owned(), ca.to_owned());
            tokio::spawn(async move {
                loop {
                    minions.connection(&minion, &endpoint, &ca).await;
                    tokio::time::sleep(AGAIN).await;
                }
            });
        }
    }

    /// One connection, to its end.
    async fn connection(&self, minion: &Minion, endpoint: &str, ca: &str) {
        let handshake = self.handshakes.acquire().await.unwrap();
        let Ok(channel) = connect(endpoint, ca, Some(&minion.identity)).await else {
            return;
        };
        let (sender, receiver) = mpsc::channel(64);
        sender.send(minion.hello()).await.unwrap();
        let messages = Request::new(ReceiverStream::new(receiver));
        let Ok(stream) = MinionClient::new(channel).connect(messages).await else {
            return;
        };
        drop(handshake);
        minion.hellos.fetch_add(1, Ordering::SeqCst);
        let unstored: Vec<v1::JobReturn> = {
            let mut state = minion.state.lock().unwrap();
            state.sender = Some(sender.clone());
            state.unstored.values().cloned().collect()
        };
        for returned in unstored {
            say(&sender, ToMaster::Returned(returned)).await;
        }
        self.heard.send_modify(|heard| *heard += 1);
        self.listen(minion, &sender, stream.into_inner()).await;
        minion.state.lock().unwrap().sender = None;
    }

    async fn listen(
        &self,
        minion: &Minion,
        sender: &mpsc::Sender<v1::MinionMessage>,
        mut stream: Streaming<v1::MasterMessage>,
    ) {
        while let Ok(Some(message)) = stream.message().await {
            match message.body {
                Some(ToMinion::Job(job)) if job.function == "cmd.run" => {
                    minion.state.lock().unwrap().running.push(job.job.clone());
                    say(sender, ToMaster::Started(v1::JobStarted { job: job.job })).await;
                }
                Some(ToMinion::Job(job)) => {
                    say(sender, ToMaster::Returned(returned(&job.job, "true"))).await;
                }
                Some(ToMinion::Stored(stored)) => {
                    minion.state.lock().unwrap().unstored.remove(&stored.job);
                }
                _ => {}
            }
            self.heard.send_modify(|heard| *heard += 1);
        }
    }

    /// Waits until a condition holds.
    pub async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let mut heard = self.heard.subscribe();
        let wait = async {
            loop {
                heard.borrow_and_update();
                if holds() {
                    return;
                }
                heard.changed().await.unwrap();
            }
        };
        let waited = tokio::time::timeout(SOON, wait).await;
        waited.unwrap_or_else(|_| panic!("never: {what}"));
    }

    /// Waits until each has connected this many times.
    pub async fn until_connected(&self, times: usize) {
        let has = |minion: &Arc<Minion>| minion.hellos.load(Ordering::SeqCst) >= times;
        self.until("all are connected", || self.all.iter().all(has))
            .await;
    }
}

impl Minion {
    fn hello(&self) -> v1::MinionMessage {
        let state = self.state.lock().unwrap();
        let hello = v1::MinionHello {
            protocol: halite_proto::PROTOCOL,
            version: "1.2.3".to_owned(),
            grains_json: format!("{{\"id\":\"{}\"}}", self.id),
            running_jobs: state.running.clone(),
            unstored: Some(v1::JobList {
                jobs: state.unstored.keys().cloned().collect(),
            }),
            ..v1::MinionHello::default()
        };
        v1::MinionMessage {
            body: Some(ToMaster::Hello(hello)),
        }
    }

    /// The number of running commands.
    pub fn running(&self) -> usize {
        self.state.lock().unwrap().running.len()
    }

    /// The number of returns that the master has not acknowledged.
    pub fn unstored(&self) -> usize {
        self.state.lock().unwrap().unstored.len()
    }

    /// Ends the oldest command with this output; returns its job.
    pub async fn end_command(&self, output: &str) -> String {
        let (sender, returned) = {
            let mut state = self.state.lock().unwrap();
            let job = state.running.remove(0);
            let value = format!("{{\"retcode\":0,\"stdout\":\"{output}\"}}");
            let returned = returned(&job, &value);
            state.unstored.insert(job, returned.clone());
            (state.sender.clone().unwrap(), returned)
        };
        let job = returned.job.clone();
        say(&sender, ToMaster::Returned(returned)).await;
        job
    }
}

fn returned(job: &str, value: &str) -> v1::JobReturn {
    v1::JobReturn {
        job: job.to_owned(),
        return_json: value.to_owned(),
        ..v1::JobReturn::default()
    }
}

async fn say(sender: &mpsc::Sender<v1::MinionMessage>, body: ToMaster) {
    // The stream may have ended.
    let _ = sender.send(v1::MinionMessage { body: Some(body) }).await;
}
