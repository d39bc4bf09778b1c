//! A master's store, its feed and a standby's copy, with everything except the network.

mod behind;
mod checkpoints;
mod damage;
mod documents;
mod exports;
mod hand_over;
mod kills;
mod power;
mod preview;
mod promotion;
mod slow;
mod streams;
mod taken_back;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use halite_core::ca::{Cas, HALITE};
use halite_core::clock::{Clock as _, SystemClock};
use halite_core::config::Config;
use halite_core::names::minion;
use halite_core::roster::budget::{Budget, BudgetLimits};
use halite_proto::v1::{Epoch, StandbyHello, StandbyRecord};
use halite_store::{Audit, AuditFilter, Store, fold_log};
use tempfile::TempDir;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::directory;
use super::disk::CopyError;
use super::feed::{Feed, FeedError, Line, Times};
use super::receiver::Receiver;

/// A host with the directories of a master.
pub struct MasterHost {
    pub directory: TempDir,
    pub config: Config,
}

impl MasterHost {
    pub fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let shown = directory.path().display();
        let config = Config::parse(&format!(
            "cluster: prod\nadvertise: [127.0.0.1]\nstate_dir: {shown}/state\nconfig_dir: {shown}/etc\n"
        ))
        .unwrap();
        for directory in [&config.state_dir, &config.config_dir] {
            std::fs::create_dir(directory).unwrap();
        }
        Self { directory, config }
    }

    pub async fn store(&self) -> Arc<Store> {
        let path = self.config.state_dir.join("store.db");
        Arc::new(Store::open(&path).await.unwrap())
    }

    /// The data of this host as a standby.
    pub fn receiver(&self) -> Receiver {
        Receiver::open(&directory(&self.config), 0).unwrap()
    }
}

/// Timeouts that no test reaches.
pub const PATIENT: Times = Times {
    round: Duration::from_secs(60),
    base: Duration::from_secs(60),
    files: Duration::from_millis(5),
};

/// A budget that no standby uses up, however slow the machine is.
pub fn endless() -> Arc<Mutex<Budget>> {
    Arc::new(Mutex::new(Budget::new(BudgetLimits {
        free: Duration::MAX,
        most: Duration::MAX,
        window: Duration::MAX,
    })))
}

/// A stream between a master and a standby.
pub struct Link {
    pub feed: JoinHandle<FeedError>,
    pub standby: JoinHandle<(Receiver, Option<CopyError>)>,
    /// `true` until the standby is killed.
    pub alive: Arc<AtomicBool>,
    following: Option<oneshot::Receiver<()>>,
}

impl Link {
    /// Waits until each commit waits for the standby; returns `false` if the stream ends first.
    pub async fn following(&mut self) -> bool {
        self.following.take().unwrap().await.is_ok()
    }

    /// Ends the stream; returns the standby.
    pub async fn cut(self) -> Receiver {
        self.feed.abort();
        self.standby.await.unwrap().0
    }
}

/// Both ends of a stream that is not fed yet.
pub struct Ends {
    pub feed: Feed,
    pub hello: StandbyHello,
    pub standby: JoinHandle<(Receiver, Option<CopyError>)>,
    /// `true` until the standby is killed.
    pub alive: Arc<AtomicBool>,
}

/// Connects a standby, which is killed before it takes the record with the number `killed_at`.
pub fn ends(
    master: &MasterHost,
    store: &Store,
    mut receiver: Receiver,
    times: Times,
    killed_at: Option<u64>,
) -> Ends {
    receiver.begin(ca_pem()).unwrap();
    let hello: StandbyHello = receiver.hello();
    let (records, mut incoming) = mpsc::channel::<StandbyRecord>(4);
    let (stored, stored_receiver) = watch::channel(0);
    let line = Line {
        records,
        stored: stored_receiver,
    };
    let feed = Feed::new(
        store.log(),
        master.config.clone(),
        line,
        times,
        Arc::default(),
    )
    .with_budget(endless());
    let alive = Arc::new(AtomicBool::new(true));
    let mark = Arc::clone(&alive);
    let standby = tokio::spawn(async move {
        while let Some(record) = incoming.recv().await {
            if killed_at == Some(record.number) {
                break;
            }
            match receiver.take(record).await {
                Ok(Some(number)) => drop(stored.send_replace(number)),
                Ok(None) => {}
                Err(error) => {
                    mark.store(false, Ordering::SeqCst);
                    return (receiver, Some(error));
                }
            }
        }
        // Before the master notices the end.
        mark.store(false, Ordering::SeqCst);
        (receiver, None)
    });
    Ends {
        feed,
        hello,
        standby,
        alive,
    }
}

/// The epoch of the first master.
pub fn first() -> Epoch {
    Epoch {
        number: 1,
        holder: "cp-1-11".to_owned(),
        signature: String::new(),
    }
}

/// The CAs that sign the epochs of these tests.
static CAS: LazyLock<Cas> = LazyLock::new(|| {
    let directory = TempDir::new().unwrap();
    Cas::create_or_load(directory.path(), "prod", SystemClock.now()).unwrap()
});

pub fn ca_pem() -> &'static str {
    CAS.certificate_pem(HALITE).unwrap()
}

/// The epoch of a master with this store.
pub fn epoch(store: &Store) -> Epoch {
    CAS.sign_epoch(store.epoch(), store.holder()).unwrap()
}

/// Connects a standby, like [`ends`], and feeds it.
pub fn link(
    master: &MasterHost,
    store: &Store,
    receiver: Receiver,
    times: Times,
    killed_at: Option<u64>,
) -> Link {
    let Ends {
        feed,
        hello,
        standby,
        alive,
    } = ends(master, store, receiver, times, killed_at);
    let (begun, following) = oneshot::channel();
    let epoch = epoch(store);
    let feed = tokio::spawn(async move {
        let begun = || {
            let _ = begun.send(());
        };
        match feed.run(&epoch, &hello, begun).await {
            Err(error) => error,
            Ok(never) => match never {},
        }
    });
    Link {
        feed,
        standby,
        alive,
        following: Some(following),
    }
}

/// Writes an audit line with a number, and a text of some size.
pub async fn write(store: &Store, number: i64, size: usize) {
    let line = Audit {
        time: number,
        who: "operator:root".to_owned(),
        method: "Test".to_owned(),
        what: "x".repeat(size),
        outcome: number.to_string(),
    };
    store.append_audit(&line).await.unwrap();
}

/// Copies the store's file as a new master would have it into a directory of its own.
pub async fn taken_over(host: &MasterHost) -> (TempDir, PathBuf) {
    let receiver = host.receiver();
    let from = receiver.copy().expect("a whole copy").store();
    let scratch = TempDir::new().unwrap();
    let to = scratch.path().join("store.db");
    for suffix in ["", "-wal"] {
        let named = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        if named(&from).exists() {
            std::fs::copy(named(&from), named(&to)).unwrap();
        }
    }
    fold_log(&to).await.unwrap();
    (scratch, to)
}

/// Returns the numbers of the lines in a store's file, after SQLite's own check of it.
pub async fn numbers(path: &Path) -> Vec<i64> {
    let store = Store::open(path).await.unwrap();
    store.check().await.unwrap();
    let filter = AuditFilter {
        limit: 1_000_000,
        ..AuditFilter::default()
    };
    let lines = store.audit(&filter).await.unwrap();
    store.close().await;
    let mut numbers: Vec<i64> = lines.iter().map(|line| line.time).collect();
    numbers.sort_unstable();
    numbers
}

/// Accepts a minion with a key, so that the copy also has rows of other tables.
pub async fn accept(store: &Store, id: &str) {
    let key = halite_store::StoredKey {
        id: minion(id),
        state: halite_store::KeyState::Accepted,
        fingerprint: format!("fp-{id}"),
        csr_pem: String::new(),
        serial: None,
        certificate_pem: None,
        roles: Vec::new(),
        grains_json: "{}".to_owned(),
        token: None,
        created: 1,
        changed: 1,
    };
    store.put_key(&key).await.unwrap();
}
