//! Writes the file of a backup from the parts as they arrive.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use halite_api::Time;
use halite_backup::{Directory, Header, Pruned, SIGNATURE, SNAPSHOT, unmounted};
use halite_durable::disk_space::Room;
use halite_host_reports::Good;

use super::parts::BackupStream;
use crate::output::megabytes;

/// Bytes that must stay free on the file system of the backups: etcd may use the same one.
const RESERVE: u64 = 512 << 20;

/// A finished backup.
pub struct Created {
    pub path: PathBuf,
    pub header: Header,
    pub size: u64,
    pub files: usize,
    /// `true` if the master has signed it.
    pub is_signed: bool,
    pub pruned: Pruned,
    /// The time since which the standby that made it has not followed the master.
    pub behind: Option<Time>,
}

impl Created {
    /// Its directory.
    pub fn directory(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// Its name in that directory.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }

    /// The good result for a report.
    pub fn good(&self) -> Good {
        Good {
            name: self.name(),
            time: self.header.created.as_millisecond(),
            keys: None,
        }
    }
}

/// Writes the file in a directory and, if a number is given, removes older ones there except that
/// many. `copy` also receives etcd's snapshot.
///
/// # Errors
/// A part is missing or damaged, or the directory cannot be used; no file is left then.
pub fn write(
    directory: &Path,
    header: Header,
    keep: Option<usize>,
    mut parts: BackupStream,
    mut copy: Option<fs::File>,
) -> anyhow::Result<Created> {
    let cluster_id = header.cluster_id.clone();
    refuse_unmounted(directory)?;
    let place = Directory::new(directory);
    let cannot = || format!("cannot make a backup in {}", directory.display());
    let mut pending = place.begin(header.clone()).with_context(cannot)?;
    let (mut files, mut is_signed) = (0, false);
    while let Some(file) = parts.next_file().context("cannot make the backup")? {
        let is_snapshot = file.path == SNAPSHOT;
        if is_snapshot {
            refuse_full(directory, file.size)?;
        }
        let writer = &mut pending.writer;
        match copy.take_if(|_| is_snapshot) {
            Some(copy) => {
                let mut both = Both {
                    from: &mut parts,
                    copy,
                };
                writer.file(&file.path, file.mode, file.size, &mut both)
            }
            None => writer.file(&file.path, file.mode, file.size, &mut parts),
        }
        .with_context(cannot)?;
        files += 1;
        is_signed |= file.path == SIGNATURE;
    }
    let made = pending.finish().with_context(cannot)?;
    let mut created = Created {
        size: made.size(),
        path: made.path().to_owned(),
        header,
        files,
        is_signed,
        pruned: Pruned::default(),
        behind: None,
    };
    if let Some(keep) = keep {
        created.pruned = place.prune(&cluster_id, keep, &created.name());
    }
    Ok(created)
}

/// A reader whose bytes are also written to a file.
struct Both<'a> {
    from: &'a mut BackupStream,
    copy: fs::File,
}

impl Read for Both<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        use std::io::Write as _;
        let count = self.from.read(buffer)?;
        self.copy.write_all(&buffer[..count])?;
        Ok(count)
    }
}

/// Refuses a directory whose disk or share is declared and not mounted.
///
/// # Errors
/// The mount point, with the remedy.
pub fn refuse_unmounted(directory: &Path) -> anyhow::Result<()> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let directory = std::path::absolute(directory)?;
    match unmounted(&directory, &read("/etc/fstab"), &read("/proc/self/mounts")) {
        None => Ok(()),
        Some(point) => bail!(
            "cannot make a backup in {}: /etc/fstab has a file system for {}, and it is not mounted; mount it \
             (`mount {1}`), so that the backup is not made on the disk below it",
            directory.display(),
            point.display()
        ),
    }
}

/// Refuses a file system on which etcd and the master would have too little space afterwards.
fn refuse_full(directory: &Path, size: u64) -> anyhow::Result<()> {
    let free = Room::at(directory)?.bytes;
    if free >= size.saturating_add(RESERVE) {
        return Ok(());
    }
    bail!(
        "cannot make a backup in {}: etcd's snapshot has {}, {} are free, and {} must stay free; make room, or \
         declare another `backup.directory`",
        directory.display(),
        megabytes(size),
        megabytes(free),
        megabytes(RESERVE)
    )
}
