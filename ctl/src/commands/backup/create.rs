//! `ctl backup create`.
//!
//! The master sends the files; this process encrypts them, checks etcd's snapshot, and writes the
//! file. Nothing that is not encrypted touches a disk, if there are recipients.
//!
//! From the moment the file has its name and was read again, nothing that fails makes the command
//! fail as a whole: its exit code is another one, for which the unit does not repeat the backup.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use halite_backup::{BackupFile, Directory, Header, Pruned, SNAPSHOT, unmounted};
use halite_durable::disk_space::Room;
use halite_errors::chain;
use halite_names::AgeRecipient;
use halite_pillar::backup::Backup;
use halite_proto::tonic::{Status, Streaming};
use halite_proto::v1;
use halite_proto::v1::backup_part::Part;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::parts::Parts;
use crate::INCOMPLETE;
use crate::cli::Global;
use crate::client;
use crate::client::refused;
use crate::output::{Paint, Screen, megabytes};

/// Parts that may wait for the disk.
const QUEUE: usize = 4;
/// Bytes that stay free on the file system of the backups: etcd may be on the same one.
const RESERVE: u64 = 512 << 20;

/// The first part of the master's answer.
#[derive(Deserialize)]
struct Head {
    #[serde(flatten)]
    facts: Value,
    /// The declaration about backups.
    backup: Backup,
}

/// A finished backup.
struct Created {
    path: PathBuf,
    header: Header,
    size: u64,
    files: usize,
    pruned: Pruned,
}

pub async fn run(global: &Global, to: Option<&Path>, screen: &mut Screen) -> anyhow::Result<u8> {
    screen.progress("asking the master for the files");
    let mut operator = client::operator(global).await?;
    let answer = operator.backup(v1::BackupRequest {}).await;
    let mut stream = answer.map_err(|status| refused(&status))?.into_inner();
    let head = next(&mut stream).await.map_err(|status| refused(&status))?;
    let Some(Part::HeadJson(head)) = head else {
        bail!(
            "the master's answer does not begin as that of a backup; is its version another one?"
        );
    };
    let head: Head = serde_json::from_str(&head).context("cannot read the master's answer")?;
    let header = header(&head)?;
    let directory = to.map_or_else(|| PathBuf::from(&head.backup.directory), Path::to_owned);
    let keep = to.is_none().then_some(usize::try_from(head.backup.keep)?);
    screen.progress("writing the backup");
    let (sender, receiver) = mpsc::channel(QUEUE);
    let writing =
        tokio::task::spawn_blocking(move || write(&directory, header, keep, Parts::new(receiver)));
    let received = receive(&mut stream, sender).await;
    let written = writing.await.context("the backup was interrupted")?;
    let created = outcome(written, received)?;
    let reported = screen.answer(&document(&created), |paint| report(&created, paint));
    Ok(exit_code(&created, reported))
}

/// The finished backup. A stream that broke is the cause of what the writer missed; one that broke
/// after its last part is none.
fn outcome(
    written: anyhow::Result<Created>,
    received: Result<(), Status>,
) -> anyhow::Result<Created> {
    match (written, received) {
        (Ok(created), _) => Ok(created),
        (Err(_), Err(status)) => Err(refused(&status)),
        (Err(error), Ok(())) => Err(error),
    }
}

/// The exit code after the backup was made.
fn exit_code(created: &Created, reported: anyhow::Result<()>) -> u8 {
    if let Err(error) = &reported {
        // If this cannot be written either, the exit code remains.
        let _ = writeln!(
            std::io::stderr(),
            "ctl: the backup {} was made, but {error:#}",
            created.path.display()
        );
    }
    if reported.is_ok() && created.pruned.failures.is_empty() {
        0
    } else {
        INCOMPLETE
    }
}

async fn next(stream: &mut Streaming<v1::BackupPart>) -> Result<Option<Part>, Status> {
    Ok(stream.message().await?.and_then(|part| part.part))
}

/// Hands the parts to the writer. Its own reason counts if it has stopped.
async fn receive(
    stream: &mut Streaming<v1::BackupPart>,
    sender: mpsc::Sender<Part>,
) -> Result<(), Status> {
    while let Some(part) = next(stream).await? {
        if sender.send(part).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// The header of the file: the master's facts, and the declared recipients.
fn header(head: &Head) -> anyhow::Result<Header> {
    let recipients = head.backup.recipients.iter();
    let recipients: Result<Vec<AgeRecipient>, _> = recipients.map(|key| key.parse()).collect();
    let mut facts = head.facts.clone();
    facts["recipients"] = serde_json::to_value(recipients?)?;
    let mut header: Header =
        serde_json::from_value(facts).context("cannot read the master's answer")?;
    // Names have whole seconds.
    header.created = Timestamp::from_second(header.created.as_second())?;
    Ok(header)
}

fn write(
    directory: &Path,
    header: Header,
    keep: Option<usize>,
    mut parts: Parts,
) -> anyhow::Result<Created> {
    let cluster_id = header.cluster_id.clone();
    refuse_unmounted(directory)?;
    let place = Directory::new(directory);
    let mut pending = place.begin(header.clone())?;
    let mut files = 0;
    while let Some(file) = parts.next_file().context("cannot make the backup")? {
        if file.path == SNAPSHOT {
            refuse_full(directory, file.size)?;
        }
        pending
            .writer
            .file(&file.path, file.mode, file.size, &mut parts)?;
        files += 1;
    }
    let path = pending.finish()?;
    let made = BackupFile::open(&path)?;
    made.check()?;
    let pruned = keep.map_or_else(Pruned::default, |keep| place.prune(&cluster_id, keep));
    Ok(Created {
        size: made.size(),
        path,
        header,
        files,
        pruned,
    })
}

/// Refuses a directory whose disk or share is declared and not mounted.
fn refuse_unmounted(directory: &Path) -> anyhow::Result<()> {
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

/// Refuses a file system on which etcd and the master would be short of room afterwards.
fn refuse_full(directory: &Path, size: u64) -> anyhow::Result<()> {
    let free = Room::at(directory)?.bytes;
    if free >= size.saturating_add(RESERVE) {
        return Ok(());
    }
    bail!(
        "cannot make a backup in {}: etcd's snapshot has {}, {} are free, and {} of them stay so for others; make room, or \
         declare another `backup.directory`",
        directory.display(),
        megabytes(size),
        megabytes(free),
        megabytes(RESERVE)
    )
}

fn document(created: &Created) -> Value {
    let header = &created.header;
    json!({
        "backup": created.path.file_name().map(|name| name.to_string_lossy()),
        "path": created.path,
        "cluster": header.cluster,
        "created": header.created,
        "bytes": created.size,
        "files": created.files,
        "member": header.etcd.member,
        "encrypted": !header.recipients.is_empty(),
        "removed": created.pruned.removed,
        "problems": problems(created),
    })
}

/// What failed after the backup was made.
fn problems(created: &Created) -> Vec<String> {
    let failures = created.pruned.failures.iter();
    failures.map(|error| chain(error)).collect()
}

fn report(created: &Created, paint: &Paint) -> String {
    let mut text = format!(
        "{} backup {}: {}, {} files, etcd from {}\n",
        paint.good("✓"),
        created.path.display(),
        megabytes(created.size),
        created.files,
        created.header.etcd.member
    );
    if !created.pruned.removed.is_empty() {
        text.push_str(&format!("removed: {}\n", created.pruned.removed.join(", ")));
    }
    for problem in problems(created) {
        text.push_str(&format!(
            "{} the backup was made, but older ones stay: {problem}; remove the cause, and the next backup removes them\n",
            paint.bad("✗")
        ));
    }
    if created.header.recipients.is_empty() {
        text.push_str(&format!(
            "{} it is not encrypted and contains all keys and secrets of the cluster: declare `backup.recipients`, or keep it \
             as safe as the host\n",
            paint.bad("✗")
        ));
    }
    text
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
