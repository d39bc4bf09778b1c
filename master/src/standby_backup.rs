//! `halite-master save`: the content of a backup from this standby's copy and etcd, without the
//! master.
//!
//! `ctl backup create --local` runs it, and assembles one file from the parts, as from the
//! master's. The copy is read while the daemon continues to use it.

use std::fs::File;
use std::io;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use halite_api::SavedStandby;
use halite_cluster::etcd;
use halite_core::ca::{CaError, Cas, HALITE};
use halite_core::clock::Clock;
use halite_core::config::Config;
use halite_core::refusal::Refusal;
use halite_core::saved::{STATE_PLACE, SavedKeys};
use halite_proto::framing;
use halite_standby::declared::{declaration, own_name};
use halite_standby::disk::{CopyError, file_error, make_directory};
use halite_standby::export::{Exported, clear, export, has_same_keys};
use halite_standby::report::report;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::backup_parts::{Head, PartReceiver, STORE, SavedContent, SnapshotSource, send};

/// A copy that cannot be saved.
#[derive(Debug, thiserror::Error)]
pub enum SaveError {
    /// The host has the master, or has no copy.
    #[error("this host is not a standby; use the master with `ctl backup create`")]
    NoStandby,
    /// Another process is saving.
    #[error("another process is saving the copy of this standby")]
    Busy,
    /// The copy.
    #[error(transparent)]
    Copy(#[from] CopyError),
    /// The CAs in it.
    #[error(transparent)]
    Ca(#[from] CaError),
    /// The documents in it, or etcd.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The keys have changed since the copy was read.
    #[error("the CAs or keys have changed during a rotation; run the command again")]
    Rotation,
    /// The caller.
    #[error("cannot write the backup's parts")]
    Write(#[source] io::Error),
}

/// Writes the parts of a backup.
///
/// # Errors
/// This host is not a standby or has no copy yet, no member of etcd can give a snapshot, or the
/// stream is closed.
pub async fn save(
    config: &Config,
    clock: &dyn Clock,
    to: &mut impl Write,
) -> Result<(), SaveError> {
    let mark = halite_standby::mark(config);
    let masters = halite_standby::masters(&mark).map_err(file_error("read", &mark))?;
    if masters.is_none() {
        return Err(SaveError::NoStandby);
    }
    let root = halite_standby::directory(config);
    let scratch = root.join("saving");
    let lock = lock(&scratch)?;
    let saved = parts(config, clock, &root, &scratch).await;
    let saved = match saved {
        Ok(parts) => pass_on(parts, to).await,
        Err(error) => Err(error),
    };
    // Also removes files of a killed process.
    let cleared = clear(&scratch);
    drop(lock);
    saved?;
    Ok(cleared?)
}

/// Restricts the directory to one process at a time.
fn lock(directory: &Path) -> Result<File, SaveError> {
    make_directory(directory)?;
    let opened = File::open(directory).map_err(file_error("open", directory))?;
    match flock(&opened, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(opened),
        Err(Errno::WOULDBLOCK) => Err(SaveError::Busy),
        Err(error) => Err(file_error("lock", directory)(error.into()).into()),
    }
}

/// Starts to send the parts.
async fn parts(
    config: &Config,
    clock: &dyn Clock,
    root: &Path,
    scratch: &Path,
) -> Result<PartReceiver, SaveError> {
    let Exported {
        store,
        mut files,
        root: saved,
        epoch,
    } = export(root, scratch).await?;
    let declaration = declaration(&saved, &config.state_dir)?;
    let cas = Cas::load(&saved.join(STATE_PLACE))?;
    let own = own_name(config, &declaration);
    let members = etcd::client(&declaration, &cas, clock.now(), own)?;
    let source = SnapshotSource::choose(&members, own).await?;
    let head = Head {
        cluster: &declaration.cluster,
        cluster_id: cas.certificate_sha256(HALITE)?,
        created: clock.now(),
        epoch,
        source: &source,
    };
    let mut head = head.part();
    // The store in it is as old as the end of the stream, if the stream has ended.
    head.standby = Some(SavedStandby {
        name: own.map(str::to_owned),
        followed: report(config)?,
    });
    let snapshot = source.snapshot(&members).await?;
    // Secrets in the snapshot may need the keys of the next stage.
    if !has_same_keys(root, &files)? {
        return Err(SaveError::Rotation);
    }
    files.push((STORE.to_owned(), store));
    let content = SavedContent {
        files,
        keys: SavedKeys::new(),
    };
    Ok(send(head, content, snapshot, Arc::new(cas)))
}

async fn pass_on(mut parts: PartReceiver, to: &mut impl Write) -> Result<(), SaveError> {
    while let Some(part) = parts.recv().await {
        framing::write(to, &part?).map_err(SaveError::Write)?;
    }
    to.flush().map_err(SaveError::Write)
}

#[cfg(test)]
mod tests {
    use halite_core::clock::SystemClock;

    use super::*;

    #[tokio::test]
    async fn only_a_standby_with_a_copy_saves_it_and_one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let shown = dir.path().display();
        let text = format!(
            "cluster: prod\nadvertise: [127.0.0.1]\nstate_dir: {shown}/state\nconfig_dir: {shown}/etc\n"
        );
        let config = Config::parse(&text).unwrap();
        std::fs::create_dir(&config.state_dir).unwrap();
        let mut to = Vec::new();
        let error = save(&config, &SystemClock, &mut to).await.unwrap_err();
        assert!(matches!(error, SaveError::NoStandby), "{error}");
        std::fs::write(halite_standby::mark(&config), "10.0.0.1:4550\n").unwrap();
        let error = save(&config, &SystemClock, &mut to).await.unwrap_err();
        assert!(error.to_string().contains("no whole copy"), "{error}");
        let _other = lock(&halite_standby::directory(&config).join("saving")).unwrap();
        let error = save(&config, &SystemClock, &mut to).await.unwrap_err();
        assert!(matches!(error, SaveError::Busy), "{error}");
        assert_eq!(to, b"");
    }
}
