//! `ctl backup create`: everything that a restore needs, as a stream of files.
//!
//! The files are those that a new first host cannot get from a bundle: the operator's documents and
//! states, CAs and keys, trust, the store, and a snapshot of etcd. `ctl` encrypts them and checks
//! the snapshot's hash; nothing of them is written to a disk here.

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use halite_errors::chain;
use halite_etcd::{AlarmKind, Member, MemberOverview, Members, Overview, Snapshot, Status};
use halite_proto::v1::backup_part::Part;
use halite_proto::v1::{BackupFile, BackupPart};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::app::App;
use crate::ca::HALITE;
use crate::clock::rfc3339;
use crate::declared;
use crate::declared::in_background;
use crate::jobs::Jobs;
use crate::refusal::{Refusal, RefusalKind};
use crate::saved;
use crate::saved::{Files, unreadable};

/// The parts of a backup, as they come.
pub type BackupParts = Pin<Box<dyn Stream<Item = Result<BackupPart, Refusal>> + Send>>;

/// The path of the copy of the store in the backup.
const STORE: &str = "state/store.db";
const SNAPSHOT: &str = "etcd/snapshot.db";
const PRIVATE: u32 = 0o600;
/// Bytes of one part: well below the limit of a message.
const PIECE: usize = 256 * 1024;
/// Parts that may wait for a slow reader.
const QUEUE: usize = 4;

/// Begins a backup.
///
/// # Errors
/// No member of etcd can give a snapshot, or a file cannot be read. What fails later is in the
/// stream.
pub async fn backup(app: &Arc<App>, jobs: &Arc<Jobs>) -> Result<BackupParts, Refusal> {
    let declared = jobs.declarations().load().await?;
    let members = jobs.clusters().etcd().members(&declared).await?;
    let (member, status) = source(members.as_ref()).await?;
    let head = head(app, &declared, &member, &status)?;
    let store = app.store.copy().await?;
    let config = app.config.clone();
    let files = in_background(move || saved::files(&config));
    let mut files = files.await?;
    files.push((STORE.to_owned(), store));
    let taken = members.snapshot(&member).await;
    let snapshot = taken.map_err(|error| Refusal::new(RefusalKind::Unavailable, chain(&error)))?;
    let (parts, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let sender = Sender(parts);
        if let Err(refusal) = sender.all(head, files, snapshot).await {
            sender.fail(refusal).await;
        }
    });
    Ok(Box::pin(ReceiverStream::new(receiver)))
}

/// The member that gives the snapshot: one that serves, and not the leader if there is another.
async fn source(members: &dyn Members) -> Result<(Member, Status), Refusal> {
    let unavailable = |text: String| Refusal::new(RefusalKind::Unavailable, text);
    let overview = Overview::take(members).await;
    let overview = overview.map_err(|error| unavailable(chain(&error)))?;
    if let Some(alarm) = overview
        .alarms
        .iter()
        .find(|alarm| alarm.kind == AlarmKind::Corrupt)
    {
        return Err(unavailable(format!(
            "cannot take a snapshot of etcd: the member {} has the alarm CORRUPT, so which data are right is not known; see \
             `ctl etcd status`",
            alarm.member
        )));
    }
    let serves = |own: &&MemberOverview| {
        overview.voters.have_quorum() && own.fault.is_none() && !own.member.is_learner
    };
    let best = overview
        .members
        .iter()
        .filter(serves)
        .min_by_key(|own| own.leads);
    let best = best.and_then(|own| Some((own.member.clone(), own.status.clone()?)));
    best.ok_or_else(|| {
        unavailable(format!(
            "cannot take a snapshot of etcd: {}; see `ctl etcd status`",
            overview.quorum_line()
        ))
    })
}

/// The facts about the backup, and what is declared about backups.
fn head(
    app: &App,
    declared: &declared::Snapshot,
    member: &Member,
    status: &Status,
) -> Result<String, Refusal> {
    let cluster = &declared.declaration().cluster;
    let resolved = cluster.resolved.as_ref();
    let id = app.cas.certificate_sha256(HALITE);
    let head: Value = json!({
        "cluster": cluster.metadata.name,
        "cluster_id": id.map_err(|error| Refusal::internal(chain(&error)))?,
        "created": rfc3339(app.clock.now()),
        "epoch": app.store.epoch(),
        "halite": env!("CARGO_PKG_VERSION"),
        "kubernetes": cluster.kubernetes_version(),
        "bundle": resolved.and_then(|resolved| resolved.bundle.as_ref()),
        "etcd": {
            "member": member.title(),
            "version": status.version,
            "cluster": format!("{:x}", status.cluster),
        },
        "backup": cluster.backup,
    });
    Ok(head.to_string())
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
