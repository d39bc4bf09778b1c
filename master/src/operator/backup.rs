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
use halite_core::refusal::Refusal;
use halite_core::saved;
use halite_errors::chain;
use halite_fleet::jobs::Jobs;
use halite_proto::v1::BackupPart;
use tokio_stream::wrappers::ReceiverStream;

use crate::backup_parts::{Head, STORE, SnapshotSource, send};

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
    let head = head.json();
    let store = app.store.copy().await?;
    let config = app.config.clone();
    let files = in_background(move || saved::files(&config));
    let mut files = files.await?;
    files.push((STORE.to_owned(), store));
    let snapshot = source.snapshot(members.as_ref()).await?;
    let parts = send(head, files, snapshot, Arc::clone(&app.cas));
    Ok(Box::pin(ReceiverStream::new(parts)))
}
