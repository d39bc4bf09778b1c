//! `ctl backup`: backups of the cluster.

mod create;
mod parts;
mod read;

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use halite_backup::{BackupFile, Directory};
use halite_pillar::load::{Texts, load};
use halite_pillar::validate::Context;

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
        Backup::Create { to } => create::run(global, to.as_deref(), screen).await,
        Backup::List { directory } => read::list(&directory_or_declared(directory)?, screen),
        Backup::Verify { backup, key } => {
            let backup = found(backup)?;
            read::verify(&backup, &identities(key.key.as_deref())?, screen)
        }
        Backup::Get { backup, file } => read::get(&found(backup)?, &file, screen),
    }
}

fn directory_or_declared(given: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    given.map_or_else(declared, Ok)
}

/// The directory that the documents on this host declare.
fn declared() -> anyhow::Result<PathBuf> {
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
