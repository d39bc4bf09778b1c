//! A release of Halite: the files that a user downloads (`docs/dev/release.md`).
//!
//! The programs as shipped, the state tree and the book are put into an archive and into two Debian
//! packages. The checksums of all files are signed once, with OpenSSH. The same source tree, tools
//! and key give the same bytes.

mod archive;
mod book;
mod changelog;
mod content;
mod packages;
mod signature;
mod source;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use halite_durable::files;
use halite_lab::build::{Programs, source_root};
use halite_lab::progress::Board;
use halite_lab::{build_command, prerequisites};
use halite_upstream::cargo_tool;

use crate::content::Content;
use crate::signature::Signer;
use crate::source::Commit;

pub use signature::VERIFY;

/// The version of the release.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The programs of a release.
pub const PROGRAMS: [&str; 4] = ["ctl", "halite-builder", "halite-master", "halite-minion"];

/// The options of `cargo lab release`.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The directory to make; by default `target/halite-VERSION`.
    pub out: Option<PathBuf>,
    /// The OpenSSH key that signs; by default the lab's own.
    pub key: Option<PathBuf>,
}

/// Makes a release and returns its directory. An earlier release in that directory is replaced.
///
/// # Errors
/// The changelog has no entry, a key is given and the tree has uncommitted changes, a program or
/// the book cannot be built, or the book has dead links.
pub fn make(options: &Options, board: &Board) -> Result<PathBuf> {
    let root = source_root();
    let out = match &options.out {
        Some(out) => std::path::absolute(out)?,
        None => root.join(format!("target/halite-{VERSION}")),
    };
    // Everything that can be refused is refused before the long builds.
    replaceable(&out)?;
    let changelog = root.join("CHANGELOG.md");
    let changes = fs::read_to_string(&changelog)
        .with_context(|| format!("cannot read {}", changelog.display()))?;
    let changes = changelog::entry(&changes, VERSION)?;
    let commit = Commit::of(&root)?;
    if options.key.is_some() {
        commit.must_be_clean()?;
    }
    let mut line = board.line("prerequisites");
    prerequisites::ensure(&mut |text| line.say(text))?;
    drop(line);
    let cache = halite_lab::cache();
    let signer = Signer::open(options.key.as_deref(), &cache)?;
    let programs = Programs::Shipped.build(board)?;
    board.say("book", "mdBook (a few minutes the first time)");
    let mdbook = cargo_tool::ensure(&cache, &cargo_tool::MDBOOK)?;
    let parent = out.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let work = tempfile::Builder::new()
        .prefix(".halite-release-")
        .tempdir_in(parent)?;
    let inputs = halite_upstream::sbom_inputs(&cache, &programs, &PROGRAMS)?;
    let sources = Sources {
        root: &root,
        programs: &programs,
        mdbook: &mdbook,
        inputs,
        changes,
        commit,
    };
    let made = sources.write(work.path(), &signer, board)?;
    if out.exists() {
        fs::remove_dir_all(&out).with_context(|| format!("cannot remove {}", out.display()))?;
    }
    fs::rename(&made, &out)
        .with_context(|| format!("cannot move {} to {}", made.display(), out.display()))?;
    Ok(out)
}

/// Refuses a directory that holds something else than an earlier release.
fn replaceable(out: &Path) -> Result<()> {
    // Other software's downloads have checksums of the same name.
    let is_release = [signature::CHECKSUMS, signature::SIGNERS]
        .iter()
        .all(|name| out.join(name).is_file());
    if out.exists() && !is_release {
        bail!(
            "cannot make the release in {}: it exists and is not a release; name another directory with --out",
            out.display()
        );
    }
    Ok(())
}

/// Everything from which the files are made.
struct Sources<'a> {
    root: &'a Path,
    /// The directory of the programs.
    programs: &'a Path,
    mdbook: &'a Path,
    /// The file that lists the crates of the programs.
    inputs: PathBuf,
    /// The entry of the changelog.
    changes: String,
    commit: Commit,
}

impl Sources<'_> {
    /// Writes and signs the files in a directory below `work`, and returns it.
    fn write(&self, work: &Path, signer: &Signer, board: &Board) -> Result<PathBuf> {
        let (parts, made) = (work.join("parts"), work.join("release"));
        for dir in [&parts, &made] {
            fs::create_dir(dir).with_context(|| format!("cannot make {}", dir.display()))?;
        }
        let (docs, pages) = (parts.join("docs"), parts.join("pages"));
        book::render(self.mdbook, self.root, &docs)?;
        let mut line = board.line("release");
        let ctl = self.programs.join("ctl");
        build_command::run(
            Command::new(ctl).arg("generate").arg(&pages),
            "writing the manual pages",
            &mut |text| line.say(text),
        )?;
        line.say("archives and packages");
        let content = Content {
            programs: self.programs.to_owned(),
            pages,
            states: self.root.join("states/tree"),
            docs,
            inputs: self.inputs.clone(),
            texts: ["LICENSE", "CHANGELOG.md"]
                .map(|name| self.root.join(name))
                .into(),
        };
        content.archives(VERSION, self.commit.seconds(), &made)?;
        packages::write(&content, VERSION, &made)?;
        let digests = digests(self.programs)?;
        let date = self.commit.date();
        let sbom = halite_builder::release_sbom(VERSION, date, &self.inputs, &digests)?;
        let put = |name: String, text: &[u8]| files::write(&made.join(name), 0o644, text);
        put(format!("halite-{VERSION}.spdx.json"), &sbom)?;
        put(format!("CHANGELOG-{VERSION}.md"), self.changes.as_bytes())?;
        signer.sign(&made)?;
        Ok(made)
    }
}

/// The SHA-256 of each program.
fn digests(programs: &Path) -> Result<BTreeMap<String, String>> {
    PROGRAMS
        .iter()
        .map(|name| Ok(((*name).to_owned(), files::digest(&programs.join(name))?.0)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A release of programs that need not be the shipped ones, twice. `HALITE_PROGRAMS` is their
    /// directory, and `HALITE_MDBOOK` names mdBook. The first one stays in `HALITE_OUT`, if set.
    #[test]
    #[ignore = "cargo lab release does it; this is for changes of it"]
    fn the_same_programs_make_the_same_release() {
        let path = |name: &str| PathBuf::from(std::env::var_os(name).unwrap());
        let (programs, mdbook) = (path("HALITE_PROGRAMS"), path("HALITE_MDBOOK"));
        let (dir, root) = (tempfile::tempdir().unwrap(), source_root());
        let signer = Signer::open(None, dir.path()).unwrap();
        let mut made = Vec::new();
        for round in ["one", "two"] {
            let sources = Sources {
                root: &root,
                programs: &programs,
                mdbook: &mdbook,
                inputs: halite_upstream::sbom_inputs(dir.path(), &programs, &PROGRAMS).unwrap(),
                changes: "Changes\n".to_owned(),
                commit: Commit::of(&root).unwrap(),
            };
            let work = dir.path().join(round);
            fs::create_dir(&work).unwrap();
            made.push(sources.write(&work, &signer, &Board::silent()).unwrap());
        }
        let names = files::walk(&made[0]).unwrap();
        assert_eq!(names.len(), 9, "{names:?}");
        for name in names {
            let digest = |release: &PathBuf| files::digest(&release.join(&name)).unwrap();
            assert_eq!(digest(&made[0]), digest(&made[1]), "{name}");
        }
        if let Some(out) = std::env::var_os("HALITE_OUT") {
            fs::rename(&made[0], out).unwrap();
        }
    }

    #[test]
    fn only_an_earlier_release_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        replaceable(&dir.path().join("new")).unwrap();
        let refused = || {
            let error = replaceable(dir.path()).unwrap_err().to_string();
            assert!(
                error.contains("name another directory with --out"),
                "{error}"
            );
        };
        refused();
        fs::write(dir.path().join(signature::CHECKSUMS), "").unwrap();
        refused();
        fs::write(dir.path().join(signature::SIGNERS), "").unwrap();
        replaceable(dir.path()).unwrap();
    }
}
