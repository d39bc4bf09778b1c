//! The places of a backup's files, and the mark that records the progress of a restore.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use halite_backup::{CONFIG, Header, STATE};
use halite_durable::files;
use halite_host_reports::etcd::{DATA, RECORD};
use halite_pillar::masters::ACTS_ALONE;
use jiff::Timestamp;

use super::super::authority;
use crate::paths;

/// The directory of a restore on its host.
const WORK: &str = "/var/lib/halite/restore";
const MARK: &str = "mark";
/// The words of the mark after the digest of the backup.
const BEGUN: &str = "begun";
const PLACED: &str = "placed";
/// The master's record of the epoch and the starts of its store, beside the store.
const EPOCH: &str = "store.db.epoch";
/// The document that is written last: with it the host has a cluster.
const DOCUMENT: &str = "cluster.yaml";
const PRIVATE: u32 = 0o700;
const PUBLIC: u32 = 0o755;

/// The progress of a restore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing was done.
    Bare,
    /// Files may be in place; no daemon has used them.
    Begun,
    /// All files are in place, and the host's own state continues from them.
    Placed,
}

/// The destinations of the files.
pub struct Places {
    /// The operator's documents.
    pub config: PathBuf,
    /// The master's own files.
    pub state: PathBuf,
    /// etcd's data directory.
    pub etcd: PathBuf,
    /// The record of its member.
    pub record: PathBuf,
    /// The restore's working directory.
    pub work: PathBuf,
}

impl Places {
    /// The places on a host.
    pub fn of_host() -> Self {
        Self {
            config: paths::CONFIG.into(),
            state: authority::DIRECTORY.into(),
            etcd: DATA.into(),
            record: RECORD.into(),
            work: WORK.into(),
        }
    }

    /// The progress of the restore of the backup with this digest.
    ///
    /// # Errors
    /// This host has a cluster, or a restore of another backup was started.
    pub fn progress(&self, digest: &str) -> anyhow::Result<Progress> {
        let mark = self.work.join(MARK);
        match fs::read_to_string(&mark) {
            Ok(text) => match text.trim().split_once(' ') {
                Some((found, PLACED)) if found == digest => Ok(Progress::Placed),
                Some((found, _)) if found == digest => Ok(Progress::Begun),
                _ => bail!(
                    "a restore of another backup was started on this host; run it again, or use a bare host. Nothing was \
                     changed."
                ),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let document = self.config.join(DOCUMENT);
                let store = self.state.join("store.db");
                let traces = [document, store, self.member()];
                match traces.iter().find(|trace| trace.exists()) {
                    None => Ok(Progress::Bare),
                    Some(trace) => bail!(
                        "this host has a cluster ({}): a restore would replace its keys and data; use a bare host. Nothing was \
                         changed.",
                        trace.display()
                    ),
                }
            }
            Err(error) => Err(error).with_context(|| format!("cannot read {}", mark.display())),
        }
    }

    /// The directory of etcd's data, which exists completely or not at all.
    pub fn member(&self) -> PathBuf {
        self.etcd.join("member")
    }

    /// `true` if etcd's data is in place.
    pub fn has_member(&self) -> bool {
        self.member().exists()
    }

    /// Records that a restore of this backup starts.
    ///
    /// # Errors
    /// The system's reason.
    pub fn begin(&self, digest: &str) -> anyhow::Result<()> {
        directory(&self.work, PRIVATE)?;
        self.mark(digest, BEGUN)
    }

    /// Records that all files are in place.
    ///
    /// # Errors
    /// The system's reason.
    pub fn placed(&self, digest: &str) -> anyhow::Result<()> {
        self.mark(digest, PLACED)
    }

    fn mark(&self, digest: &str, word: &str) -> anyhow::Result<()> {
        let text = format!("{digest} {word}\n");
        Ok(files::replace(
            &self.work.join(MARK),
            0o600,
            text.as_bytes(),
        )?)
    }

    /// Copies the unpacked files of a backup into place, except the cluster document. The master
    /// continues from this epoch.
    ///
    /// # Errors
    /// The system's reason.
    pub fn fill(&self, unpacked: &Path, epoch: u64) -> anyhow::Result<()> {
        directory(&self.state, PRIVATE)?;
        directory(&self.config, PUBLIC)?;
        copy_all(&unpacked.join(STATE), &self.state, PRIVATE)?;
        let noted = format!("{epoch} 0\n");
        files::replace(&self.state.join(EPOCH), 0o600, noted.as_bytes())?;
        // No other master is left.
        files::replace(&self.state.join(ACTS_ALONE), 0o600, b"")?;
        copy_all(&unpacked.join(CONFIG), &self.config, PUBLIC)
    }
}

/// The epoch after a restore at a time. Minions obey no epoch below the highest that they have
/// seen, and masters after this backup may have had any epoch; only the time has certainly
/// advanced. If the clock is behind, the backup's own time is the lower bound.
pub fn epoch(backup: &Header, time: Timestamp) -> u64 {
    let seconds = u64::try_from(time.max(backup.created).as_second());
    backup.epoch.max(seconds.unwrap_or_default())
}

/// Copies files, each atomically, with their modes.
fn copy_all(from: &Path, to: &Path, directory_mode: u32) -> anyhow::Result<()> {
    for name in files::walk(from)? {
        if name == DOCUMENT {
            continue;
        }
        let (source, place) = (from.join(&name), to.join(&name));
        if let Some(parent) = place.parent() {
            directory(parent, directory_mode)?;
        }
        let cannot = || format!("cannot write {}", place.display());
        let mode = fs::metadata(&source)
            .with_context(cannot)?
            .permissions()
            .mode();
        let partial = files::sibling(&place, "new");
        files::remove_any(&partial)?;
        files::copy(&source, &partial, mode & 0o777)?;
        files::publish(&partial, &place)?;
    }
    Ok(())
}

/// Makes a directory and its parents, if it is missing.
fn directory(path: &Path, mode: u32) -> anyhow::Result<()> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path);
    made.with_context(|| format!("cannot make {}", path.display()))
}
