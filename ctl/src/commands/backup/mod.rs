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

use halite_backup::Directory;
use halite_host_reports::{BACKUP, DIRECTORY as REPORTS};
use halite_pillar::load::{Texts, load};
use halite_pillar::validate::Context;

use self::create::BackupRequest;
#[cfg(test)]
pub use self::create::header_of;
pub use self::outcome::BackupReport;
use self::outcome::NoBackup;
use self::verify::How;
pub use self::write::refuse_unmounted;
use crate::backup_file::identities;
use crate::cli::{Backup, Global};
use crate::output::Screen;
use crate::paths::CONFIG;

/// The extension of a backup's name.
const SUFFIX: &str = "halite-backup";

/// Runs `ctl backup`.
///
/// # Errors
/// There is no backup, it is damaged, or the master or the system refuses.
pub async fn run(global: &Global, command: Backup, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
        Backup::Create { out, local, report } => {
            let wanted = BackupRequest {
                to: out.as_deref(),
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
        Backup::Restore { backup } => Err(how_to_restore(backup.as_deref())),
        Backup::Get { backup, out } => read::get(&found(backup)?, &out, screen),
    }
}

/// The refusal to restore a backup into an existing cluster, with the command that restores one.
fn how_to_restore(backup: Option<&Path>) -> anyhow::Error {
    let file = backup.map_or("FILE".to_owned(), |path| path.display().to_string());
    anyhow::anyhow!(
        "cannot restore a backup into a running cluster. A restore recreates the first host of a lost cluster: on a bare \
         host with the name and address of the lost one, run\n\n  ctl bootstrap --restore {file} --ca-hash HASH\n\nwith \
         the hash that `ctl backup create` showed, and --key KEYFILE for an encrypted backup"
    )
}

/// The directory of the backup that a command line names.
fn place(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    match given {
        Some(given) if given.components().count() > 1 || given.exists() => {
            let is_backup = given.extension().is_some_and(|end| end == SUFFIX);
            let directory = given.parent().filter(|_| is_backup).unwrap_or(given);
            Ok(directory.to_owned())
        }
        _ => declared(),
    }
}

fn directory_or_declared(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    given.map_or_else(declared, Ok)
}

/// The directory that the documents on this host declare; on a standby, which has them only in its
/// copy, the directory of its last scheduled backup.
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

/// The file of a backup: a path, a name in the declared directory, or the newest readable backup of
/// a directory.
fn found(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let place = match given {
        Some(given) if given.components().count() == 1 && !given.exists() => {
            return Ok(declared()?.join(given));
        }
        Some(given) => given,
        None => declared()?,
    };
    let is_backup = place.extension().is_some_and(|end| end == SUFFIX);
    if place.is_dir() || (!is_backup && !place.exists()) {
        newest(&place)
    } else {
        Ok(place)
    }
}

fn newest(directory: &Path) -> anyhow::Result<PathBuf> {
    // The first backup creates the directory.
    let is_missing = !directory.try_exists().unwrap_or(true);
    let mut last = None;
    let found = match is_missing {
        true => Vec::new(),
        false => Directory::new(directory).list()?,
    };
    for found in found.into_iter().rev() {
        match found.file {
            Ok(file) => return Ok(file.path().to_owned()),
            Err(error) => last = last.or(Some(error)),
        }
    }
    match last {
        None => Err(NoBackup(directory.to_owned()).into()),
        Some(error) => Err(anyhow::Error::new(error).context(format!(
            "no backup in {} can be read; `ctl backup create` makes one",
            directory.display()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_without_a_backup_is_not_taken_for_a_damaged_one() {
        let dir = tempfile::tempdir().unwrap();
        let error = |place: &Path| found(Some(place.to_owned())).unwrap_err();
        let missing = dir.path().join("backup");
        for place in [dir.path(), &missing] {
            let error = error(place);
            assert!(error.is::<NoBackup>(), "{error:#}");
            let wanted = format!(
                "there is no backup in {}; `ctl backup create` makes one",
                place.display()
            );
            assert_eq!(error.to_string(), wanted);
        }
        let file = dir.path().join("prod-1.halite-backup");
        assert_eq!(found(Some(file.clone())).unwrap(), file, "named, so read");
        std::fs::write(&file, "no backup").unwrap();
        let error = error(dir.path());
        assert!(!error.is::<NoBackup>(), "{error:#}");
        assert!(error.to_string().starts_with("no backup in "), "{error:#}");
    }
}
