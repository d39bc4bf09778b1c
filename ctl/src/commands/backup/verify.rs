//! `ctl backup verify`: reads a backup completely and, with `--start`, starts an etcd with its
//! snapshot.
//!
//! An encrypted backup cannot be opened on the host that made it, which has no key. In this case
//! every byte of it is compared with its digest, and a new backup is made, whose snapshot is tried
//! before it is encrypted.

use std::io;
use std::path::Path;

use halite_api::{StartedEtcd, Time, VerifiedBackup, to_value};
use halite_backup::{BackupFile, Header, Identity, Manifest, SNAPSHOT};
use halite_host_reports::Good;

use super::create;
use super::create::BackupRequest;
use super::outcome::BackupReport;
use super::read::refuse_foreign;
use super::trial::{self, TrialDirectory};
use crate::backup_file::open_whole;
use crate::cli::Global;
use crate::output::{Screen, count, megabytes, path_text};
use crate::waiting::Waiting;

/// The options of a verification.
#[derive(Default)]
pub struct How<'a> {
    /// The keys of an encrypted backup.
    pub keys: Vec<Identity>,
    /// `true` to start an etcd with the snapshot.
    pub start: bool,
    /// The directory of the bundle whose etcd is started.
    pub bundle: Option<&'a Path>,
    /// The file for the outcome.
    pub report: Option<&'a Path>,
}

/// The findings about a good backup.
struct Found {
    file: BackupFile,
    /// The list of the files in it, if it could be opened.
    list: Option<Manifest>,
    started: Option<Started>,
}

/// A trial with a started etcd.
struct Started {
    /// The backup that was made for the trial.
    made: Option<Good>,
    keys: u64,
    revision: i64,
    /// `true` if the backup has a record of the keys.
    compared: bool,
}

/// Verifies the backup that `path` finds.
///
/// # Errors
/// There is no backup, it is damaged, or no etcd starts with it.
pub async fn run(
    global: &Global,
    path: anyhow::Result<std::path::PathBuf>,
    directory: &Path,
    how: How<'_>,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let outcome = BackupReport::new(how.report);
    let found = match path {
        Ok(path) => verify(global, &path, &how, screen).await,
        Err(error) => Err(error),
    };
    let found = match found {
        Ok(found) => found,
        Err(error) => {
            outcome.failed(directory, &error);
            return Err(error);
        }
    };
    outcome.write(directory, Some(found.good()), None)?;
    answer(&found, screen)?;
    Ok(0)
}

async fn verify(
    global: &Global,
    path: &Path,
    how: &How<'_>,
    screen: &mut Screen,
) -> anyhow::Result<Found> {
    let file = open_whole(path, screen)?;
    refuse_foreign(&file)?;
    let trial = how.start.then(TrialDirectory::new).transpose()?;
    let is_readable = file.header().recipients.is_empty() || !how.keys.is_empty();
    let list = match is_readable {
        true => Some(read(&file, &how.keys, trial.as_ref())?),
        false => None,
    };
    let started = match trial {
        Some(trial) => Some(start(global, &file, &trial, how, list.is_some(), screen).await?),
        None => None,
    };
    Ok(Found {
        file,
        list,
        started,
    })
}

/// Reads a backup completely; a trial receives etcd's snapshot.
fn read(
    file: &BackupFile,
    keys: &[Identity],
    trial: Option<&TrialDirectory>,
) -> anyhow::Result<Manifest> {
    Ok(file.read(keys, &mut |path, _, content| {
        let Some(trial) = trial.filter(|_| path == SNAPSHOT) else {
            return Ok(());
        };
        let mut to = trial.begin().map_err(io::Error::other)?;
        io::copy(content, &mut to).map(drop)
    })?)
}

/// Starts an etcd with the trial's snapshot; if it has none, with the snapshot of a new backup.
async fn start(
    global: &Global,
    file: &BackupFile,
    trial: &TrialDirectory,
    how: &How<'_>,
    is_taken: bool,
    screen: &mut Screen,
) -> anyhow::Result<Started> {
    let (header, made): (Header, Option<Good>) = if is_taken {
        (file.header().clone(), None)
    } else {
        let wanted = BackupRequest {
            local: true,
            trial: Some(trial),
            ..BackupRequest::default()
        };
        let created = create::make(global, wanted, screen).await?;
        (created.header.clone(), Some(created.good()))
    };
    screen.progress("starting an etcd with the snapshot");
    let mut waiting = Waiting::new(
        "an etcd of its own has read the snapshot",
        trial::ANSWER,
        "it depends on the disk and on the number of keys; Ctrl-C ends the trial and leaves the backup unchanged",
    );
    let keys = waiting
        .during(screen, trial.run(how.bundle, &header))
        .await?;
    Ok(Started {
        made,
        keys: keys.count,
        revision: keys.revision,
        compared: header.etcd.keys.is_some(),
    })
}

impl Found {
    /// The good result for a report.
    fn good(&self) -> Good {
        let name = self.file.path().file_name().unwrap_or_default();
        let own = Good {
            name: name.to_string_lossy().into_owned(),
            time: self.file.header().created.as_millisecond(),
            keys: None,
        };
        let Some(started) = &self.started else {
            return own;
        };
        Good {
            keys: Some(started.keys),
            ..started.made.clone().unwrap_or(own)
        }
    }
}

fn answer(found: &Found, screen: &mut Screen) -> anyhow::Result<()> {
    let Found {
        file,
        list,
        started,
    } = found;
    let files = list.as_ref().map(|list| list.files.len());
    let signed = list.as_ref().map(|list| list.is_signed);
    let header = file.header();
    let document = VerifiedBackup {
        path: path_text(file.path()),
        cluster: header.cluster.clone(),
        created: Time::from_millis(header.created.as_millisecond()),
        size: file.size(),
        digest: file.digest().to_owned(),
        files,
        ca_hash: header.cluster_id.clone(),
        signed,
        sound: true,
        started: started.as_ref().map(|started| StartedEtcd {
            made: started.made.as_ref().map(|made| made.name.clone()),
            keys: started.keys,
            revision: started.revision,
            compared: started.compared,
        }),
    };
    screen.answer(&to_value(&document), |paint| {
        let good = paint.good("✓");
        let begin = format!(
            "{good} {}: {} match their digest",
            file.path().display(),
            megabytes(file.size())
        );
        let mut text = match files {
            Some(files) => format!(
                "{begin}; {}, each as in the list; the hash of etcd's snapshot fits\n",
                count(files, "file")
            ),
            None => format!(
                "{begin}. It is encrypted and its content was not read; to read it: --key FILE\n"
            ),
        };
        match signed {
            Some(true) => {
                text.push_str(&format!("{good} signed by the CA {}\n", header.cluster_id))
            }
            Some(false) => text.push_str(&format!(
                "{} it is not signed: a restore asks for --unsigned\n",
                paint.bad("✗")
            )),
            None => {}
        }
        if let Some(started) = started {
            let of = match &started.made {
                Some(made) => format!(
                    "the snapshot of a new backup, {}, before it was encrypted",
                    made.name
                ),
                None => "its snapshot".to_owned(),
            };
            let compared = match started.compared {
                true => "as many as the member had",
                false => "the backup has no record of how many the member had",
            };
            text.push_str(&format!(
                "{good} an etcd was started with {of}: {} keys at revision {}, {compared}\n",
                started.keys, started.revision
            ));
        }
        text
    })
}
