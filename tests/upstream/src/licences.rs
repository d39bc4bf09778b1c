//! The recipe's statements about origins: the texts of the licences of Go's modules and of crates,
//! and the inputs of Halite's own programs.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use halite_lab::build::source_root;
use halite_lab::build_command as command;
use serde_json::{Value, json};

use super::golang::Go;
use super::image::file_digest;
use super::lab_pod;
use super::programs::{Module, ProgramSource};
use super::store;
use super::store::Store;

/// Increased on every change to the gathered texts.
const REVISION: u32 = 1;

/// Names of files with licence terms, in upper case, before a suffix.
const NAMES: &[&str] = &[
    "LICENSE",
    "LICENCE",
    "COPYING",
    "COPYRIGHT",
    "NOTICE",
    "UNLICENSE",
    "PATENTS",
];

/// The target for which Halite's programs are built.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Gathers the texts of everything that goes into the Go programs in `bin`, which are those of the
/// modules `built`, and into Halite's own, and the texts to which Debian's packages refer; returns
/// their folder.
pub fn gather(
    store: &Store,
    go: &Go,
    built: &[Module],
    bin: &Path,
    common: &Path,
    progress: &mut dyn FnMut(&str),
) -> Result<PathBuf> {
    let mut modules = modules(bin)?;
    modules.extend(built.iter().map(|m| format!("{}@{}", m.path, m.version)));
    let lock = fs::read_to_string(source_root().join("Cargo.lock"))?;
    let key = store::key(&(REVISION, &modules, &lock, go.version()))?;
    store.get("licences", &key, |out| {
        progress(&format!(
            "gathering the licences of {} Go modules and of all crates",
            modules.len()
        ));
        let copied: Vec<_> = built
            .iter()
            .filter(|module| matches!(module.source, ProgramSource::Without { .. }))
            .collect();
        for (module, dir) in go.folders(&modules)? {
            texts(&dir, &out.join("go").join(&module))?;
            // A program that is built in a copy of its module does not know the version.
            for own in copied
                .iter()
                .filter(|own| format!("{}@{}", own.path, own.version) == module)
            {
                texts(&dir, &out.join("go").join(format!("{}@(devel)", own.path)))?;
            }
        }
        let own = format!("{}@(devel)", lab_pod::NAME);
        texts(&source_root(), &out.join("go").join(own))?;
        texts(
            &go.root()?,
            &out.join("go")
                .join(format!("stdlib@{}", go.version().trim_start_matches("go"))),
        )?;
        for package in packages()?.values() {
            let manifest = PathBuf::from(text(package, "manifest_path"));
            let outside = package["source"].is_null();
            let dir = if outside {
                source_root()
            } else {
                manifest.parent().unwrap_or(Path::new("/")).to_owned()
            };
            texts(
                &dir,
                &out.join("cargo").join(format!(
                    "{}@{}",
                    text(package, "name"),
                    text(package, "version")
                )),
            )?;
        }
        for entry in
            fs::read_dir(common).with_context(|| format!("cannot list {}", common.display()))?
        {
            let entry = entry?;
            // Links among them (`GPL` is the newest) become files.
            copy(&entry.path(), &out.join("common").join(entry.file_name()))?;
        }
        Ok(())
    })
}

/// Records the inputs of the programs in a folder.
pub fn inputs(store: &Store, programs: &Path, names: &[&str]) -> Result<PathBuf> {
    let mut digests = BTreeMap::new();
    for name in names {
        digests.insert(*name, file_digest(&programs.join(name))?);
    }
    let lock = fs::read_to_string(source_root().join("Cargo.lock"))?;
    let made = store.get(
        "sbom-inputs",
        &store::key(&(REVISION, &digests, &lock))?,
        |out| {
            let (packages, checksums) = (packages()?, checksums(&lock));
            let compiler = command::output(
                Command::new("rustc").arg("--version"),
                "asking rustc for its version",
            )?;
            let compiler = String::from_utf8_lossy(&compiler);
            let compiler: Vec<&str> = compiler.split_whitespace().take(2).collect();
            let (mut described, mut crates) = (serde_json::Map::new(), serde_json::Map::new());
            for (name, sha256) in &digests {
                let parts = parts(name)?;
                let own = packages
                    .iter()
                    .find(|(id, _)| id.split(' ').next() == Some(*name));
                let own = own
                    .map(|(_, package)| package)
                    .with_context(|| format!("there is no package {name}"))?;
                for id in &parts {
                    let package = packages
                        .get(id)
                        .with_context(|| format!("cargo does not describe {id}"))?;
                    let checksum = checksums.get(id).cloned().unwrap_or_default();
                    crates.insert(
                        id.clone(),
                        json!({"licence": text(package, "license"), "sha256": checksum}),
                    );
                }
                described.insert(
                    (*name).to_owned(),
                    json!({"sha256": sha256, "version": text(own, "version"),
                "licence": text(own, "license"), "compiler": compiler.join(" "), "crates": parts}),
                );
            }
            let document = json!({"format": 1, "programs": described, "crates": crates});
            fs::write(
                out.join("sbom-inputs.json"),
                serde_json::to_vec_pretty(&document)?,
            )?;
            Ok(())
        },
    )?;
    Ok(made.join("sbom-inputs.json"))
}

/// The modules of the Go programs in a folder, as `PATH@VERSION`.
fn modules(bin: &Path) -> Result<BTreeSet<String>> {
    let said = command::output(
        Command::new("go").args(["version", "-m"]).arg(bin),
        "asking Go for modules",
    )?;
    let said = String::from_utf8_lossy(&said);
    let mut found: Vec<String> = Vec::new();
    for line in said.lines() {
        let fields: Vec<&str> = line.trim().split('\t').collect();
        match fields.as_slice() {
            ["dep", path, version, ..] => found.push(format!("{path}@{version}")),
            // It replaces the module on the line before.
            ["=>", path, version, ..] if found.pop().is_some() => {
                found.push(format!("{path}@{version}"));
            }
            _ => {}
        }
    }
    Ok(found.into_iter().collect())
}

/// Entries of `cargo metadata` for every package, by name and version.
fn packages() -> Result<BTreeMap<String, Value>> {
    let mut cargo = cargo(&[
        "metadata",
        "--format-version",
        "1",
        "--locked",
        "--filter-platform",
        TARGET,
    ]);
    let said = command::output(&mut cargo, "asking cargo for its packages")?;
    let mut said: Value =
        serde_json::from_slice(&said).context("cargo's answer is not understood")?;
    let packages = said["packages"]
        .as_array_mut()
        .map(std::mem::take)
        .context("cargo names no packages")?;
    let id = |package: &Value| format!("{} {}", text(package, "name"), text(package, "version"));
    Ok(packages
        .into_iter()
        .map(|package| (id(&package), package))
        .collect())
}

/// The crates that are linked into a program, without macros and build dependencies.
fn parts(program: &str) -> Result<BTreeSet<String>> {
    let edges = [
        "--edges",
        "normal,no-proc-macro",
        "--prefix",
        "none",
        "--format",
        "{p}",
    ];
    let mut cargo = cargo(&["tree", "--locked", "--target", TARGET, "--package", program]);
    let said = command::output(
        cargo.args(edges),
        &format!("asking cargo for the crates of {program}"),
    )?;
    let said = String::from_utf8_lossy(&said);
    let each = said.lines().filter_map(|line| {
        let mut words = line.split(' ');
        Some((words.next()?, words.next()?.trim_start_matches('v')))
    });
    Ok(each
        .filter(|(name, _)| *name != program)
        .map(|(name, version)| format!("{name} {version}"))
        .collect())
}

/// The digests of crates in a lock file, by name and version.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let field = |stanza: &str, name: &str| {
        let value = stanza
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))?;
        Some(value.trim_matches('"').to_owned())
    };
    let each = lock.split("[[package]]").filter_map(|stanza| {
        let id = format!("{} {}", field(stanza, "name")?, field(stanza, "version")?);
        Some((id, field(stanza, "checksum")?))
    });
    each.collect()
}

fn cargo(args: &[&str]) -> Command {
    let mut command = command::cargo();
    command
        .args(args)
        .arg("--manifest-path")
        .arg(source_root().join("Cargo.toml"));
    command
}

fn text<'a>(package: &'a Value, name: &str) -> &'a str {
    package[name].as_str().unwrap_or_default()
}

/// Copies the files with licence terms at the top of a folder.
fn texts(from: &Path, to: &Path) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().to_uppercase();
        let stem = name.split(['.', '-', '_']).next().unwrap_or_default();
        // Go's own sources may be about licences.
        if NAMES.contains(&stem) && !name.ends_with(".GO") && entry.path().is_file() {
            copy(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(Path::new(".")))?;
    // Go's cache is read-only, and so would be copies.
    let bytes = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    fs::write(to, bytes).with_context(|| format!("cannot write {}", to.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_of_a_program_are_described() {
        let lock = fs::read_to_string(source_root().join("Cargo.lock")).unwrap();
        let (packages, checksums) = (packages().unwrap(), checksums(&lock));
        let parts = parts("halite-minion").unwrap();
        assert!(parts.iter().any(|id| id.starts_with("ring ")), "{parts:?}");
        assert!(
            !parts.iter().any(|id| id.starts_with("serde_derive ")),
            "{parts:?}"
        );
        for id in &parts {
            let package = packages
                .get(id)
                .unwrap_or_else(|| panic!("{id} is not described"));
            assert!(
                !text(package, "license").is_empty(),
                "{id} names no licence"
            );
            assert_eq!(
                package["source"].is_null(),
                !checksums.contains_key(id),
                "{id}"
            );
        }
    }

    #[test]
    fn files_with_terms_are_distinguished_from_others() {
        let dir = tempfile::tempdir().unwrap();
        for name in [
            "LICENSE",
            "License-MIT.txt",
            "NOTICE",
            "license.go",
            "README.md",
            "licensing",
        ] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        texts(dir.path(), &dir.path().join("out")).unwrap();
        let names = |entry: std::io::Result<fs::DirEntry>| {
            entry.unwrap().file_name().into_string().unwrap()
        };
        let found: BTreeSet<String> = fs::read_dir(dir.path().join("out"))
            .unwrap()
            .map(names)
            .collect();
        assert_eq!(
            found,
            ["LICENSE", "License-MIT.txt", "NOTICE"]
                .map(str::to_owned)
                .into()
        );
    }
}
