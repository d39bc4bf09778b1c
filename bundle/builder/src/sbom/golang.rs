//! The build information in a Go program: the modules from which it was built
//! (`runtime/debug.BuildInfo`).
//!
//! Since Go 1.18 the text is in the ELF section `.go.buildinfo`, after a header of 32 bytes
//! (<https://cs.opensource.google/go/go/+/master:src/debug/buildinfo/buildinfo.go>). In older
//! programs the header points elsewhere; they are only recognised as Go programs.

use serde::{Deserialize, Serialize};

/// The start of the header.
const MAGIC: &[u8] = b"\xff Go buildinf:";

/// The size of the header.
const HEADER: usize = 32;

/// The flag for headers that the two texts follow directly.
const INLINE: u8 = 2;

/// The size of an entry in the section table of 64-bit ELF.
const SECTION: usize = 64;

/// The build information of a Go program.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Go {
    /// The version of Go, without the prefix `go`.
    pub version: String,
    /// The package of the program: `k8s.io/kubernetes/cmd/kubelet`.
    pub package: String,
    /// The main module; its version is `(devel)` if it was built from a folder.
    pub main: Option<Module>,
    /// The modules from which it was built.
    pub modules: Vec<Module>,
}

/// A Go module.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Module {
    /// Its path.
    pub path: String,
    /// Its version with the `v`.
    pub version: String,
    /// Its `h1:` sum; empty if it was not checked.
    pub sum: String,
}

/// Reads the build information of a program; `None` if it is not a Go program in ELF format.
#[must_use]
pub fn read(program: &[u8]) -> Option<Go> {
    let section = section(program, ".go.buildinfo")?;
    let header = section.get(..HEADER)?;
    if !header.starts_with(MAGIC) {
        return None;
    }
    if header[15] & INLINE == 0 {
        return Some(Go::default());
    }
    let (version, rest) = text(&section[HEADER..])?;
    let (info, _) = text(rest)?;
    // The linker adds a marker of 16 bytes before and after the text.
    let info = info
        .get(16..info.len().saturating_sub(16))
        .unwrap_or_default();
    let mut go = parse(&String::from_utf8_lossy(info));
    // A space separates the version from experiments and other notes.
    let version = String::from_utf8_lossy(version);
    let version = version.split(' ').next().unwrap_or_default();
    go.version = version.strip_prefix("go").unwrap_or(version).to_owned();
    Some(go)
}

/// Splits off a text that is preceded by its length as a varint; returns the text and the rest.
fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut length = 0_usize;
    for (index, byte) in bytes.iter().take(9).enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let rest = &bytes[index + 1..];
            return (length <= rest.len()).then(|| rest.split_at(length));
        }
    }
    None
}

fn parse(info: &str) -> Go {
    let mut go = Go::default();
    for line in info.lines() {
        let mut fields = line.split('\t');
        let kind = fields.next().unwrap_or_default();
        let first = fields.next().unwrap_or_default().to_owned();
        let mut next = || fields.next().unwrap_or_default().to_owned();
        match kind {
            "path" => go.package = first,
            "mod" => {
                go.main = Some(Module {
                    path: first,
                    version: next(),
                    sum: next(),
                })
            }
            "dep" => go.modules.push(Module {
                path: first,
                version: next(),
                sum: next(),
            }),
            // A replacement for the preceding module.
            "=>" => {
                if let Some(replaced) = go.modules.last_mut() {
                    *replaced = Module {
                        path: first,
                        version: next(),
                        sum: next(),
                    };
                }
            }
            _ => {}
        }
    }
    go.modules.sort();
    go
}

/// Returns the content of a section of a 64-bit little-endian ELF file.
fn section<'a>(elf: &'a [u8], wanted: &str) -> Option<&'a [u8]> {
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let at = number(elf, 0x28, 8)?;
    let (count, names) = (number(elf, 0x3c, 2)?, number(elf, 0x3e, 2)?);
    let entry = |index: usize| {
        elf.get(at.checked_add(index.checked_mul(SECTION)?)?..)?
            .get(..SECTION)
    };
    let content = |entry: &[u8]| {
        elf.get(number(entry, 0x18, 8)?..)?
            .get(..number(entry, 0x20, 8)?)
    };
    let names = content(entry(names)?)?;
    (0..count).find_map(|index| {
        let entry = entry(index)?;
        let name = names
            .get(number(entry, 0, 4)?..)?
            .split(|byte| *byte == 0)
            .next()?;
        (name == wanted.as_bytes())
            .then(|| content(entry))
            .flatten()
    })
}

/// Returns `true` if an ELF program needs no loader, because it contains all of its libraries.
#[must_use]
pub fn is_static(elf: &[u8]) -> bool {
    /// The type of the program header that names the loader, and the size of a program header.
    const INTERPRETER: usize = 3;
    const HEADER: usize = 56;
    let loads = || {
        if !elf.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let (at, count) = (number(elf, 0x20, 8)?, number(elf, 0x38, 2)?);
        let header = |index: usize| number(elf, at.checked_add(index * HEADER)?, 4);
        Some(
            count > 0
                && !(0..count).any(|index| header(index).is_none_or(|kind| kind == INTERPRETER)),
        )
    };
    loads().unwrap_or(false)
}

fn number(bytes: &[u8], at: usize, size: usize) -> Option<usize> {
    let field = bytes.get(at..)?.get(..size)?;
    let mut value = [0; 8];
    value[..size].copy_from_slice(field);
    usize::try_from(u64::from_le_bytes(value)).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::*;

    /// A module that requires another one and replaces one, built by the real Go from folders
    /// alone.
    fn built(dir: &std::path::Path) -> Vec<u8> {
        let put = |name: &str, text: &str| {
            halite_durable::files::write(&dir.join(name), 0o644, text.as_bytes()).unwrap()
        };
        put(
            "go.mod",
            "module example.org/main\n\ngo 1.21\n\nrequire example.org/a v1.2.3\nreplace example.org/a => ./a\n",
        );
        put(
            "main.go",
            "package main\n\nimport \"example.org/a\"\n\nfunc main() { println(a.A) }\n",
        );
        put("a/go.mod", "module example.org/a\n\ngo 1.21\n");
        put("a/a.go", "package a\n\nconst A = 1\n");
        let out = Command::new("go")
            .current_dir(dir)
            .envs([
                ("GOFLAGS", "-mod=mod -buildvcs=false"),
                ("GOWORK", "off"),
                ("CGO_ENABLED", "0"),
            ])
            .envs([
                ("GOTOOLCHAIN", "local"),
                ("GOOS", "linux"),
                ("GOARCH", "amd64"),
                ("GOPROXY", "off"),
            ])
            .args([
                "build",
                "-trimpath",
                "-ldflags",
                "-s -w",
                "-o",
                "program",
                ".",
            ])
            .output()
            .expect("the lab builds with Go 1.26: install it");
        assert!(
            out.status.success(),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
        fs::read(dir.join("program")).unwrap()
    }

    #[test]
    fn what_go_says_of_a_program_is_what_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let program = built(dir.path());
        let go = read(&program).unwrap();
        assert!(is_static(&program));
        assert_eq!(go.package, "example.org/main");
        assert_eq!(go.main.as_ref().unwrap().path, "example.org/main");
        let said = Command::new("go")
            .args(["version", "-m"])
            .arg(dir.path().join("program"))
            .output()
            .unwrap();
        let said = String::from_utf8(said.stdout).unwrap();
        assert!(
            said.lines()
                .next()
                .unwrap()
                .ends_with(&format!("go{}", go.version)),
            "{said}"
        );
        assert_eq!(go.modules.len(), 1);
        assert_eq!(go.modules[0].path, "./a", "the replacement counts: {said}");
        // A truncated or changed program gives `None`, not a panic.
        for cut in (0..program.len()).step_by(program.len() / 97) {
            let _ = read(&program[..cut]);
        }
        for at in 0..64 {
            let mut changed = program.clone();
            changed[at] ^= 0xff;
            let _ = read(&changed);
        }
    }

    #[test]
    fn a_replaced_module_is_the_one_that_went_in() {
        let go = parse(
            "path\tx/cmd\nmod\tx\tv1\th1:a=\ndep\tb\tv2\th1:b=\ndep\tc\tv3\n=>\td\tv4\th1:d=\nbuild\tk=v\n",
        );
        let module = |path: &str, version: &str, sum: &str| Module {
            path: path.into(),
            version: version.into(),
            sum: sum.into(),
        };
        assert_eq!(go.main, Some(module("x", "v1", "h1:a=")));
        assert_eq!(
            go.modules,
            [module("b", "v2", "h1:b="), module("d", "v4", "h1:d=")]
        );
    }

    #[test]
    fn other_files_are_not_go_programs() {
        assert_eq!(read(b"#!/bin/sh\n"), None);
        let shell = fs::read("/bin/sh").unwrap();
        assert_eq!(read(&shell), None);
        assert!(!is_static(&shell) && !is_static(b"#!/bin/sh\n"));
    }
}
