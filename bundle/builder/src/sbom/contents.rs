//! What is inside an archive of files: a layer of an image, or a package. Looked for are the
//! records of package managers, what packages say about their licences, and programs that say what
//! they were built from.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::io::{BufRead, BufReader, Read};

use halite_durable::digest;
use halite_fetch::unpack;
use halite_fetch::unpack::Compression;
use serde::{Deserialize, Serialize};

use super::golang;
use super::golang::Go;

/// Where Debian's packages say what their licences are: `DOC/NAME/copyright`.
const DOC: &str = "usr/share/doc/";

/// A record or copyright file is not larger.
const TEXT: u64 = 64 << 20;

/// A program is not larger.
const PROGRAM: u64 = 4 << 30;

/// What an archive holds, or several that lie over each other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contents {
    /// Programs that need nothing else, by their path: Go's, and static ones of which nothing more
    /// is known.
    pub programs: BTreeMap<String, Program>,
    /// Packages by the path of the record that names them.
    pub records: BTreeMap<String, Vec<Installed>>,
    /// What Debian's packages say about their licences, by the name of the package.
    pub copyrights: BTreeMap<String, String>,
    /// Packages that refer to another package for that.
    pub same: BTreeMap<String, String>,
    /// What an upper layer takes out of lower ones: paths, and folders with a `/` at their end
    /// whose content goes.
    pub removed: BTreeSet<String>,
}

/// A program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// SHA-256 of its file.
    pub sha256: String,
    /// What it says of itself, if it is Go's.
    pub go: Option<Go>,
}

/// A package that a record says is installed.
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
    /// Its licence, where the record says so.
    pub licence: String,
}

impl Contents {
    /// Reads an archive of `tar`, which may be compressed.
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
        // Reading to the end also checks what the compression says at its end.
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

    /// Of two packages that share their documentation, one has a link: `DOC/NAME`, or
    /// `DOC/NAME/copyright`.
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

    /// Lays what is in an upper layer over this.
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

    /// What a package says about its licence.
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

/// What a whiteout of the OCI image specification takes away: directory and name, or the
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

/// The same stream without its compression, which its first bytes tell.
fn unpacked<'a>(mut stream: impl BufRead + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let compression = Compression::begins(stream.fill_buf()?);
    Ok(unpack::decoded(stream, compression))
}

/// The packages of a record of dpkg; the single records of images without dpkg name no status.
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

/// The packages of a record of apk, Alpine's package manager.
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
        // A layer of several frames, with one between them that says something about it.
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
