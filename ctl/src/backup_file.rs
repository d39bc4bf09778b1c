//! A backup in a file, and the keys that open it.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use halite_backup::{BackupFile, Identity};

use crate::output::Screen;

/// The keys in a file; empty without a file.
///
/// # Errors
/// The file cannot be read or has no key.
pub fn identities(file: Option<&Path>) -> anyhow::Result<Vec<Identity>> {
    let Some(file) = file else {
        return Ok(Vec::new());
    };
    let text = fs::read_to_string(file);
    let text = text.with_context(|| format!("cannot read the key {}", file.display()))?;
    Identity::parse_file(&text).with_context(|| format!("cannot use the key {}", file.display()))
}

/// A backup of which every byte was compared with its digest.
///
/// # Errors
/// The file is not a backup, or it is damaged.
pub fn open_whole(path: &Path, screen: &mut Screen) -> anyhow::Result<BackupFile> {
    screen.progress(&format!("reading {}", path.display()));
    let file = BackupFile::open(path)?;
    file.check()?;
    Ok(file)
}
