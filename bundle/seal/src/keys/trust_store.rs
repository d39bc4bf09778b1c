//! Storing keys in a trust directory, so that the next image is checked with them.

use std::fs;
use std::path::{Path, PathBuf};

use halite_durable::files;

use super::directory::{REVOKED, list, parse_revoked, public};
use super::{PublicKey, Trust};
use crate::error::Error;

const MODE: u32 = 0o644;

impl PublicKey {
    /// Stores the key in a trust directory and returns its path. A key that already exists there
    /// under any name is rewritten only if it now expires earlier; only the owner of the directory
    /// may set a later expiry, or none. A file that has the key's name but contains another key is
    /// kept: the new key is stored beside it as `NAME-KEYID.pub`.
    ///
    /// # Errors
    /// Another key with the same id exists there, or a system call fails.
    pub fn keep(&self, dir: &Path) -> Result<PathBuf, Error> {
        let mut there = None;
        for path in public(dir)? {
            // [`Trust::load`] reports invalid keys.
            let Some(key) = PublicKey::load(&path)
                .ok()
                .filter(|key| key.id() == self.id())
            else {
                continue;
            };
            if key.bytes() != self.bytes() {
                let why = format!(
                    "another key with the id {} exists here: one of the two is forged",
                    self.id()
                );
                return Err(Error::content(path, why));
            }
            let mut ending = key.clone();
            ending.until(self);
            if ending != key {
                files::replace(&path, MODE, ending.to_text().as_bytes())?;
            }
            there = there.or(Some(path));
        }
        if let Some(path) = there {
            return Ok(path);
        }
        let name = self
            .name()
            .map_or_else(|| self.id().to_string(), str::to_owned);
        let mut path = dir.join(format!("{name}.pub"));
        if fs::symlink_metadata(&path).is_ok() {
            path = dir.join(format!("{name}-{}.pub", self.id()));
        }
        files::replace(&path, MODE, self.to_text().as_bytes())?;
        Ok(path)
    }
}

impl Trust {
    /// Stores this trust store in a directory: its revocations are added to the directory's list,
    /// and then each key that is not on that list.
    ///
    /// # Errors
    /// As for [`PublicKey::keep`], or the directory's list of revoked keys is invalid.
    pub fn keep(&self, dir: &Path) -> Result<(), Error> {
        let path = dir.join(REVOKED);
        let mut text = list(&path)?;
        let there =
            parse_revoked(&text).map_err(|wrong| Error::content(&path, wrong.join("; ")))?;
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        let new = self
            .revoked()
            .iter()
            .filter(|(id, _)| !there.contains_key(id));
        let lines: String = new
            .map(|(id, why)| format!("{}\n", format!("{id} {why}").trim_end()))
            .collect();
        // Revocations first: an interruption then leaves too little trust, not too much.
        if !lines.is_empty() {
            files::replace(&path, MODE, (text + &lines).as_bytes())?;
        }
        let good = |key: &&PublicKey| {
            !self.revoked().contains_key(&key.id()) && !there.contains_key(&key.id())
        };
        self.keys()
            .iter()
            .filter(good)
            .try_for_each(|key| key.keep(dir).map(drop))
    }
}
