//! Compiled dependencies, kept in the lab's cache: a fresh clone compiles only the crates of this
//! repository.
//!
//! A directory for each `Cargo.lock` and compiler has the files that Cargo made of packages from a
//! registry, for each profile. They are copied, with their times, into the `target` of a clone
//! before its first build. Crates of this repository are never shared: Cargo tells their versions
//! apart by file times, which says nothing across two clones.

use std::collections::BTreeSet;
use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use crate::command::run;
use crate::dirs::{cache, source_root};

/// The target that `.cargo/config.toml` names.
pub(crate) const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Beginning of the names of the cached directories; the key follows.
const PREFIX: &str = "target-";

/// The file whose time says when a directory was last used.
const USED: &str = ".used";

/// After this time without use the directory of another `Cargo.lock` or compiler is removed.
const UNUSED: Duration = Duration::from_secs(7 * 24 * 3600);

/// Copies the cached dependencies of all profiles into this clone's `target`, each once.
pub fn restore() -> Result<()> {
    let (from, target) = (directory()?, source_root().join("target"));
    if from.exists() {
        File::create(from.join(USED))?;
    }
    for profile in ["debug", "release", "small"] {
        let (source, marker) = (from.join(profile), marker(&target, &from, profile));
        if source.exists() && !marker.exists() {
            copy(&source, &target)?;
            File::create(&marker)?;
        }
    }
    Ok(())
}

/// Copies the dependencies that were compiled for a profile into the cache, unless they are there.
pub fn store(profile: &str) -> Result<()> {
    let (to, target) = (directory()?, source_root().join("target"));
    if to.join(profile).exists() {
        return Ok(());
    }
    fs::create_dir_all(&to)?;
    File::create(to.join(USED))?;
    let work = to.join(format!(".{profile}-{}", std::process::id()));
    let own = own_packages(&fs::read_to_string(source_root().join("Cargo.lock"))?);
    // Programs that run during a build are made for the machine, outside the named target.
    for part in [profile.to_owned(), format!("{TARGET}/{profile}")] {
        copy_dependencies(&target.join(&part), &work.join(&part), &own)?;
    }
    if !work.exists() {
        return Ok(());
    }
    if fs::rename(&work, to.join(profile)).is_err() {
        // Another run was faster.
        fs::remove_dir_all(&work)?;
    }
    File::create(marker(&target, &to, profile))?;
    remove_unused(&to)
}

/// The directory for this clone's `Cargo.lock` and the compiler of this machine.
fn directory() -> Result<PathBuf> {
    let lock = source_root().join("Cargo.lock");
    let sum = run("sha256sum", &[lock.as_os_str()])?;
    let sum: String = sum.chars().take(16).collect();
    let printed = run("rustc", &["-vV"])?;
    let commit = printed
        .lines()
        .find_map(|line| line.strip_prefix("commit-hash: "))
        .context("rustc -vV names no commit")?;
    let commit: String = commit.chars().take(9).collect();
    Ok(cache().join(format!("{PREFIX}{sum}-{commit}")))
}

/// The file that says that a clone has the dependencies of a profile.
fn marker(target: &Path, from: &Path, profile: &str) -> PathBuf {
    let name = from.file_name().unwrap_or_default().to_string_lossy();
    target.join(format!(".{name}-{profile}"))
}

/// The packages of a `Cargo.lock` that come from no registry: those of this repository.
fn own_packages(lock: &str) -> BTreeSet<String> {
    lock.split("[[package]]")
        .filter(|package| !package.contains("\nsource = "))
        .filter_map(|package| {
            let name = package
                .lines()
                .find_map(|line| line.strip_prefix("name = "))?;
            Some(name.trim_matches('"').to_owned())
        })
        .collect()
}

/// Copies what Cargo made of packages from a registry in one profile's directory: notes of what is
/// fresh, outputs of build scripts, and libraries. All of a unit's files end with the same hash.
fn copy_dependencies(from: &Path, to: &Path, own: &BTreeSet<String>) -> Result<()> {
    let mut hashes = BTreeSet::new();
    for folder in [".fingerprint", "build"] {
        for (path, name) in entries(&from.join(folder))? {
            let Some((package, hash)) = name.rsplit_once('-') else {
                continue;
            };
            if !own.contains(package) {
                hashes.insert(hash.to_owned());
                copy(&path, &to.join(folder).join(&name))?;
            }
        }
    }
    for (path, name) in entries(&from.join("deps"))? {
        let Some((stem, "rlib" | "rmeta" | "so" | "d")) = name.rsplit_once('.') else {
            continue;
        };
        if stem
            .rsplit_once('-')
            .is_some_and(|(_, hash)| hashes.contains(hash))
        {
            copy(&path, &to.join("deps").join(&name))?;
        }
    }
    Ok(())
}

fn entries(dir: &Path) -> Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    if dir.exists() {
        for entry in fs::read_dir(dir).with_context(|| format!("cannot list {}", dir.display()))? {
            let entry = entry?;
            found.push((
                entry.path(),
                entry.file_name().to_string_lossy().into_owned(),
            ));
        }
    }
    Ok(found)
}

/// Copies a file or a directory with its times, over what is there: Cargo compares the times.
fn copy(from: &Path, to: &Path) -> Result<()> {
    let parent = to.parent().context("a copy at the root")?;
    fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let mut source = from.as_os_str().to_owned();
    if from.is_dir() {
        fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
        source.push("/.");
    }
    run("cp", &["-a".as_ref(), source.as_os_str(), to.as_os_str()])?;
    Ok(())
}

/// Removes the directories of other lock files and compilers that no run used for [`UNUSED`].
fn remove_unused(keep: &Path) -> Result<()> {
    for (path, name) in entries(&cache())? {
        let old = || -> Result<bool> {
            let used = fs::metadata(path.join(USED))?.modified()?;
            Ok(used.elapsed().is_ok_and(|time| time > UNUSED))
        };
        if name.starts_with(PREFIX) && path != keep && old().unwrap_or(false) {
            fs::remove_dir_all(&path)
                .with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_this_repository_are_distinguished_from_dependencies() {
        let lock = "version = 4\n\n[[package]]\nname = \"serde\"\nversion = \"1\"\nsource = \"registry+x\"\n\n[[package]]\nname = \"ctl\"\nversion = \"0.1.0\"\n";
        assert_eq!(own_packages(lock), BTreeSet::from(["ctl".to_owned()]));
    }
}
