//! `ctl secrets`: the encrypted values of the operator's secrets, on the master's host.

mod copies;
mod edit;
mod encrypt;
mod list;
#[cfg(test)]
mod tests;

#[cfg(test)]
pub use self::list::{recipient_table, secret_table};

use std::path::{Path, PathBuf};

use anyhow::bail;
use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Texts, load};
use halite_pillar::masters::STANDBY_OF;
use halite_pillar::validate::Context;
use halite_secret_file::SecretFile;

use crate::backup_file::identities;
use crate::cli::{Global, Secrets};
use crate::client;
use crate::compile::report;
use crate::output::Screen;
use crate::paths::{CONFIG, STATE_DIR};

/// The directories of the master's host.
struct SecretSite {
    config: PathBuf,
    state: PathBuf,
}

/// Documents and their decrypted values.
struct OpenDocuments {
    texts: Texts,
    declaration: Declaration,
}

impl SecretSite {
    /// The site of this host.
    ///
    /// # Errors
    /// This host is a standby: its documents are the master's.
    fn here() -> anyhow::Result<Self> {
        let site = Self {
            config: CONFIG.into(),
            state: STATE_DIR.into(),
        };
        if site.state.join(STANDBY_OF).exists() {
            bail!(
                "cannot change the secrets on this host: it is a standby; run the command on the master's host (`ctl master list`)"
            );
        }
        Ok(site)
    }

    fn file(&self) -> SecretFile {
        SecretFile::new(&self.config, &self.state)
    }

    fn document(&self) -> PathBuf {
        self.config.join("cluster.yaml")
    }

    /// The documents as they are, with the encrypted file still closed.
    fn texts(&self) -> anyhow::Result<Texts> {
        Texts::from_dir(&self.config).map_err(|problems| anyhow::anyhow!("{}", report(&problems)))
    }

    /// The documents without any value.
    fn closed(&self) -> anyhow::Result<Declaration> {
        let texts = self.texts()?;
        load(&texts, &Context::default())
            .map_err(|problems| anyhow::anyhow!("{}", report(&problems)))
    }

    /// The documents with all values.
    fn open(&self) -> anyhow::Result<OpenDocuments> {
        let mut texts = self.texts()?;
        self.file().open_in(&mut texts)?;
        let declaration = load(&texts, &Context::default())
            .map_err(|problems| anyhow::anyhow!("{}", report(&problems)))?;
        Ok(OpenDocuments { texts, declaration })
    }

    /// Rotates the identity of this host.
    fn rotate(&self) -> anyhow::Result<()> {
        let declaration = self.open()?.declaration;
        Ok(self.file().rotate(&declaration)?)
    }

    /// Encrypts the file to this host with a key from a file.
    fn recover(&self, key: &Path) -> anyhow::Result<()> {
        let keys = identities(Some(key))?;
        let declaration = self.closed()?;
        Ok(self.file().recover(&keys, Some(&declaration))?)
    }
}

/// Runs `ctl secrets`.
///
/// # Errors
/// The documents are invalid, the encrypted file cannot be decrypted, or a file cannot be written.
pub async fn run(global: &Global, command: Secrets, screen: &mut Screen) -> anyhow::Result<u8> {
    let site = SecretSite::here()?;
    match command {
        Secrets::List => list::secrets(&site, screen),
        Secrets::Recipients => list::recipients(&site, screen),
        Secrets::Edit => {
            if edit::edit(&site, &edit::editor(), edit::ask_again, screen).await? {
                read_again(global, screen).await;
            }
            Ok(0)
        }
        Secrets::Encrypt { test } => {
            let moved = encrypt::encrypt(&site, test, screen);
            // Also without a move, and after a failure: an earlier command may have ended between
            // its files and this.
            if !test {
                read_again(global, screen).await;
            }
            moved.map(|_| 0)
        }
        Secrets::Recover { key } => {
            site.recover(&key)?;
            screen.note("the values of secrets are encrypted to this host again");
            read_again(global, screen).await;
            Ok(0)
        }
    }
}

/// Runs `ctl certs rotate secrets`, after the confirmation.
///
/// # Errors
/// See [`run`].
pub async fn rotate(global: &Global, test: bool, screen: &mut Screen) -> anyhow::Result<u8> {
    let site = SecretSite::here()?;
    if test {
        site.open()?;
        screen.note(format!(
            "would replace {} and encrypt {} again",
            site.file().identity_path().display(),
            site.file().path().display()
        ));
        return Ok(0);
    }
    site.rotate()?;
    read_again(global, screen).await;
    screen.note("the identity for the values of secrets is rotated; if others may know the previous one, change the values as well");
    Ok(0)
}

/// Lets the master read the documents now, so that its stored documents have no earlier plain text.
async fn read_again(global: &Global, screen: &mut Screen) {
    if let Err(error) = client::status(global).await {
        screen.note(format!(
            "the master reads the documents later, because it does not answer now: {error:#}"
        ));
    }
}
