//! The packages that a recipe makes: the recipe's entry, and the package made from it.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use flate2::{Compression, GzBuilder};
use halite_durable::files;

use super::definition::{UNITS, definition};
use super::{File, Package, PackagedFileKind, definition};
use crate::error::Error;

/// The licence of all software in the packages that the build makes.
const LICENCE: (&str, &str) = ("Apache-2.0", include_str!("../../../../LICENSE"));

/// A package to make.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// Its name: one of [`definition::NAMES`].
    pub package: String,
    /// Its version with the packaging revision: `1.36.3-1`.
    pub version: String,
    /// Its programs, by name.
    pub programs: BTreeMap<String, PathBuf>,
    /// Other content: a file by its path in the package, or a folder whose files go below that
    /// path.
    pub files: BTreeMap<String, PathBuf>,
}

impl Made {
    /// The version without the packaging revision.
    #[must_use]
    pub fn upstream_version(&self) -> &str {
        self.version
            .rsplit_once('-')
            .map_or(&self.version, |(upstream, _)| upstream)
    }

    /// Makes the package; `states` is the state tree, which contains the units of our own programs.
    ///
    /// # Errors
    /// It cannot be made, or a file cannot be read.
    pub fn package(&self, states: &Path) -> Result<Package, Error> {
        let Some(definition) = definition(&self.package) else {
            let message = format!(
                "the package {:?} cannot be made; {} can",
                self.package,
                definition::NAMES.join(", ")
            );
            return Err(Error::recipe([message]));
        };
        let mut held = BTreeMap::new();
        for (name, from) in &self.programs {
            held.insert(
                format!("{}/{name}", definition.programs_in),
                File::from(from.clone(), 0o755),
            );
        }
        for (path, content) in definition.files {
            let config = definition.conffiles.contains(path);
            let kind = if config {
                PackagedFileKind::Config
            } else {
                PackagedFileKind::Plain
            };
            held.insert((*path).to_owned(), File::with(*content).kind(kind));
        }
        for unit in definition.units {
            let from = states.join(unit);
            let text = fs::read_to_string(&from).map_err(Error::file("read", &from))?;
            let name = unit.rsplit('/').next().unwrap_or(unit);
            held.insert(format!("{UNITS}/{name}"), File::with(packaged(&text)));
        }
        for (path, from) in &self.files {
            for (path, file) in given(path, from)? {
                held.insert(path, file);
            }
        }
        let directories = definition
            .directories
            .iter()
            .map(|(path, mode)| ((*path).to_owned(), *mode));
        let description = Some(definition.description).filter(|text| !text.is_empty());
        Ok(Package {
            name: self.package.clone(),
            version: self.upstream_version().to_owned(),
            revision: self
                .version
                .rsplit_once('-')
                .map_or("1", |(_, revision)| revision)
                .to_owned(),
            summary: definition.summary.to_owned(),
            description: description.into_iter().map(str::to_owned).collect(),
            homepage: definition.homepage.to_owned(),
            holder: definition.holder.to_owned(),
            licence: LICENCE.0.to_owned(),
            licence_text: LICENCE.1.to_owned(),
            needs: definition.needs,
            recommends: definition.recommends,
            files: held,
            directories: directories.collect(),
            scripts: definition.scripts,
        })
    }
}

/// Converts a unit of the state tree for a package, whose programs are below `/usr/bin` instead of
/// `/usr/local/bin`.
fn packaged(unit: &str) -> String {
    unit.replace("/usr/local/bin/", "/usr/bin/")
}

/// Returns a file, or every file of a folder, by their paths in the package.
fn given(path: &str, from: &Path) -> Result<Vec<(String, File)>, Error> {
    let sources = if from.is_dir() {
        let below = files::walk(from)?;
        below
            .into_iter()
            .map(|name| (format!("{path}/{name}"), from.join(name)))
            .collect()
    } else {
        vec![(path.to_owned(), from.to_owned())]
    };
    sources
        .into_iter()
        .map(|(path, from)| one(path, from))
        .collect()
}

fn one(path: String, from: PathBuf) -> Result<(String, File), Error> {
    let status = fs::metadata(&from).map_err(Error::file("read", &from))?;
    let mode = if status.permissions().mode() & 0o100 == 0 {
        0o644
    } else {
        0o755
    };
    // Every distribution compresses its manual pages.
    if path.starts_with("usr/share/man/") && !path.ends_with(".gz") {
        let page = fs::read(&from).map_err(Error::file("read", &from))?;
        let packed = gzip(&page).map_err(Error::file("compress", &from))?;
        return Ok((
            format!("{path}.gz"),
            File::with(packed).kind(PackagedFileKind::Documentation),
        ));
    }
    let documentation = path.starts_with("usr/share/man/") || path.starts_with("usr/share/doc/");
    let kind = if documentation {
        PackagedFileKind::Documentation
    } else {
        PackagedFileKind::Plain
    };
    Ok((path, File::from(from, mode).kind(kind)))
}

/// Compresses without a time or a name, so that the same content gives the same bytes.
fn gzip(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// The programs that the package must have but the recipe does not name.
pub(crate) fn lacking_programs(made: &Made) -> Vec<&'static str> {
    let needed = definition(&made.package).map_or(&[][..], |definition| definition.programs);
    needed
        .iter()
        .filter(|name| !made.programs.contains_key(**name))
        .copied()
        .collect()
}

/// Returns `true` for a version with a packaging revision, like `1.36.3-1`.
pub(crate) fn is_version(text: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || ".+~-".contains(c);
    text.starts_with(|c: char| c.is_ascii_digit()) && text.contains('-') && text.chars().all(inner)
}

/// Returns `true` if Debian's rule for names (policy 5.6.1) allows a name, or if it is a single
/// letter. The names of our programs follow the same rule.
pub(crate) fn is_package_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "+.-".contains(c);
    name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name.chars().all(inner)
}

/// Returns `true` for a relative path without characters that could be misread in a control file or
/// a list of files.
pub(crate) fn is_path(path: &str) -> bool {
    let part = |part: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._+-@".contains(c);
        !part.is_empty() && part != "." && part != ".." && part.chars().all(plain)
    };
    path.split('/').all(part)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::package::FileSource;

    fn made(package: &str, programs: &[&str]) -> Made {
        Made {
            package: package.into(),
            version: "1.2.3-4".into(),
            programs: programs
                .iter()
                .map(|name| ((*name).into(), PathBuf::from("/bin/true")))
                .collect(),
            files: BTreeMap::new(),
        }
    }

    #[test]
    fn units_of_our_own_come_from_the_state_tree() {
        let tree = halite_testkit::state_tree();
        let package = made("halite-minion", &["halite-minion"])
            .package(&tree)
            .unwrap();
        let unit = package.files["usr/lib/systemd/system/halite-minion.service"]
            .read()
            .unwrap();
        let unit = String::from_utf8(unit).unwrap();
        assert!(
            unit.contains("ExecStart=/usr/bin/halite-minion run"),
            "{unit}"
        );
        assert!(!unit.contains("/usr/local/"), "{unit}");
        assert_eq!(package.full_version(), "1.2.3-4");
        assert!(
            package
                .scripts
                .removing
                .contains("disable --now halite-minion.service")
        );
        assert!(
            !package.scripts.installed.contains("start"),
            "{}",
            package.scripts.installed
        );
    }

    #[test]
    fn a_folder_goes_in_with_all_that_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["man/man1/ctl.1", "bash-completion/completions/ctl"] {
            files::write(&dir.path().join(name), 0o600, b"x").unwrap();
        }
        let mut wanted = made("halite-ctl", &["ctl"]);
        wanted.files.insert("usr/share".into(), dir.path().into());
        let package = wanted.package(dir.path()).unwrap();
        let paths: Vec<&str> = package.files.keys().map(String::as_str).collect();
        let completion = "usr/share/bash-completion/completions/ctl";
        assert_eq!(
            paths,
            ["usr/bin/ctl", completion, "usr/share/man/man1/ctl.1.gz"]
        );
        assert!(matches!(
            package.files[completion],
            File {
                mode: 0o644,
                kind: PackagedFileKind::Plain,
                ..
            }
        ));
        let page = &package.files["usr/share/man/man1/ctl.1.gz"];
        assert!(
            matches!(&page.source, FileSource::Bytes(bytes) if bytes.starts_with(&[0x1f, 0x8b]))
        );
    }

    #[test]
    fn texts_of_packages_have_their_form() {
        assert_eq!(
            lacking_programs(&made("kubelet", &["Kubelet"])),
            ["kubelet"]
        );
        assert!(is_version("1.36.3-1") && !is_version("1") && !is_version("v1-1"));
        assert!(is_path("usr/share/doc/x") && !is_path("../x") && !is_path("/etc/x"));
        let error = made("x", &[])
            .package(Path::new("/"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("halite-ctl, halite-master"), "{error}");
    }
}
