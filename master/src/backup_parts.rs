//! A backup as a stream of parts: its facts, the files, and at the end a snapshot of etcd. `ctl`
//! assembles one file from them; nothing is written to a disk here.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_api::{BackupHead, BackupOptions, KeysAtRevision, SnapshotMember, Time};
use halite_core::ca::{Cas, HALITE};
use halite_core::refusal::{Refusal, RefusalKind};
use halite_core::saved;
use halite_core::saved::{Files, unreadable};
use halite_errors::chain;
use halite_etcd::{AlarmKind, Keys, Member, MemberOverview, Members, Overview, Snapshot, Status};
use halite_pillar::cluster::Cluster;
use halite_proto::pki;
use halite_proto::v1::backup_part::Part;
use halite_proto::v1::{BackupFile, BackupPart};
use halite_store::Millis;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;

/// The path of the copy of the store in the backup.
pub const STORE: &str = "state/store.db";
const SNAPSHOT: &str = "etcd/snapshot.db";
/// The path of the signature, after all other files.
const SIGNATURE: &str = "signature.json";
/// The kind of signed statement.
const STATEMENT: &str = "halite-backup-signature 1";
const PRIVATE: u32 = 0o600;
/// Bytes of one part: well below the limit of a message.
const PIECE: usize = 256 * 1024;
/// Parts that may wait for a slow reader.
const QUEUE: usize = 4;

/// The parts of a backup, or the reason why they end early.
pub type PartReceiver = mpsc::Receiver<Result<BackupPart, Refusal>>;

/// The member of etcd whose snapshot is in a backup.
pub struct SnapshotSource {
    member: Member,
    status: Status,
    /// Its keys, counted before the snapshot is taken: at that revision the snapshot has the same
    /// count.
    keys: Keys,
}

impl SnapshotSource {
    /// Chooses the member: one that serves; preferably this host's own, and not the leader if there
    /// is another.
    ///
    /// # Errors
    /// No member serves with a quorum, or it is unknown which data are right.
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

    /// Starts the snapshot.
    ///
    /// # Errors
    /// The member does not answer.
    pub async fn snapshot(&self, members: &dyn Members) -> Result<Snapshot, Refusal> {
        let taken = members.snapshot(&self.member).await;
        taken.map_err(|error| Refusal::new(RefusalKind::Unavailable, chain(&error)))
    }
}

/// The facts about a backup, and the declared backup options.
pub struct Head<'a> {
    /// The cluster.
    pub cluster: &'a Cluster,
    /// SHA-256 of the certificate of its own CA.
    pub cluster_id: String,
    /// The time at which it starts.
    pub created: Millis,
    /// The epoch of the store in it.
    pub epoch: u64,
    /// The source of the etcd snapshot.
    pub source: &'a SnapshotSource,
}

impl Head<'_> {
    /// The first part.
    #[must_use]
    pub fn part(&self) -> BackupHead {
        let resolved = self.cluster.resolved.as_ref();
        let SnapshotSource {
            member,
            status,
            keys,
        } = self.source;
        let backup = &self.cluster.backup;
        BackupHead {
            cluster: self.cluster.metadata.name.to_string(),
            cluster_id: self.cluster_id.clone(),
            created: Time::from_millis(self.created),
            epoch: self.epoch,
            halite: env!("CARGO_PKG_VERSION").to_owned(),
            kubernetes: self.cluster.kubernetes_version().to_owned(),
            bundle: resolved.and_then(|resolved| resolved.bundle.clone()),
            etcd: SnapshotMember {
                member: member.title(),
                version: status.version.clone(),
                cluster: format!("{:x}", status.cluster),
                keys: Some(KeysAtRevision {
                    revision: keys.revision,
                    count: keys.count,
                }),
            },
            backup: BackupOptions {
                directory: backup.directory.clone(),
                keep: backup.keep,
                recipients: backup.recipients.clone(),
            },
            standby: None,
        }
    }
}

/// The files of a backup, in addition to the snapshot of etcd.
pub struct SavedContent {
    /// The files that are read while they are sent.
    pub files: Files,
    /// The files with CAs and keys, if they were read before: a rotation may change the ones on
    /// disk.
    pub keys: saved::SavedKeys,
}

/// Starts to send a backup, which the cluster's own CA signs.
pub fn send(
    head: BackupHead,
    content: SavedContent,
    snapshot: Snapshot,
    cas: Arc<Cas>,
) -> PartReceiver {
    let (to, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let mut sender = Sender {
            to,
            sent: BTreeMap::new(),
        };
        if let Err(refusal) = sender.all(&head, content, snapshot, &cas).await {
            sender.fail(refusal).await;
        }
    });
    receiver
}

/// A stream of parts.
struct Sender {
    /// The sender to the caller.
    to: mpsc::Sender<Result<BackupPart, Refusal>>,
    /// The files already sent, in signed form.
    sent: BTreeMap<String, Value>,
}

impl Sender {
    async fn all(
        &mut self,
        head: &BackupHead,
        content: SavedContent,
        snapshot: Snapshot,
        cas: &Cas,
    ) -> Result<(), Refusal> {
        let json = serde_json::to_string(head).map_err(|error| Refusal::internal(chain(&error)))?;
        self.send(Part::HeadJson(json)).await?;
        for (name, path) in content.files {
            self.file(name, &path).await?;
        }
        for (name, (mode, content)) in content.keys {
            self.bytes(name, mode, &content).await?;
        }
        self.snapshot(snapshot).await?;
        self.signature(head, cas).await?;
        self.send(Part::End(true)).await
    }

    async fn file(&mut self, name: String, path: &Path) -> Result<(), Refusal> {
        use std::os::unix::fs::PermissionsExt as _;
        let cannot = |error: io::Error| unreadable(path, &error);
        let mut file = tokio::fs::File::open(path).await.map_err(cannot)?;
        let found = file.metadata().await.map_err(cannot)?;
        let mode = match name.as_str() {
            STORE => PRIVATE,
            _ => found.permissions().mode() & 0o777,
        };
        let mut begun = self.begin(name, mode, found.len()).await?;
        loop {
            let mut piece = Vec::with_capacity(PIECE);
            let taken = (&mut file).take(PIECE as u64).read_to_end(&mut piece).await;
            if taken.map_err(cannot)? == 0 {
                self.sent.extend([begun.finish()]);
                return Ok(());
            }
            begun.hash.update(&piece);
            self.send(Part::Data(piece)).await?;
        }
    }

    /// Sends a file that was read before.
    async fn bytes(&mut self, name: String, mode: u32, content: &[u8]) -> Result<(), Refusal> {
        let mut begun = self.begin(name, mode, content.len() as u64).await?;
        begun.hash.update(content);
        self.pieces(content).await?;
        self.sent.extend([begun.finish()]);
        Ok(())
    }

    async fn pieces(&self, content: &[u8]) -> Result<(), Refusal> {
        for piece in content.chunks(PIECE) {
            self.send(Part::Data(piece.to_vec())).await?;
        }
        Ok(())
    }

    async fn snapshot(&mut self, mut snapshot: Snapshot) -> Result<(), Refusal> {
        let mut begun = self
            .begin(SNAPSHOT.to_owned(), PRIVATE, snapshot.size())
            .await?;
        let broken = |error| Refusal::new(RefusalKind::Unavailable, chain(&error));
        while let Some(piece) = snapshot.next().await.map_err(broken)? {
            begun.hash.update(&piece);
            self.send(Part::Data(piece)).await?;
        }
        self.sent.extend([begun.finish()]);
        Ok(())
    }

    /// Sends the signature of everything before it, as a file.
    async fn signature(&self, head: &BackupHead, cas: &Cas) -> Result<(), Refusal> {
        let statement = json!({"kind": STATEMENT, "header": head, "files": self.sent}).to_string();
        let internal = |error| Refusal::internal(chain(&error));
        let signature = cas.sign_statement(HALITE, &statement).map_err(internal)?;
        // While the CA is rotated, the one that signs is the first.
        let certificates = cas.certificates(HALITE).map_err(internal)?;
        let certificate = certificates.first();
        let text = json!({
            "statement": statement,
            "signature": STANDARD.encode(signature),
            "certificate": certificate,
        });
        let text = text.to_string().into_bytes();
        let size = text.len() as u64;
        self.begin(SIGNATURE.to_owned(), PRIVATE, size).await?;
        self.pieces(&text).await
    }

    async fn begin(&self, path: String, mode: u32, size: u64) -> Result<Begun, Refusal> {
        let begun = Begun {
            path: path.clone(),
            mode,
            size,
            hash: Sha256::new(),
        };
        let file = BackupFile { path, mode, size };
        self.send(Part::File(file)).await?;
        Ok(begun)
    }

    async fn send(&self, part: Part) -> Result<(), Refusal> {
        let part = BackupPart { part: Some(part) };
        let sent = self.to.send(Ok(part)).await;
        sent.map_err(|_| Refusal::new(RefusalKind::Unavailable, "the caller has disconnected"))
    }

    async fn fail(&self, refusal: Refusal) {
        tracing::warn!(error = %refusal, "a backup was not completed");
        // The caller has disconnected: the failure can be reported nowhere else.
        let _ = self.to.send(Err(refusal)).await;
    }
}

/// A file whose content is being sent.
struct Begun {
    path: String,
    mode: u32,
    size: u64,
    hash: Sha256,
}

impl Begun {
    /// Its entry in the signed statement.
    fn finish(self) -> (String, Value) {
        let sha256 = pki::hex(&self.hash.finalize());
        let entry = json!({"sha256": sha256, "size": self.size, "mode": self.mode});
        (self.path, entry)
    }
}
