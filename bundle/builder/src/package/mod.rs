//! A package that the build makes, whatever its format: what it is, what is in it, and what happens
//! when it comes and goes. [`made`] says what the packages of a recipe hold; [`deb`] writes one for
//! dpkg, [`mod@rpm`] one for rpm.

pub mod deb;
mod definition;
pub mod made;
pub mod rpm;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use halite_durable::{digest, files};

use crate::error::Error;

pub use made::Made;

/// A package for amd64.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name; one that dpkg and rpm both take.
    pub name: String,
    /// The version of what it holds: `1.36.3`.
    pub version: String,
    /// Counts the packagings of that version: `1`.
    pub revision: String,
    /// One line, without a full stop.
    pub summary: String,
    /// More about it: paragraphs without line ends, perhaps none.
    pub description: Vec<String>,
    /// Where it comes from.
    pub homepage: String,
    /// Who has the rights in it.
    pub holder: String,
    /// Its licence, an SPDX expression.
    pub licence: String,
    /// The text of that licence.
    pub licence_text: String,
    /// Packages without which it does not work.
    pub needs: Relations,
    /// Packages with which it works better.
    pub recommends: Relations,
    /// Its files by their path, which has no `/` at its beginning. Directories above them are made
    /// with mode 0755.
    pub files: BTreeMap<String, File>,
    /// Directories that are there although they may be empty, and their modes.
    pub directories: BTreeMap<String, u32>,
    /// What happens when it comes and goes.
    pub scripts: Scripts,
}

/// A file of a package; root's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Where its content comes from.
    pub source: Source,
    /// Its permissions; of no meaning for a link.
    pub mode: u32,
    /// What it is.
    pub kind: Kind,
}

/// Where the content of a file comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// From a file of this machine.
    File(PathBuf),
    /// It is here.
    Bytes(Vec<u8>),
    /// It is a symbolic link to this.
    Link(String),
}

/// What a file of a package is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Replaced by an upgrade.
    Plain,
    /// An operator may change it, and an upgrade keeps that.
    Config,
    /// Nothing needs it at run time.
    Documentation,
}

/// Shell commands, run as root by `/bin/sh` with `set -e`. They start nothing: states, or an
/// operator, decide that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scripts {
    /// After it was installed or upgraded.
    pub installed: String,
    /// Before it is removed; not before an upgrade.
    pub removing: String,
    /// After it was removed or upgraded.
    pub removed: String,
}

/// The same packages have other names in other distributions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Relations {
    /// For dpkg.
    pub deb: Vec<Relation>,
    /// For rpm.
    pub rpm: Vec<Relation>,
}

/// Another package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// Its name.
    pub name: String,
    /// The earliest version that will do.
    pub at_least: Option<String>,
}

impl Package {
    /// The version with the revision of the packaging: `1.36.3-1`.
    #[must_use]
    pub fn full_version(&self) -> String {
        format!("{}-{}", self.version, self.revision)
    }

    /// The size of all its files in bytes.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn size(&self) -> Result<u64, Error> {
        self.files.values().map(File::size).sum()
    }

    /// A text that is another one whenever anything about the package is.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn fingerprint(&self) -> Result<String, Error> {
        let mut files = Vec::new();
        for (path, file) in &self.files {
            let content = match &file.source {
                Source::File(from) => files::digest(from)?.0,
                Source::Bytes(bytes) => digest::sha256(bytes),
                Source::Link(target) => format!("-> {target}"),
            };
            files.push(format!("{path} {:o} {:?} {content}", file.mode, file.kind));
        }
        let rest = Self {
            files: BTreeMap::new(),
            ..self.clone()
        };
        Ok(format!("{rest:?}\n{}", files.join("\n")))
    }
}

impl File {
    /// A file whose content is in a file of this machine.
    #[must_use]
    pub fn from(path: PathBuf, mode: u32) -> Self {
        Self {
            source: Source::File(path),
            mode,
            kind: Kind::Plain,
        }
    }

    /// A file with a content, readable by all.
    #[must_use]
    pub fn with(content: impl Into<Vec<u8>>) -> Self {
        Self {
            source: Source::Bytes(content.into()),
            mode: 0o644,
            kind: Kind::Plain,
        }
    }

    /// The same file as another kind.
    #[must_use]
    pub fn kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// Its content; of a link, where it leads.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        match &self.source {
            Source::File(path) => fs::read(path).map_err(Error::file("read", path)),
            Source::Bytes(bytes) => Ok(bytes.clone()),
            Source::Link(target) => Ok(target.clone().into_bytes()),
        }
    }

    fn size(&self) -> Result<u64, Error> {
        match &self.source {
            Source::File(path) => fs::metadata(path)
                .map(|status| status.len())
                .map_err(Error::file("read", path)),
            Source::Bytes(bytes) => Ok(bytes.len() as u64),
            Source::Link(_) => Ok(0),
        }
    }
}

impl Scripts {
    /// For packages that bring units of systemd: it reads them when they appear, change or go, and
    /// `stopped`, those of them that must not run on without their program, are ended with the
    /// package.
    #[must_use]
    pub fn for_units(stopped: &[&str]) -> Self {
        let live = |command: &str| format!("if [ -d /run/systemd/system ]; then {command}; fi\n");
        let reload = live("systemctl daemon-reload");
        let removing = match stopped {
            [] => String::new(),
            units => live(&format!(
                "systemctl --quiet disable --now {}",
                units.join(" ")
            )),
        };
        Self {
            installed: reload.clone(),
            removing,
            removed: reload,
        }
    }
}

impl Relations {
    /// From lists as Debian writes them: `kubernetes-cni (>= 1.2.0), util-linux`.
    #[must_use]
    pub fn parse(deb: &str, rpm: &str) -> Self {
        let list = |text: &str| {
            let each = text
                .split(',')
                .map(str::trim)
                .filter(|relation| !relation.is_empty());
            each.map(|relation| match relation.split_once(" (>= ") {
                Some((name, rest)) => {
                    let version = rest.trim_end_matches(')').to_owned();
                    Relation {
                        name: name.to_owned(),
                        at_least: Some(version),
                    }
                }
                None => Relation {
                    name: relation.to_owned(),
                    at_least: None,
                },
            })
            .collect()
        };
        Self {
            deb: list(deb),
            rpm: list(rpm),
        }
    }
}
