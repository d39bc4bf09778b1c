//! The files that another host needs to become the master, in addition to the store: the operator's
//! documents and states, CAs and keys, trust, revocations. Backups and standbys contain them.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::config::Config;
use crate::refusal::Refusal;

/// Names in the operator's directory that each host creates by itself.
pub const MADE_AGAIN: [&str; 5] = [
    "master.yaml",
    "masters",
    "minion.yaml",
    "operator",
    "registry",
];
/// Names in the master's directory that are saved, in addition to the store.
const STATE: [&str; 6] = ["ca", "sa.key", "sa.pub", ENCRYPTION, REVOKED, LAST_VALID];
/// The names of [`STATE`] with CAs and keys.
const KEYS: [&str; 4] = ["ca", "sa.key", "sa.pub", ENCRYPTION];
/// The directory of the keys that encrypt objects in etcd.
pub const ENCRYPTION: &str = "encryption";
/// The record of revocations, beside the store.
pub const REVOKED: &str = "store.db.revoked";
/// The directory of the last valid documents.
pub const LAST_VALID: &str = "last-valid";
/// The operator's directory among the saved files.
pub const CONFIG_PLACE: &str = "config";
/// The master's directory among the saved files.
pub const STATE_PLACE: &str = "state";
/// Maximum nesting of directories: a link may lead to a parent directory.
const DEEPEST: usize = 32;

/// Files by their path among the saved ones: `config/…` or `state/…`.
pub type Files = Vec<(String, PathBuf)>;

/// The files, and the directories that were searched for them.
#[derive(Debug, Default)]
pub struct Listing {
    /// The files.
    pub files: Files,
    /// The directories, also those without a file.
    pub directories: Vec<PathBuf>,
}

/// The files with CAs and keys, by their path among the saved ones: mode and content.
pub type SavedKeys = BTreeMap<String, (u32, Vec<u8>)>;

/// Returns whether a saved file has a CA or a key, which change together in the stages of a
/// rotation.
#[must_use]
pub fn has_key(place: &str) -> bool {
    let rest = place
        .strip_prefix(STATE_PLACE)
        .and_then(|rest| rest.strip_prefix('/'));
    rest.is_some_and(|rest| {
        let first = rest.split('/').next().unwrap_or_default();
        KEYS.contains(&first)
    })
}

/// Reads the files with CAs and keys. Two equal readings, one after the other, are the files of one
/// moment between them.
///
/// # Errors
/// A file or a directory cannot be read.
pub fn keys(config: &Config) -> Result<SavedKeys, Refusal> {
    let mut listing = Listing::default();
    for name in KEYS {
        let path = config.state_dir.join(name);
        add(&path, format!("{STATE_PLACE}/{name}"), 0, &mut listing)?;
    }
    let mut keys = SavedKeys::new();
    for (place, path) in listing.files {
        let read = fs::metadata(&path).and_then(|found| Ok((found, fs::read(&path)?)));
        match read {
            Ok((found, content)) => {
                keys.insert(place, (found.permissions().mode() & 0o777, content));
            }
            // Removed since it was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unreadable(&path, &error)),
        }
    }
    Ok(keys)
}

/// Lists the files.
///
/// # Errors
/// A directory cannot be read.
pub fn files(config: &Config) -> Result<Files, Refusal> {
    Ok(list(config)?.files)
}

/// Lists the files, and the directories that were searched for them.
///
/// # Errors
/// A directory cannot be read.
pub fn list(config: &Config) -> Result<Listing, Refusal> {
    let mut found = Listing::default();
    collect(&config.config_dir, CONFIG_PLACE, &MADE_AGAIN, 0, &mut found)?;
    for name in STATE {
        let path = config.state_dir.join(name);
        add(&path, format!("{STATE_PLACE}/{name}"), 0, &mut found)?;
    }
    Ok(found)
}

/// Adds a directory and the files below it, in the order of their names.
fn collect(
    directory: &Path,
    prefix: &str,
    without: &[&str],
    depth: usize,
    listing: &mut Listing,
) -> Result<(), Refusal> {
    let cannot = |error: io::Error| unreadable(directory, &error);
    if depth > DEEPEST {
        return Err(Refusal::invalid(format!(
            "cannot save {}: more than {DEEPEST} nested directories; is there a link to a parent directory?",
            directory.display()
        )));
    }
    listing.directories.push(directory.to_owned());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(cannot)? {
        let name = entry.map_err(cannot)?.file_name();
        names.push(name.into_string().map_err(|name| {
            Refusal::invalid(format!(
                "cannot save {}: the name {name:?} in it is not UTF-8",
                directory.display()
            ))
        })?);
    }
    names.sort_unstable();
    for name in names
        .iter()
        .filter(|name| !without.contains(&name.as_str()))
    {
        add(
            &directory.join(name),
            format!("{prefix}/{name}"),
            depth,
            listing,
        )?;
    }
    Ok(())
}

/// Adds a file, or the files in a directory. Everything else is skipped: a lock or a pipe has no
/// content.
fn add(path: &Path, name: String, depth: usize, listing: &mut Listing) -> Result<(), Refusal> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => collect(path, &name, &[], depth + 1, listing)?,
        Ok(found) if found.is_file() => listing.files.push((name, path.to_owned())),
        Ok(_) => {}
        // Removed since it was listed, or a dangling link.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(unreadable(path, &error)),
    }
    Ok(())
}

/// Creates the error of an unreadable file.
pub fn unreadable(path: &Path, error: &io::Error) -> Refusal {
    Refusal::internal(format!("cannot save {}: {error}", path.display()))
}
