//! `ctl backup create`.
//!
//! The master, or a program on this standby, sends the files; this process encrypts them, checks
//! etcd's snapshot, and writes the file. If there are recipients, nothing unencrypted touches a
//! disk except the snapshot of a trial: on a host with etcd's own data, in a directory for root.
//!
//! Once the file has its name and was read back, a later failure does not fail the whole command:
//! it has a separate exit code, for which the unit does not repeat the backup.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use halite_api::{BackupHead, MadeBackup, Time, to_value};
use halite_backup::{CountedKeys, EtcdSource, Header};
use halite_errors::chain;
use halite_names::AgeRecipient;
use halite_proto::v1::backup_part::Part;
use jiff::Timestamp;
use tokio::sync::mpsc;

use super::outcome::BackupReport;
use super::parts::BackupStream;
use super::source::PartSource;
use super::trial::TrialDirectory;
use super::write::{Created, write};
use crate::INCOMPLETE;
use crate::cli::Global;
use crate::output::{Paint, Screen, megabytes, path_text};
use crate::waiting::Waiting;

/// The number of parts that may wait for the disk.
const QUEUE: usize = 4;

/// The time since which a standby that saved its copy has not followed the master.
fn behind(head: &BackupHead) -> Option<Time> {
    let followed = head.standby.as_ref()?.followed.as_ref()?;
    (!followed.following).then_some(followed.since)
}

/// The options of a backup.
#[derive(Default)]
pub struct BackupRequest<'a> {
    /// The directory; `None` for the declared one, in which older backups are removed.
    pub to: Option<&'a Path>,
    /// `true` to use this standby's own copy, if the host is a standby.
    pub local: bool,
    /// The trial that also receives etcd's snapshot.
    pub trial: Option<&'a TrialDirectory>,
}

pub async fn run(
    global: &Global,
    wanted: BackupRequest<'_>,
    report: Option<&Path>,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let outcome = BackupReport::new(report);
    let to = wanted.to.map(Path::to_owned);
    let created = match make(global, wanted, screen).await {
        Ok(created) => created,
        Err(error) => {
            outcome.failed(&to.unwrap_or_default(), &error);
            return Err(error);
        }
    };
    let failure = problems(&created).into_iter().next();
    let failure = failure.map(|problem| format!("the backup was made, but {problem}"));
    let written = outcome.write(created.directory(), Some(created.good()), failure);
    let reported = written.and_then(|()| {
        let document = to_value(&document(&created));
        screen.answer(&document, |paint| self::report(&created, paint))
    });
    Ok(exit_code(&created, reported))
}

/// Makes a backup.
///
/// # Errors
/// The parts do not arrive, or the file cannot be written; no file is left then.
pub async fn make(
    global: &Global,
    wanted: BackupRequest<'_>,
    screen: &mut Screen,
) -> anyhow::Result<Created> {
    let mut source = PartSource::open(global, wanted.local, screen).await?;
    let Some(Part::HeadJson(head)) = source.next().await? else {
        bail!(
            "the answer does not start like a backup; check that the master and ctl have the same version"
        );
    };
    let head = read(&head)?;
    let header = header(&head)?;
    let declared = || PathBuf::from(&head.backup.directory);
    let directory = wanted.to.map_or_else(declared, Path::to_owned);
    let keep = wanted.to.is_none().then_some(head.backup.keep);
    let keep = keep.map(usize::try_from).transpose()?;
    screen.progress("writing the backup");
    let (sender, receiver) = mpsc::channel(QUEUE);
    let copy = wanted.trial.map(TrialDirectory::begin).transpose()?;
    let writing = tokio::task::spawn_blocking(move || {
        write(&directory, header, keep, BackupStream::new(receiver), copy)
    });
    let mut waiting = Waiting::without_limit(
        "the backup is on the disk",
        "etcd's snapshot is the greatest part of it; Ctrl-C ends the command, and earlier backups stay",
    );
    let both = async { (source.pass_on(sender).await, writing.await) };
    let (received, written) = waiting.during(screen, both).await;
    let written = written.context("the backup was interrupted")?;
    let mut created = outcome(written, received)?;
    created.behind = behind(&head);
    Ok(created)
}

/// The finished backup. If the writer failed, a broken stream is the cause. A stream that broke
/// after its last part is harmless.
fn outcome(
    written: anyhow::Result<Created>,
    received: anyhow::Result<()>,
) -> anyhow::Result<Created> {
    match (written, received) {
        (Ok(created), _) => Ok(created),
        (Err(_), Err(error)) | (Err(error), Ok(())) => Err(error),
    }
}

/// The exit code once the backup has been made.
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

/// Reads the first part.
fn read(head: &str) -> anyhow::Result<BackupHead> {
    serde_json::from_str(head).context("cannot read the master's answer")
}

/// The header that a first part gives, for the tests of the contract.
#[cfg(test)]
pub fn header_of(head: &str) -> anyhow::Result<Header> {
    header(&read(head)?)
}

/// The header of the file: the master's facts, and the declared recipients.
fn header(head: &BackupHead) -> anyhow::Result<Header> {
    let recipients = head.backup.recipients.iter();
    let recipients: Result<Vec<AgeRecipient>, _> = recipients.map(|key| key.parse()).collect();
    let etcd = &head.etcd;
    Ok(Header {
        cluster: head.cluster.clone(),
        cluster_id: head.cluster_id.clone(),
        // Names have whole seconds.
        created: Timestamp::from_second(head.created.as_millis() / 1000)?,
        epoch: head.epoch,
        halite: head.halite.clone(),
        kubernetes: head.kubernetes.clone(),
        bundle: head.bundle.as_ref().map(ToString::to_string),
        etcd: EtcdSource {
            member: etcd.member.clone(),
            version: etcd.version.clone(),
            cluster: etcd.cluster.clone(),
            keys: etcd.keys.map(|keys| CountedKeys {
                revision: keys.revision,
                count: keys.count,
            }),
        },
        recipients: recipients?,
    })
}

fn document(created: &Created) -> MadeBackup {
    let header = &created.header;
    MadeBackup {
        backup: created.name(),
        path: path_text(&created.path),
        cluster: header.cluster.clone(),
        ca_hash: header.cluster_id.clone(),
        signed: created.is_signed,
        created: Time::from_millis(header.created.as_millisecond()),
        size: created.size,
        files: created.files,
        member: header.etcd.member.clone(),
        encrypted: !header.recipients.is_empty(),
        removed: created.pruned.removed.clone(),
        not_followed_since: created.behind,
        problems: problems(created),
    }
}

/// The failures after the backup was made.
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
    let ca = &created.header.cluster_id;
    if created.is_signed {
        text.push_str(&format!(
            "signed by the CA {ca}: note that beside the key, a restore compares it\n"
        ));
    } else {
        text.push_str(&format!(
            "{} it is not signed: the master is of an earlier version; update it, and make another one\n",
            paint.bad("✗")
        ));
    }
    if !created.pruned.removed.is_empty() {
        text.push_str(&format!("removed: {}\n", created.pruned.removed.join(", ")));
    }
    for problem in problems(created) {
        text.push_str(&format!(
            "{} the backup was made, but older ones stay: {problem}; remove the cause, and the next backup removes them\n",
            paint.bad("✗")
        ));
    }
    if let Some(since) = created.behind {
        text.push_str(&format!(
            "{} this standby has not followed the master since {since}: all in it but etcd's data is of that time\n",
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
