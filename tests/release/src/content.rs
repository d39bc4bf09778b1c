//! The content of the archives, with the layout in which `ctl bundle init` finds it.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::PROGRAMS;
use crate::archive::Tree;

/// The package with `ctl`.
pub(crate) const CTL: &str = "halite-ctl";

/// The package with the builder.
pub(crate) const BUILDER: &str = "halite-builder";

/// The files of a release, on this machine.
#[derive(Debug)]
pub(crate) struct Content {
    /// The directory of the programs.
    pub(crate) programs: PathBuf,
    /// The manual pages and completions, with one directory for each package.
    pub(crate) pages: PathBuf,
    /// The state tree.
    pub(crate) states: PathBuf,
    /// The book.
    pub(crate) docs: PathBuf,
    /// The file that lists the crates of the programs, for the recipe's `sbom-inputs`.
    pub(crate) inputs: PathBuf,
    /// Files for people.
    pub(crate) texts: Vec<PathBuf>,
}

impl Content {
    /// Writes the archive for the builder's machine, and one of only the book.
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(crate) fn archives(&self, version: &str, seconds: u64, out: &Path) -> Result<()> {
        let mut tree = Tree::default();
        for program in PROGRAMS {
            tree.file(&format!("bin/{program}"), &self.programs.join(program));
        }
        tree.folder("states", &self.states)?;
        tree.folder("docs", &self.docs)?;
        for package in [CTL, BUILDER] {
            tree.folder("share", &self.pages.join(package))?;
        }
        tree.file("sbom-inputs.json", &self.inputs);
        for text in &self.texts {
            let name = text.file_name().and_then(|name| name.to_str());
            tree.file(name.context("a text without a name")?, text);
        }
        tree.write(&format!("halite-{version}-linux-amd64"), seconds, out)?;
        let mut book = Tree::default();
        book.folder("docs", &self.docs)?;
        book.write(&format!("halite-docs-{version}"), seconds, out)
    }
}
