//! `ctl secrets encrypt`: moves values from the cluster document into the encrypted file.
//!
//! The encrypted file is written first, and may have the same values as the document. So each value
//! is in at least one of them wherever the command ends, and the next one completes the move.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, bail};
use halite_durable::files;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::resolve::without_secret_values;
use halite_pillar::sealed::SealedSecrets;
use halite_pillar::validate::Context as Facts;
use halite_secrets::SecretText;

use super::copies::copies;
use super::{OpenDocuments, SecretSite};
use crate::compile::report;
use crate::output::Screen;

/// A move that is prepared: nothing is written yet.
pub(super) struct Move {
    documents: OpenDocuments,
    /// The names that leave the document.
    pub names: Vec<String>,
    plain: String,
    document: String,
}

impl Move {
    /// Prepares the move of all values in the cluster document; `None` if it has none.
    ///
    /// # Errors
    /// The documents are invalid, the file cannot be decrypted, or the text of the document has a
    /// form that cannot be changed.
    pub fn prepare(site: &SecretSite) -> anyhow::Result<Option<Self>> {
        let documents = site.open()?;
        let refused = |problems: Vec<_>| anyhow::anyhow!("{}", report(&problems));
        let texts = &documents.texts;
        // Without the encrypted file, a value is known only if the document has it.
        let closed = Texts {
            sealed: Some(SealedSecrets::default()),
            ..texts.clone()
        };
        let written = load(&closed, &Facts::default()).map_err(refused)?;
        let mut names = Vec::new();
        let mut plain = texts
            .sealed
            .as_ref()
            .and_then(|sealed| sealed.plain.as_ref())
            .map_or_else(String::new, |plain| plain.reveal().to_owned());
        let before = encrypted_names(site, &plain, texts)?;
        for (name, secret) in &written.cluster.secrets {
            let Some(value) = secret.known() else {
                continue;
            };
            names.push(name.clone());
            if !before.contains(name) {
                if !plain.is_empty() && !plain.ends_with('\n') {
                    plain.push('\n');
                }
                plain.push_str(&entry(name, value));
            }
        }
        if names.is_empty() {
            return Ok(None);
        }
        let Text { file, text } = &texts.cluster;
        let document = without_secret_values(file, text, &documents.declaration.cluster)
            .map_err(|problem| anyhow::anyhow!("{problem}"))?;
        let prepared = Self {
            names,
            plain,
            document,
            documents,
        };
        prepared.check(site)?;
        Ok(Some(prepared))
    }

    /// Checks that the new texts declare the same.
    fn check(&self, site: &SecretSite) -> anyhow::Result<()> {
        let mut texts = self.documents.texts.clone();
        texts.cluster.text.clone_from(&self.document);
        texts.sealed = Some(SealedSecrets {
            file: site.file().path().display().to_string(),
            bytes: Vec::new(),
            plain: Some(SecretText::new(self.plain.as_str())),
        });
        let after = load(&texts, &Facts::default()).map_err(|problems| {
            anyhow::anyhow!(
                "cannot move the values; nothing was changed: {}",
                report(&problems)
            )
        })?;
        if after.cluster.value.secrets != self.documents.declaration.cluster.value.secrets {
            bail!(
                "cannot move the values: the new text would declare others; write `secrets:` with one key per line, and run the \
                 command again. Nothing was changed."
            );
        }
        Ok(())
    }

    /// Writes the encrypted file.
    pub fn write_encrypted(&self, site: &SecretSite) -> anyhow::Result<()> {
        let sealed = self.documents.texts.sealed.as_ref();
        let before = sealed.and_then(|sealed| sealed.plain.as_ref());
        let declaration = &self.documents.declaration;
        Ok(site.file().replace(before, &self.plain, declaration)?)
    }

    /// Writes the document, unless it has changed since it was read.
    pub fn write_document(&self, site: &SecretSite) -> anyhow::Result<()> {
        let path = site.document();
        let cannot = || format!("cannot read {}", path.display());
        let now = fs::read_to_string(&path).with_context(cannot)?;
        if now != self.documents.texts.cluster.text {
            bail!(
                "{} was changed by another program; its values are encrypted, and also still in it: run this command again",
                path.display()
            );
        }
        let mode = fs::metadata(&path).with_context(cannot)?.permissions();
        Ok(files::replace(
            &path,
            mode.mode() & 0o777,
            self.document.as_bytes(),
        )?)
    }

    /// Other files of the operator that contain one of the moved values, or a line of one.
    ///
    /// # Errors
    /// A directory cannot be listed.
    pub fn copies(&self, site: &SecretSite) -> anyhow::Result<Vec<String>> {
        let secrets = &self.documents.declaration.cluster.secrets;
        let moved = self.names.iter().filter_map(|name| secrets.get(name));
        copies(&site.config, moved.filter_map(|secret| secret.known()))
    }
}

/// The names whose values are in the encrypted file already.
fn encrypted_names(site: &SecretSite, plain: &str, texts: &Texts) -> anyhow::Result<Vec<String>> {
    if plain.is_empty() || texts.sealed.is_none() {
        return Ok(Vec::new());
    }
    let file = site.file().path().display().to_string();
    halite_pillar::sealed::names(&file, plain).map_err(|problem| anyhow::anyhow!("{problem}"))
}

/// Runs `ctl secrets encrypt`. Returns `true` if values are or would be moved.
///
/// # Errors
/// See [`Move::prepare`]; or a file cannot be written.
pub(super) fn encrypt(site: &SecretSite, test: bool, screen: &mut Screen) -> anyhow::Result<bool> {
    let Some(prepared) = Move::prepare(site)? else {
        screen.note("the cluster document has no values of secrets; nothing was changed");
        return Ok(false);
    };
    let (from, to) = (site.document(), site.file());
    let names = prepared.names.join(", ");
    let (from, to) = (from.display(), to.path().display());
    if test {
        screen.note(format!(
            "would move the values of {names} from {from} to {to}; nothing was changed"
        ));
        return Ok(true);
    }
    prepared.write_encrypted(site)?;
    prepared.write_document(site)?;
    screen.note(format!("moved the values of {names} from {from} to {to}"));
    // The values are moved: what follows must not look like a failure of that.
    match prepared.copies(site) {
        Ok(copies) => {
            for copy in copies {
                screen.note(format!(
                    "{copy} still contains one of these values, or a line of one: remove it, or change the value (`ctl secrets edit`)"
                ));
            }
        }
        Err(error) => screen.note(format!(
            "cannot search {} for copies of these values; search it yourself: {error:#}",
            site.config.display()
        )),
    }
    screen.note(
        "older backups and unused blocks of the disk may still contain the values: change them if others may read those",
    );
    Ok(true)
}

/// An entry of the plain text. A value of several lines, such as a key, stays readable.
pub(super) fn entry(name: &str, value: &str) -> String {
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    let name = quoted(name);
    let is_plain = |c: char| c == '\n' || c == ' ' || c.is_ascii_graphic();
    let is_block = value.ends_with('\n')
        && !value.ends_with("\n\n")
        && value.trim_end_matches('\n').contains('\n')
        && !value.starts_with([' ', '\n'])
        && value.chars().all(is_plain);
    if !is_block {
        return format!("{name}: {}\n", quoted(value));
    }
    let lines: String = value.lines().map(|line| format!("  {line}\n")).collect();
    format!("{name}: |\n{lines}")
}
