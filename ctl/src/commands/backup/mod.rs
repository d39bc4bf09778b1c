//! `ctl backup`: backups of the cluster.

mod create;
mod outcome;
mod own;
mod parts;
mod read;
mod source;
mod trial;
mod verify;
mod write;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use halite_backup::{BackupFile, Directory};
use halite_host_reports::{BACKUP, DIRECTORY as REPORTS};
use halite_pillar::load::{Texts, load};
use halite_pillar::validate::Context;

use self::create::Wanted;
use self::verify::How;
use crate::cli::{Backup, Global};
use crate::output::Screen;
use crate::paths::CONFIG;

pub use self::read::{identities, open_whole};

/// Runs `ctl backup`.
///
/// # Errors
/// There is no backup, it is no good, or the master or the system refuses.
pub async fn run(global: &Global, command: Backup, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
        Backup::Create { to, local, report } => {
            let wanted = Wanted {
                to: to.as_deref(),
                local,
                trial: None,
            };
            create::run(global, wanted, report.report.as_deref(), screen).await
        }
        Backup::List { directory } => read::list(&directory_or_declared(directory)?, screen),
        Backup::Verify {
            backup,
            key,
            start,
            bundle,
            report,
        } => {
            let how = How {
                keys: identities(key.key.as_deref())?,
                start,
                bundle: bundle.as_deref(),
                report: report.report.as_deref(),
            };
            let directory = place(backup.as_deref())?;
            verify::run(global, found(backup), &directory, how, screen).await
        }
        Backup::Get { backup, file } => read::get(&found(backup)?, &file, screen),
    }
}

/// The directory of the backup that a command line names.
fn place(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    match given {
        Some(given) if given.components().count() > 1 || given.exists() => {
            let is_backup = given.extension().is_some_and(|end| end == "halite-backup");
            let directory = given.parent().filter(|_| is_backup).unwrap_or(given);
            Ok(directory.to_owned())
        }
        _ => declared(),
    }
}

fn directory_or_declared(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    given.map_or_else(declared, Ok)
}

/// The directory that the documents on this host declare; on a standby, which has them in its copy
/// only, that of its last scheduled backup.
fn declared() -> anyhow::Result<PathBuf> {
    if own::program().is_some()
        && let Some(report) = outcome::read(&Path::new(REPORTS).join(format!("{BACKUP}.json")))
        && !report.directory.is_empty()
    {
        return Ok(PathBuf::from(report.directory));
    }
    let remedy = "name the directory or the file";
    let texts = Texts::from_dir(Path::new(CONFIG)).map_err(|problems| {
        anyhow::anyhow!("{}; {remedy}", crate::compile::report(&problems).trim_end())
    })?;
    let declaration = load(&texts, &Context::default()).map_err(|problems| {
        anyhow::anyhow!("{}; {remedy}", crate::compile::report(&problems).trim_end())
    })?;
    Ok(PathBuf::from(&declaration.cluster.backup.directory))
}

/// The file of a backup: a path, a name in the declared directory, or the newest good one of a
/// directory.
fn found(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let place = match given {
        Some(given) if given.components().count() == 1 && !given.exists() => {
            return Ok(declared()?.join(given));
        }
        Some(given) => given,
        None => declared()?,
    };
    if place.is_dir() {
        newest(&place)
    } else {
        Ok(place)
    }
}

fn newest(directory: &Path) -> anyhow::Result<PathBuf> {
    let found = Directory::new(directory).list()?;
    let good = found.into_iter().rev().find_map(|found| found.file.ok());
    good.as_ref()
        .map(BackupFile::path)
        .map(Path::to_owned)
        .with_context(|| {
            format!(
                "there is no backup in {}; `ctl backup create` makes one",
                directory.display()
            )
        })
}
