//! A backup as a stream of parts: the facts about it, files, and at the end a snapshot of etcd. `ctl`
//! makes one file of them; nothing of it is written to a disk here.

use std::io;
use std::path::Path;

use halite_errors::chain;
use halite_etcd::{AlarmKind, Keys, Member, MemberOverview, Members, Overview, Snapshot, Status};
use halite_pillar::cluster::Cluster;
use halite_proto::v1::backup_part::Part;
use halite_proto::v1::{BackupFile, BackupPart};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

use crate::clock::rfc3339;
use crate::refusal::{Refusal, RefusalKind};
use crate::saved::{Files, unreadable};
use crate::store::Millis;

/// The path of the copy of the store in the backup.
pub const STORE: &str = "state/store.db";
const SNAPSHOT: &str = "etcd/snapshot.db";
const PRIVATE: u32 = 0o600;
/// Bytes of one part: well below the limit of a message.
const PIECE: usize = 256 * 1024;
/// Parts that may wait for a slow reader.
const QUEUE: usize = 4;

/// The parts of a backup, or the reason why they end early.
pub type Parts = mpsc::Receiver<Result<BackupPart, Refusal>>;

/// The member of etcd whose snapshot is in a backup.
pub struct Source {
    member: Member,
    status: Status,
    /// Its keys, counted before the snapshot is taken: at that revision the snapshot has the same.
    keys: Keys,
}

impl Source {
    /// Chooses the member: one that serves, that of this host if it has one, and not the leader if
    /// there is another.
    ///
    /// # Errors
    /// No member serves with a quorum, or it is not known which data are right.
    pub async fn choose(members: &dyn Members, own: Option<&str>) -> Result<Self, Refusal> {
        let unavailable = |text: String| Refusal::new(RefusalKind::Unavailable, text);
        let overview = Overview::take(members).await;
        let overview = overview.map_err(|error| unavailable(chain(&error)))?;
        if let Some(alarm) = overview
            .alarms
            .iter()
            .find(|alarm| alarm.kind == AlarmKind::Corrupt)
        {
            return Err(unavailable(format!(
                "cannot take a snapshot of etcd: the member {} has the alarm CORRUPT, so which data are right is not known; \
                 see `ctl etcd status`",
                alarm.member
            )));
        }
        let serves = |one: &&MemberOverview| {
            overview.voters.have_quorum() && one.fault.is_none() && !one.member.is_learner
        };
        let is_other = |one: &MemberOverview| own != Some(one.member.name.as_str());
        let best = overview
            .members
            .iter()
            .filter(serves)
            .min_by_key(|one| (is_other(one), one.leads));
        let best = best.and_then(|one| Some((one.member.clone(), one.status.clone()?)));
        let (member, status) = best.ok_or_else(|| {
            unavailable(format!(
                "cannot take a snapshot of etcd: {}; see `ctl etcd status`",
                overview.quorum_line()
            ))
        })?;
        let keys = members.keys(&member, 0).await;
        let keys = keys.map_err(|error| unavailable(chain(&error)))?;
        Ok(Self {
            member,
            status,
            keys,
        })
    }

    /// Begins the snapshot.
    ///
    /// # Errors
    /// The member does not answer.
    pub async fn snapshot(&self, members: &dyn Members) -> Result<Snapshot, Refusal> {
        let taken = members.snapshot(&self.member).await;
        taken.map_err(|error| Refusal::new(RefusalKind::Unavailable, chain(&error)))
    }
}

/// The facts about a backup, and what is declared about backups.
pub struct Head<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// SHA-256 of the certificate of its own CA.
    pub cluster_id: String,
    /// The time at which it begins.
    pub created: Millis,
    /// The epoch of the store in it.
    pub epoch: u64,
    /// The source of etcd's snapshot.
    pub source: &'a Source,
}

impl Head<'_> {
    /// The first part, as JSON.
    #[must_use]
    pub fn json(&self) -> Value {
        let resolved = self.cluster.resolved.as_ref();
        let Source {
            member,
            status,
            keys,
        } = self.source;
        json!({
            "cluster": self.cluster.metadata.name,
            "cluster_id": self.cluster_id,
            "created": rfc3339(self.created),
            "epoch": self.epoch,
            "halite": env!("CARGO_PKG_VERSION"),
            "kubernetes": self.cluster.kubernetes_version(),
            "bundle": resolved.and_then(|resolved| resolved.bundle.as_ref()),
            "etcd": {
                "member": member.title(),
                "version": status.version,
                "cluster": format!("{:x}", status.cluster),
                "keys": {"revision": keys.revision, "count": keys.count},
            },
            "backup": self.cluster.backup,
        })
    }
}

/// Begins to send a backup.
pub fn send(head: &Value, files: Files, snapshot: Snapshot) -> Parts {
    let (parts, receiver) = mpsc::channel(QUEUE);
    let head = head.to_string();
    tokio::spawn(async move {
        let sender = Sender(parts);
        if let Err(refusal) = sender.all(head, files, snapshot).await {
            sender.fail(refusal).await;
        }
    });
    receiver
}

/// The caller's end of the stream.
struct Sender(mpsc::Sender<Result<BackupPart, Refusal>>);

impl Sender {
    async fn all(&self, head: String, files: Files, snapshot: Snapshot) -> Result<(), Refusal> {
        self.send(Part::HeadJson(head)).await?;
        for (name, path) in files {
            self.file(name, &path).await?;
        }
        self.snapshot(snapshot).await?;
        self.send(Part::End(true)).await
    }

    async fn file(&self, name: String, path: &Path) -> Result<(), Refusal> {
        use std::os::unix::fs::PermissionsExt as _;
        let cannot = |error: io::Error| unreadable(path, &error);
        let mut file = tokio::fs::File::open(path).await.map_err(cannot)?;
        let found = file.metadata().await.map_err(cannot)?;
        let mode = match name.as_str() {
            STORE => PRIVATE,
            _ => found.permissions().mode() & 0o777,
        };
        self.begin(name, mode, found.len()).await?;
        loop {
            let mut piece = Vec::with_capacity(PIECE);
            let taken = (&mut file).take(PIECE as u64).read_to_end(&mut piece).await;
            if taken.map_err(cannot)? == 0 {
                return Ok(());
            }
            self.send(Part::Data(piece)).await?;
        }
    }

    async fn snapshot(&self, mut snapshot: Snapshot) -> Result<(), Refusal> {
        self.begin(SNAPSHOT.to_owned(), PRIVATE, snapshot.size())
            .await?;
        let broken = |error| Refusal::new(RefusalKind::Unavailable, chain(&error));
        while let Some(piece) = snapshot.next().await.map_err(broken)? {
            self.send(Part::Data(piece)).await?;
        }
        Ok(())
    }

    async fn begin(&self, path: String, mode: u32, size: u64) -> Result<(), Refusal> {
        self.send(Part::File(BackupFile { path, mode, size })).await
    }

    async fn send(&self, part: Part) -> Result<(), Refusal> {
        let part = BackupPart { part: Some(part) };
        let sent = self.0.send(Ok(part)).await;
        sent.map_err(|_| Refusal::new(RefusalKind::Unavailable, "the caller has gone"))
    }

    async fn fail(&self, refusal: Refusal) {
        tracing::warn!(error = %refusal, "a backup was not completed");
        // The caller has gone: there is no other place for it.
        let _ = self.0.send(Err(refusal)).await;
    }
}
