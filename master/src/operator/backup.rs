//! `ctl backup create`: everything that a restore needs, as a stream of files.
//!
//! The files are the ones that a new first host cannot get from a bundle: the operator's documents
//! and states, CAs and keys, trust, the store, and a snapshot of etcd. `ctl` encrypts them and
//! checks the snapshot's hash; none of them is written to a disk here.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::Stream;
use halite_core::app::App;
use halite_core::ca::HALITE;
use halite_core::declared::in_background;
use halite_core::refusal::{Refusal, RefusalKind};
use halite_core::saved;
use halite_core::saved::SavedKeys;
use halite_errors::chain;
use halite_etcd::{Members, Snapshot};
use halite_fleet::jobs::Jobs;
use halite_proto::v1::BackupPart;
use tokio_stream::wrappers::ReceiverStream;

use crate::backup_parts::{Head, STORE, SavedContent, SnapshotSource, send};

/// The number of attempts to take a snapshot during which no key changes.
const TRIALS: u32 = 3;

/// The parts of a backup, in order.
pub type BackupParts = Pin<Box<dyn Stream<Item = Result<BackupPart, Refusal>> + Send>>;

/// Starts a backup.
///
/// # Errors
/// No member of etcd can give a snapshot, or a file cannot be read. Later failures are in the
/// stream.
pub async fn backup(app: &Arc<App>, jobs: &Arc<Jobs>) -> Result<BackupParts, Refusal> {
    let declared = jobs.declarations().in_force().await?;
    let members = jobs.clusters().etcd().members(&declared).await?;
    let source = SnapshotSource::choose(members.as_ref(), None).await?;
    let id = app.cas.certificate_sha256(HALITE);
    let head = Head {
        cluster: &declared.declaration().cluster,
        cluster_id: id.map_err(|error| Refusal::internal(chain(&error)))?,
        created: app.clock.now(),
        epoch: app.store.epoch(),
        source: &source,
    };
    let head = head.part();
    let store = app.store.copy().await?;
    let config = app.config.clone();
    let files = in_background(move || saved::files(&config));
    let mut files = files.await?;
    files.retain(|(place, _)| !saved::has_key(place));
    files.push((STORE.to_owned(), store));
    let (keys, snapshot) = matching(app, &source, members.as_ref()).await?;
    let content = SavedContent { files, keys };
    let parts = send(head, content, snapshot, Arc::clone(&app.cas));
    Ok(Box::pin(ReceiverStream::new(parts)))
}

/// The CAs and keys of one moment, and a snapshot of etcd that begins while they are in use: a
/// snapshot from another stage of a rotation could have Secrets that none of the keys decrypts.
async fn matching(
    app: &App,
    source: &SnapshotSource,
    members: &dyn Members,
) -> Result<(SavedKeys, Snapshot), Refusal> {
    let keys = || {
        let config = app.config.clone();
        in_background(move || saved::keys(&config))
    };
    let mut before = keys().await?;
    for _ in 0..TRIALS {
        let snapshot = source.snapshot(members).await?;
        let after = keys().await?;
        if before == after {
            return Ok((after, snapshot));
        }
        before = after;
    }
    Err(Refusal::new(
        RefusalKind::Unavailable,
        "cannot make a backup: the CAs and keys change during a rotation; run the command again",
    ))
}
