//! Keeping keys in a trust directory, so that the next image is checked with them.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use halite_durable::files;

use super::trust::{REVOKED, parse_revoked};
use super::{PublicKey, Trust};
use crate::error::Error;

const MODE: u32 = 0o644;

impl PublicKey {
    /// Keeps the key in a trust directory; where. A key that is there under whatever name is not
    /// written again, unless its end is an earlier one now: a later one, or none, is for whoever
    /// owns the directory to write there. A file that has the key's name and holds another key
    /// stays: a rotated key stands beside the old one as `NAME-KEYID.pub`.
    ///
    /// # Errors
    /// When another key with the same id is there, or the system refuses.
    pub fn keep(&self, dir: &Path) -> Result<PathBuf, Error> {
        let mut there = None;
        for path in public(dir)? {
            // What is no key is for whoever loads the directory to name.
            let Some(key) = PublicKey::load(&path)
                .ok()
                .filter(|key| key.id() == self.id())
            else {
                continue;
            };
            if key.bytes() != self.bytes() {
                let why = format!(
                    "another key with the id {} is here: one of the two is forged",
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
    /// Keeps all of this in a trust directory: who is trusted no more is added to its list, and of
    /// the keys each that is not on it.
    ///
    /// # Errors
    /// As [`PublicKey::keep`]; or the directory's list of revoked keys is none.
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
        // First what takes trust away: whoever is cut off trusts too little then.
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

/// The text of a list of revoked keys, empty where there is none.
pub(super) fn list(path: &Path) -> Result<String, Error> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
        read => read.map_err(Error::file("read", path)),
    }
}

/// The `.pub` files of a directory, which need not be there.
pub(super) fn public(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let listed = match fs::read_dir(dir) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(Error::file("list", dir))?,
    };
    let mut found = Vec::new();
    for entry in listed {
        let path = entry.map_err(Error::file("list", dir))?.path();
        found.extend(
            path.extension()
                .is_some_and(|suffix| suffix == "pub")
                .then_some(path.clone()),
        );
    }
    found.sort_unstable();
    Ok(found)
}
