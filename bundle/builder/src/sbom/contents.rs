//! The contents of an archive of files: a layer of an image, or a package. The search finds the
//! records of package managers, statements of packages about their licences, and programs that
//! contain the list of their modules.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::io::{BufRead, BufReader, Read};

use halite_durable::digest;
use halite_fetch::unpack;
use halite_fetch::unpack::Compression;
use serde::{Deserialize, Serialize};

use super::golang;
use super::golang::Go;

/// The folder of the licences of Debian's packages: `DOC/NAME/copyright`.
const DOC: &str = "usr/share/doc/";

/// The maximum size of a record or copyright file.
const TEXT: u64 = 64 << 20;

/// The maximum size of a program.
const PROGRAM: u64 = 4 << 30;

/// The contents of an archive, or of several layers on top of each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Programs that need no other file, by their path: Go programs, and static programs of unknown
    /// origin.
    pub programs: BTreeMap<String, Program>,
    /// Packages by the path of the record that names them.
    pub records: BTreeMap<String, Vec<Installed>>,
    /// The copyright files of Debian's packages, by the name of the package.
    pub copyrights: BTreeMap<String, String>,
    /// Packages that refer to another package for their copyright file.
    pub same: BTreeMap<String, String>,
    /// The removals by an upper layer from lower ones: paths, and folders with a final `/` whose
    /// content is removed.
    pub removed: BTreeSet<String>,
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// SHA-256 of its file.
    pub sha256: String,
    /// Its build information, if it is a Go program.
    pub go: Option<Go>,
}

/// A package that a record lists as installed.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Installed {
    /// `deb` or `apk`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Its architecture.
    pub architecture: String,
    /// Its licence, if the record states it.
    pub licence: String,
}

impl Contents {
    /// Reads a tar archive, which may be compressed.
    pub fn read(archive: impl Read) -> io::Result<Self> {
        let mut found = Self::default();
        let mut archive = tar::Archive::new(unpacked(BufReader::with_capacity(1 << 16, archive))?);
        for entry in archive.entries()? {
            let mut entry = entry?;
            let path = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let path = path
                .trim_start_matches("./")
                .trim_start_matches('/')
                .to_owned();
            let kind = entry.header().entry_type();
            if let Some((dir, name)) = removed(&path) {
                found.removed.insert(format!("{dir}{name}"));
            } else if kind.is_symlink() {
                let target = entry.link_name_bytes().unwrap_or_default();
                found.link(&path, &String::from_utf8_lossy(&target));
            } else if kind.is_file() {
                let executable = entry.header().mode().unwrap_or(0) & 0o111 != 0;
                found.file(&path, executable, &mut entry)?;
            }
        }
        // Reading to the end also verifies the checksum at the end of the compressed data.
        io::copy(&mut archive.into_inner(), &mut io::sink())?;
        Ok(found)
    }

    fn file(&mut self, path: &str, executable: bool, content: &mut impl Read) -> io::Result<()> {
        let text = |content: &mut dyn Read| -> io::Result<String> {
            let mut bytes = Vec::new();
            content.take(TEXT).read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        if let Some(package) = path
            .strip_prefix(DOC)
            .and_then(|rest| rest.strip_suffix("/copyright"))
        {
            self.copyrights.insert(package.to_owned(), text(content)?);
        } else if path == "var/lib/dpkg/status" || path.starts_with("var/lib/dpkg/status.d/") {
            self.records
                .insert(path.to_owned(), debian(&text(content)?));
        } else if path == "lib/apk/db/installed" || path == "usr/lib/apk/db/installed" {
            self.records
                .insert(path.to_owned(), alpine(&text(content)?));
        } else if executable {
            self.program(path, content)?;
        }
        Ok(())
    }

    fn program(&mut self, path: &str, content: &mut impl Read) -> io::Result<()> {
        let mut bytes = Vec::new();
        content.take(4).read_to_end(&mut bytes)?;
        if bytes != *b"\x7fELF" {
            return Ok(());
        }
        content.take(PROGRAM).read_to_end(&mut bytes)?;
        let go = golang::read(&bytes);
        let alone =
            golang::is_static(&bytes) && !path.rsplit('/').next().unwrap_or(path).contains(".so");
        if go.is_some() || alone {
            self.programs.insert(
                path.to_owned(),
                Program {
                    sha256: digest::sha256(&bytes),
                    go,
                },
            );
        }
        Ok(())
    }

    /// Records a link: of two packages that share their documentation, one has a link in place of
    /// `DOC/NAME` or `DOC/NAME/copyright`.
    fn link(&mut self, path: &str, target: &str) {
        let Some(name) = path.strip_prefix(DOC) else {
            return;
        };
        let name = name.strip_suffix("/copyright").unwrap_or(name);
        let target = target.strip_suffix("/copyright").unwrap_or(target);
        let other = target.rsplit('/').next().unwrap_or_default();
        if !name.contains('/') && !other.is_empty() && other != ".." {
            self.same.insert(name.to_owned(), other.to_owned());
        }
    }

    /// Adds the contents of an upper layer on top.
    pub fn cover(&mut self, upper: Self) {
        let kept = |path: &String| {
            !upper
                .removed
                .iter()
                .any(|gone| match gone.strip_suffix('/') {
                    Some(_) => path.starts_with(gone.as_str()),
                    None => path == gone || path.starts_with(&format!("{gone}/")),
                })
        };
        self.programs.retain(|path, _| kept(path));
        self.records.retain(|path, _| kept(path));
        self.programs.extend(upper.programs);
        self.records.extend(upper.records);
        self.copyrights.extend(upper.copyrights);
        self.same.extend(upper.same);
    }

    /// The copyright file that applies to a package.
    #[must_use]
    pub fn copyright(&self, package: &str) -> Option<&str> {
        let named = |name: &str| self.copyrights.get(name).map(String::as_str);
        named(package).or_else(|| named(self.same.get(package)?))
    }

    /// The packages of all records.
    pub fn installed(&self) -> impl Iterator<Item = &Installed> {
        self.records.values().flatten()
    }
}

/// The path removed by a whiteout of the OCI image specification: directory and name, or the
/// directory's whole content.
fn removed(path: &str) -> Option<(&str, &str)> {
    let (dir, name) = path
        .rfind('/')
        .map_or(("", path), |at| path.split_at(at + 1));
    match name.strip_prefix(".wh.")? {
        ".wh..opq" => Some((dir, "")),
        name => Some((dir, name)),
    }
}

/// Decompresses a stream; its first bytes reveal the compression.
fn unpacked<'a>(mut stream: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let compression = Compression::begins(stream.fill_buf()?);
    Ok(unpack::decoded(stream, compression))
}

/// Parses a record of dpkg; the single records of images without dpkg contain no status.
fn debian(text: &str) -> Vec<Installed> {
    let stanzas = text
        .split("\n\n")
        .filter(|stanza| !stanza.trim().is_empty());
    let controls = stanzas.map(halite_fetch::apt_index::Control::parse);
    let there = controls.filter(|control| {
        let status = control.field("Status");
        !control.field("Package").is_empty()
            && (status.is_empty() || status.ends_with(" installed"))
    });
    there
        .map(|control| Installed {
            kind: "deb".to_owned(),
            name: control.field("Package").to_owned(),
            version: control.field("Version").to_owned(),
            architecture: control.field("Architecture").to_owned(),
            licence: String::new(),
        })
        .collect()
}

/// Parses a record of apk, Alpine's package manager.
fn alpine(text: &str) -> Vec<Installed> {
    let stanzas = text
        .split("\n\n")
        .filter(|stanza| !stanza.trim().is_empty());
    stanzas
        .map(|stanza| {
            let field = |key: &str| {
                stanza
                    .lines()
                    .find_map(|line| line.strip_prefix(key))
                    .unwrap_or_default()
                    .trim()
                    .to_owned()
            };
            Installed {
                kind: "apk".to_owned(),
                name: field("P:"),
                version: field("V:"),
                architecture: field("A:"),
                licence: field("L:"),
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn archive(files: &[(&str, &[u8])], links: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o755);
            builder.append_data(&mut header, path, *content).unwrap();
        }
        for (path, target) in links {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Symlink);
            header.set_size(0);
            builder.append_link(&mut header, path, target).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn records_and_copyrights_are_found_in_any_compression() {
        let status = "Package: a\nStatus: install ok installed\nVersion: 1:2\nArchitecture: amd64\n\nPackage: b\n\
                      Status: deinstall ok config-files\nVersion: 3\n";
        let bytes = archive(
            &[
                ("var/lib/dpkg/status", status.as_bytes()),
                (
                    "lib/apk/db/installed",
                    b"C:Q1\nP:musl\nV:1.2.5-r0\nA:x86_64\nL:MIT\n\n",
                ),
                ("usr/share/doc/a/copyright", b"who"),
            ],
            &[
                ("usr/share/doc/c", "a"),
                ("usr/share/doc/d/copyright", "../a/copyright"),
            ],
        );
        let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packed.write_all(&bytes).unwrap();
        let packed = packed.finish().unwrap();
        let plain = Contents::read(bytes.as_slice()).unwrap();
        assert_eq!(Contents::read(packed.as_slice()).unwrap(), plain);
        let names: Vec<_> = plain
            .installed()
            .map(|found| (found.name.as_str(), found.licence.as_str()))
            .collect();
        assert_eq!(names, [("musl", "MIT"), ("a", "")]);
        for package in ["a", "c", "d"] {
            assert_eq!(plain.copyright(package), Some("who"), "{package}");
        }
        assert!(
            Contents::read(&packed[..packed.len() - 9]).is_err(),
            "cut off"
        );
        // A layer of several frames, with a skippable frame between them that contains metadata.
        let (first, second) = bytes.split_at(700);
        let frame = |part| halite_testkit::packed("zstd", &[part]);
        let skipped: &[u8] = &[0x50, 0x2a, 0x4d, 0x18, 2, 0, 0, 0, 1, 2];
        let framed = [&frame(first), skipped, &frame(second)].concat();
        assert_eq!(Contents::read(framed.as_slice()).unwrap(), plain);
    }

    #[test]
    fn upper_layers_take_away_and_replace() {
        let program = Program {
            sha256: "x".into(),
            go: None,
        };
        let holding = |paths: &[&str]| Contents {
            programs: paths
                .iter()
                .map(|path| ((*path).to_owned(), program.clone()))
                .collect(),
            ..Contents::default()
        };
        let mut lower = holding(&["bin/a", "bin/b", "opt/x/c", "opt/y/d", "optional"]);
        let upper = archive(
            &[
                ("bin/.wh.a", b""),
                ("opt/x/.wh..wh..opq", b""),
                (".wh.optional", b""),
            ],
            &[],
        );
        lower.cover(Contents::read(upper.as_slice()).unwrap());
        assert_eq!(
            lower.programs.keys().collect::<Vec<_>>(),
            ["bin/b", "opt/y/d"]
        );
    }
}
