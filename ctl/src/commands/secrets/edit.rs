//! `ctl secrets edit`: an editor on the plain text, in memory only.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use halite_document::Problem;
use halite_durable::{ScratchDir, files};
use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Texts, load};
use halite_pillar::sealed::SealedSecrets;
use halite_pillar::validate::Context as Facts;
use halite_secrets::SecretText;
use rustix::fs::statfs;
use tokio::process::Command;
use tokio::signal::unix::{SignalKind, signal};

use super::SecretSite;
use crate::compile::report;
use crate::confirm::answered;
use crate::output::Screen;

const HEAD: &str = "# The values of secrets: one `NAME: VALUE` for each. Their names, roles and nodes are in cluster.yaml.\n";
/// The numbers of file systems in memory: tmpfs, ramfs.
const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
/// The beginning of the directory's name.
const KIND: &str = "halite-secrets-";
const NAME: &str = "secrets.yaml";

/// A text that is being edited.
pub(super) struct Draft {
    texts: Texts,
    /// The text before.
    pub before: String,
    file: String,
}

impl Draft {
    /// Decrypts the present text; without a file, a text with the names that need a value.
    ///
    /// # Errors
    /// The documents cannot be read, or the file cannot be decrypted.
    pub fn open(site: &SecretSite) -> anyhow::Result<Self> {
        let mut texts = site.texts()?;
        let file = site.file();
        file.open_in(&mut texts)?;
        let present = texts
            .sealed
            .as_ref()
            .and_then(|sealed| sealed.plain.as_ref());
        let before = match present {
            Some(plain) => plain.reveal().to_owned(),
            None => Self::first(site)?,
        };
        Ok(Self {
            texts,
            before,
            file: file.path().display().to_string(),
        })
    }

    /// Writes a text, unless another command has changed the values since.
    ///
    /// # Errors
    /// It has, or a file cannot be written.
    pub fn write(
        &self,
        site: &SecretSite,
        text: &str,
        declaration: &Declaration,
    ) -> anyhow::Result<()> {
        let sealed = self.texts.sealed.as_ref();
        let before = sealed.and_then(|sealed| sealed.plain.as_ref());
        Ok(site.file().replace(before, text, declaration)?)
    }

    fn first(site: &SecretSite) -> anyhow::Result<String> {
        // Without an encrypted file, a name without a value would be a problem.
        let mut texts = site.texts()?;
        texts.sealed = Some(SealedSecrets::default());
        let declared = load(&texts, &Facts::default());
        let declared = declared.map_err(|problems| anyhow::anyhow!("{}", report(&problems)))?;
        let needed = declared.cluster.unknown_secrets();
        let needed: String = needed.map(|name| format!("{name}: \"\"\n")).collect();
        Ok(format!("{HEAD}{needed}"))
    }

    /// The declaration with an edited text.
    ///
    /// # Errors
    /// All problems, without any value.
    pub fn check(&self, text: &str) -> Result<Declaration, Vec<Problem>> {
        let mut texts = self.texts.clone();
        texts.sealed = Some(SealedSecrets {
            file: self.file.clone(),
            bytes: Vec::new(),
            plain: Some(SecretText::new(text)),
        });
        load(&texts, &Facts::default())
    }
}

/// Runs `ctl secrets edit`. Returns `true` if the file was written. `again` asks, after problems or
/// a failed write, whether the same text is edited again.
///
/// # Errors
/// No memory file system is mounted, the editor fails, or the file cannot be decrypted or written.
pub(super) async fn edit(
    site: &SecretSite,
    editor: &str,
    again: fn(&mut Screen) -> anyhow::Result<bool>,
    screen: &mut Screen,
) -> anyhow::Result<bool> {
    let draft = Draft::open(site)?;
    // Removed when this function returns; what a killed process leaves, by the next one.
    let scratch = ScratchDir::within(&memory()?, KIND)?;
    let path = scratch.path().join(NAME);
    files::write(&path, 0o600, draft.before.as_bytes())?;
    loop {
        run_editor(editor, &path, scratch.path()).await?;
        let text = std::fs::read_to_string(&path);
        let text = text.with_context(|| format!("cannot read {}", path.display()))?;
        if text == draft.before {
            screen.note("nothing was changed");
            return Ok(false);
        }
        let discarded = match draft.check(&text) {
            Ok(declaration) => {
                let Err(error) = draft.write(site, &text, &declaration) else {
                    screen.note(format!("{} is written", draft.file));
                    return Ok(true);
                };
                // The text exists nowhere else, and the reason may be a full disk.
                screen.note(format!("{error:#}"));
                "the edited text could not be written, and was discarded"
            }
            Err(problems) => {
                screen.note(report(&problems));
                "the edited text is invalid and was discarded; nothing was written"
            }
        };
        if !again(screen)? {
            bail!(discarded);
        }
    }
}

/// Asks the operator whether to edit the text again; without a terminal, the answer is no.
///
/// # Errors
/// The answer cannot be read.
pub(super) fn ask_again(screen: &mut Screen) -> anyhow::Result<bool> {
    if !std::io::stdin().is_terminal() {
        return Ok(false);
    }
    let question = "Edit the text again? Otherwise it is discarded. [Y/n] ";
    let answer = answered(question, screen)?;
    Ok(answer.is_some_and(|answer| !matches!(answer.trim(), "n" | "N" | "no")))
}

/// The operator's editor: a command with arguments.
pub(super) fn editor() -> String {
    let named = ["VISUAL", "EDITOR"].into_iter();
    let mut named = named.filter_map(|name| std::env::var(name).ok());
    let editor = named.find(|editor| !editor.trim().is_empty());
    editor.unwrap_or_else(|| "vi".to_owned())
}

/// A directory in memory.
fn memory() -> anyhow::Result<PathBuf> {
    let session = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
    let places = session.into_iter().chain([PathBuf::from("/dev/shm")]);
    let mut places = places.filter(|place| is_in_memory(place));
    places
        .next()
        .context("cannot edit the values: neither $XDG_RUNTIME_DIR nor /dev/shm is a file system in memory; mount a tmpfs on /dev/shm")
}

pub(super) fn is_in_memory(place: &Path) -> bool {
    let kind = statfs(place).map(|found| u64::try_from(found.f_type).unwrap_or_default());
    kind.is_ok_and(|kind| IN_MEMORY.contains(&(kind & 0xffff_ffff)))
}

/// Runs an editor, and waits for its end.
async fn run_editor(editor: &str, path: &Path, directory: &Path) -> anyhow::Result<()> {
    let mut ends = [SignalKind::terminate(), SignalKind::hangup()]
        .map(|kind| signal(kind).context("cannot wait for signals"));
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
    // As git does: the variable may have arguments.
    let mut child = Command::new("sh")
        .arg("-c")
        .arg(format!("{editor} \"$1\""))
        .arg("editor")
        .arg(path)
        // Files beside the text, of editors that use it, stay in memory.
        .env("TMPDIR", directory)
        .kill_on_drop(true)
        .spawn()
        .context("cannot start sh")?;
    let [terminate, hangup] = &mut ends;
    let (Ok(terminate), Ok(hangup)) = (terminate, hangup) else {
        bail!("cannot wait for signals");
    };
    let status = loop {
        tokio::select! {
            ended = child.wait() => break ended.context("cannot wait for the editor")?,
            _ = terminate.recv() => bail!("terminated; nothing was written"),
            _ = hangup.recv() => bail!("the terminal has ended; nothing was written"),
            // It is the editor's: the text must not be lost.
            _ = interrupt.recv() => {}
        }
    };
    if !status.success() {
        bail!(
            "the editor `{editor}` has failed ({status}); nothing was written: EDITOR names another one"
        );
    }
    Ok(())
}
