//! `ctl config wizard`: asks for the fields of a new declaration that its schemas mark, and writes
//! its documents.
//!
//! The questions, their texts, defaults, ranges and conditions come from the schemas, so a new
//! field needs no code here. Each answer is checked by the validation of the documents. Nothing is
//! written before the last answer.

mod answers;
mod draft;
mod existing;
mod first_host;
mod interview;
mod suggestion;
mod target;

use std::io;
use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use self::draft::Draft;
use self::existing::ExistingDocuments;
use self::first_host::FirstHost;
use super::{facts, manifest, validate};
use crate::FAILED;
use crate::cli::{ConfigPath, ConfigWizard};
use crate::compile::report;
use crate::confirm::confirmed;
use crate::files;
use crate::output::Screen;
use crate::site::Site;

/// Runs `ctl config wizard`.
///
/// # Errors
/// There is no terminal, an answer is missing or invalid, or a file cannot be read, written or
/// removed.
pub fn run(args: &ConfigWizard, screen: &mut Screen) -> anyhow::Result<u8> {
    let has_terminal = io::stdin().is_terminal() && io::stderr().is_terminal();
    if args.answers.is_none() && !has_terminal {
        bail!(
            "cannot ask questions without a terminal; give the answers in a file with --answers (`ctl config wizard --help`)"
        );
    }
    target::check(&args.out)?;
    let existing = ExistingDocuments::read(&args.out)?;
    let host = FirstHost::find(args)?;
    let bundle = find_bundle(args.bundle.as_deref());
    let read = bundle.as_deref().map(facts).transpose()?;
    if let Some(existing) = &existing {
        let question = existing.question(args.answers.is_some());
        if !confirmed(&question, args.yes, screen)? {
            return Ok(FAILED);
        }
    }
    let mut draft = Draft::new(&args.out, read, host.facts.clone());
    if let Some(existing) = &existing {
        draft.leave(existing);
    }
    match &args.answers {
        Some(file) => answers::apply(&mut draft, file, host.is_here)?,
        None => {
            if let Some(existing) = &existing {
                draft.begin_with(existing);
            }
            interview::run(&mut draft, &host, screen)?;
        }
    }
    let problems = draft.problems(|_| false);
    if !problems.is_empty() {
        bail!("cannot write the documents: {}", report(&problems));
    }
    if ExistingDocuments::read(&args.out)? != existing {
        bail!(
            "cannot write the documents: {} was changed while this command ran; nothing was written, run it again",
            args.out.display()
        );
    }
    for (path, text, mode) in draft.files() {
        files::write(&path, text.as_bytes(), mode)
            .with_context(|| format!("cannot write {}", path.display()))?;
        screen.note(format!("wrote {}", path.display()));
    }
    if let Some(old) = draft.obsolete() {
        // Both together would declare two first hosts.
        halite_durable::files::remove(&old)?;
        let old = old.display();
        screen.note(format!("removed {old}, the first host's previous document"));
    }
    let written = ConfigPath {
        path: args.out.clone(),
        bundle: bundle.clone(),
    };
    let code = validate(&written, screen)?;
    screen.note(next(&args.out, bundle.as_deref(), &draft, &host));
    Ok(code)
}

/// The named bundle, or else the one that contains this program or that this site uses, or else the
/// only ISO of a bundle beside this program.
fn find_bundle(named: Option<&Path>) -> Option<PathBuf> {
    if let Some(named) = named {
        return Some(named.to_owned());
    }
    let found = Site::here().bundle_directory(None).ok();
    let found = found.filter(|path| path.join(manifest::FILE).is_file());
    found.or_else(|| {
        let program = std::env::current_exe().and_then(|path| path.canonicalize());
        only_image(program.ok()?.parent()?)
    })
}

/// The ISO of a bundle in a directory; `None` if there are several, or none that can be read.
pub(super) fn only_image(directory: &Path) -> Option<PathBuf> {
    let all = std::fs::read_dir(directory).ok()?.flatten();
    let images = all.map(|entry| entry.path()).filter(|path| {
        let is_image = path.extension().is_some_and(|extension| extension == "iso");
        is_image && path.is_file() && facts(path).is_ok()
    });
    let mut images = images.take(2);
    images.next().filter(|_| images.next().is_none())
}

/// The next command.
fn next(directory: &Path, bundle: Option<&Path>, draft: &Draft, host: &FirstHost) -> String {
    let name = draft
        .node_name()
        .filter(|name| host.name.as_ref() != Some(name));
    let name = name.map(|name| format!(" --name {name}"));
    let image = bundle.filter(|bundle| bundle.is_file());
    let image = image.unwrap_or_else(|| Path::new("halite.iso"));
    format!(
        "next: ctl bootstrap --config {} --bundle {} --trust builder.pub{}",
        directory.display(),
        image.display(),
        name.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests;
