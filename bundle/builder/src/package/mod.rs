//! A package that the build makes, in any format: its description, its files, and its scripts for
//! installation and removal. [`made`] defines the packages of a recipe; [`deb`] writes one for
//! dpkg, [`mod@rpm`] one for rpm.

pub mod deb;
pub(crate) mod definition;
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
    /// Its name, valid for dpkg and for rpm.
    pub name: String,
    /// The version of the packaged software: `1.36.3`.
    pub version: String,
    /// The number of the packaging of that version: `1`.
    pub revision: String,
    /// One line, without a full stop.
    pub summary: String,
    /// The description: paragraphs without line ends, possibly none.
    pub description: Vec<String>,
    /// The homepage of the software.
    pub homepage: String,
    /// The holder of the copyright.
    pub holder: String,
    /// Its licence, an SPDX expression.
    pub licence: String,
    /// The text of that licence.
    pub licence_text: String,
    /// Packages that it requires.
    pub needs: Relations,
    /// Packages that improve it.
    pub recommends: Relations,
    /// Its files by their path, without a leading `/`. Directories above them are made with mode
    /// 0755.
    pub files: BTreeMap<String, File>,
    /// Directories that it contains even if they are empty, and their modes.
    pub directories: BTreeMap<String, u32>,
    /// Scripts for installation and removal.
    pub scripts: Scripts,
}

/// A file of a package, owned by root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// The source of its content.
    pub source: FileSource,
    /// Its permissions.
    pub mode: u32,
    /// Its kind.
    pub kind: PackagedFileKind,
}

/// The source of the content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FileSource {
    /// A file of this machine.
    File(PathBuf),
    /// Bytes in memory.
    Bytes(Vec<u8>),
}

/// The kind of a file in a package.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PackagedFileKind {
    /// An upgrade replaces it.
    Plain,
    /// An operator may change it; an upgrade retains the changes.
    Config,
    /// Documentation: nothing needs it at run time.
    Documentation,
}

/// Shell commands, run as root by `/bin/sh` with `set -e`. They start no service: states, or an
/// operator, decide that.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Scripts {
    /// After an installation or upgrade.
    pub installed: String,
    /// Before a removal, but not before an upgrade.
    pub removing: String,
    /// After a removal or upgrade.
    pub removed: String,
}

/// Relations to packages, whose names differ between distributions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Relations {
    /// For dpkg.
    pub deb: Vec<Relation>,
    /// For rpm.
    pub rpm: Vec<Relation>,
}

/// A relation to another package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// Its name.
    pub name: String,
    /// The minimum version.
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
    /// One cannot be read.
    pub fn size(&self) -> Result<u64, Error> {
        self.files.values().map(File::size).sum()
    }

    /// A text that changes with every change of the package.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn fingerprint(&self) -> Result<String, Error> {
        let mut files = Vec::new();
        for (path, file) in &self.files {
            let content = match &file.source {
                FileSource::File(from) => files::digest(from)?.0,
                FileSource::Bytes(bytes) => digest::sha256(bytes),
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
    /// Makes a file with the content of a file of this machine.
    #[must_use]
    pub fn from(path: PathBuf, mode: u32) -> Self {
        Self {
            source: FileSource::File(path),
            mode,
            kind: PackagedFileKind::Plain,
        }
    }

    /// Makes a file with the given content, readable by all.
    #[must_use]
    pub fn with(content: impl Into<Vec<u8>>) -> Self {
        Self {
            source: FileSource::Bytes(content.into()),
            mode: 0o644,
            kind: PackagedFileKind::Plain,
        }
    }

    /// Returns the same file with another kind.
    #[must_use]
    pub fn kind(self, kind: PackagedFileKind) -> Self {
        Self { kind, ..self }
    }

    /// Reads its content.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(&self) -> Result<Vec<u8>, Error> {
        match &self.source {
            FileSource::File(path) => fs::read(path).map_err(Error::file("read", path)),
            FileSource::Bytes(bytes) => Ok(bytes.clone()),
        }
    }

    fn size(&self) -> Result<u64, Error> {
        match &self.source {
            FileSource::File(path) => fs::metadata(path)
                .map(|status| status.len())
                .map_err(Error::file("read", path)),
            FileSource::Bytes(bytes) => Ok(bytes.len() as u64),
        }
    }
}

impl Scripts {
    /// Scripts for packages with systemd units: systemd reloads when units are added, changed or
    /// removed. The units in `stopped` must not run without their program, and are stopped before
    /// the package is removed.
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
    /// Parses lists in Debian's form: `kubernetes-cni (>= 1.2.0), util-linux`.
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
