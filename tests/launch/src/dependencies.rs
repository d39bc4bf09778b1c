//! Compiled dependencies, kept in the lab's cache: a fresh clone compiles only the crates of this
//! repository.
//!
//! A directory for each set of registry packages, each compiler and the options of the profiles has
//! the files that Cargo made from these packages, for each profile. They are copied, with their
//! times, into the `target` of a clone before its first build. If no directory has exactly these
//! packages and options, those of the latest one are copied: Cargo reuses equal ones, by the hash
//! in their names, and compiles the rest. Crates of this repository are never shared: Cargo tells
//! their versions apart by file times, which are meaningless across two clones.

use std::collections::BTreeSet;
use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use crate::errors::Context as _;
use crate::programs::run;
use crate::{cache, source_root};

/// The target that `.cargo/config.toml` names.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Prefix of the names of the cached directories; the key follows.
const PREFIX: &str = "target-";

/// The file whose time records when a directory was last used.
const USED: &str = ".used";

/// The directory of other packages, other options or another compiler is removed after this time
/// without use.
const UNUSED: Duration = Duration::from_secs(7 * 24 * 3600);

/// Copies the cached dependencies of these profiles into a clone's `target`, each once, unless
/// Cargo has already compiled some there: crates that were compiled against those do not accept
/// another build of the same package. `say` is called before an operation that takes seconds.
///
/// # Errors
/// The cache cannot be read, or `target` cannot be written. Cargo compiles missing files.
pub fn restore(target: &Path, profiles: &[&str], say: &mut dyn FnMut(&str)) -> io::Result<()> {
    let own = directory()?;
    let from = match own.exists() {
        true => own.clone(),
        false => last_used(&cache(), &own)?.unwrap_or_else(|| own.clone()),
    };
    if from.exists() {
        // An ordinary user reads a cache that root made.
        let _ = File::create(from.join(USED));
    }
    let packages = own_packages(&lock_file()?);
    for profile in profiles {
        let (source, marker) = (from.join(profile), marker(target, &own, profile));
        if source.exists() && !marker.exists() && !has_dependencies(target, profile, &packages)? {
            say(&format!(
                "copying compiled dependencies from {}",
                source.display()
            ));
            copy(&source, target)?;
            create(&marker)?;
        }
    }
    Ok(())
}

/// Copies the dependencies that were compiled for a profile from a clone's `target` into the cache,
/// unless they exist there.
///
/// # Errors
/// The cache cannot be written, or `target` cannot be read.
pub fn store(target: &Path, profile: &str) -> io::Result<()> {
    let to = directory()?;
    if to.join(profile).exists() {
        return Ok(());
    }
    fs::create_dir_all(&to).context(|| format!("cannot make {}", to.display()))?;
    create(&to.join(USED))?;
    let work = to.join(format!(".{profile}-{}", std::process::id()));
    let own = own_packages(&lock_file()?);
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
    create(&marker(target, &to, profile))?;
    remove_unused(&to)
}

/// Returns whether Cargo has compiled a registry package in a clone's `target`.
fn has_dependencies(target: &Path, profile: &str, own: &BTreeSet<String>) -> io::Result<bool> {
    let compiled = entries(&target.join(TARGET).join(profile).join(".fingerprint"))?;
    let mut packages = compiled
        .iter()
        .filter_map(|(_, name)| name.rsplit_once('-'));
    Ok(packages.any(|(package, _)| !own.contains(package)))
}

fn create(file: &Path) -> io::Result<File> {
    File::create(file).context(|| format!("cannot make {}", file.display()))
}

fn lock_file() -> io::Result<String> {
    let path = source_root().join("Cargo.lock");
    fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))
}

/// The directory for the packages in this clone's `Cargo.lock`, the profiles in its `Cargo.toml`,
/// and the compiler of this machine.
fn directory() -> io::Result<PathBuf> {
    // The same compiler has the same hash function, and another one has another directory.
    let mut sum = DefaultHasher::new();
    registry_packages(&lock_file()?).hash(&mut sum);
    let manifest = source_root().join("Cargo.toml");
    let manifest =
        fs::read_to_string(&manifest).context(|| format!("cannot read {}", manifest.display()))?;
    profiles(&manifest).hash(&mut sum);
    let printed = run(Command::new("rustc").arg("-vV"))?;
    let commit = printed
        .lines()
        .find_map(|line| line.strip_prefix("commit-hash: "))
        .ok_or_else(|| io::Error::other("rustc -vV names no commit"))?;
    let commit: String = commit.chars().take(9).collect();
    Ok(cache().join(format!("{PREFIX}{:016x}-{commit}", sum.finish())))
}

/// The lines of a `Cargo.toml` that set options of profiles.
fn profiles(manifest: &str) -> Vec<&str> {
    let mut is_profile = false;
    let lines = manifest.lines().filter(|line| !line.starts_with('#'));
    lines
        .filter(|line| {
            if line.starts_with('[') {
                is_profile = line.starts_with("[profile.");
            }
            is_profile && !line.is_empty()
        })
        .collect()
}

/// The most recently used directory of other packages and the same compiler.
fn last_used(cache: &Path, own: &Path) -> io::Result<Option<PathBuf>> {
    let compiler = |name: &str| Some(name.strip_prefix(PREFIX)?.rsplit_once('-')?.1.to_owned());
    let name = own.file_name().unwrap_or_default().to_string_lossy();
    let wanted = compiler(&name);
    let others = entries(cache)?.into_iter();
    let others = others.filter(|(_, other)| wanted.is_some() && compiler(other) == wanted);
    let used = |(path, _): (PathBuf, String)| {
        let time = fs::metadata(path.join(USED)).ok()?.modified().ok()?;
        Some((time, path))
    };
    Ok(others.filter_map(used).max().map(|(_, path)| path))
}

/// The file that marks a clone as having the dependencies of a profile.
fn marker(target: &Path, from: &Path, profile: &str) -> PathBuf {
    let name = from.file_name().unwrap_or_default().to_string_lossy();
    target.join(format!(".{name}-{profile}"))
}

/// The packages of a `Cargo.lock`.
fn packages(lock: &str) -> impl Iterator<Item = &str> {
    lock.split("[[package]]").skip(1)
}

/// A value of a package.
fn field<'a>(package: &'a str, name: &str) -> Option<&'a str> {
    let mut lines = package.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(" = "))?;
    Some(value.trim_matches('"'))
}

/// The packages of a `Cargo.lock` without a registry: those of this repository.
fn own_packages(lock: &str) -> BTreeSet<String> {
    packages(lock)
        .filter(|package| field(package, "source").is_none())
        .filter_map(|package| Some(field(package, "name")?.to_owned()))
        .collect()
}

/// The packages of a `Cargo.lock` that come from a registry, one on each line, sorted. The names of
/// this repository's own crates, and the packages that they use, do not affect it.
fn registry_packages(lock: &str) -> String {
    let line = |package: &str| {
        let source = field(package, "source")?;
        let value = |name| field(package, name).unwrap_or_default();
        let (name, version, checksum) = (value("name"), value("version"), value("checksum"));
        Some(format!("{name} {version} {source} {checksum}\n"))
    };
    let lines: BTreeSet<String> = packages(lock).filter_map(line).collect();
    lines.into_iter().collect()
}

/// Copies Cargo's files of registry packages in one profile's directory: fingerprints, outputs of
/// build scripts, and libraries. All of a unit's files end with the same hash.
fn copy_dependencies(from: &Path, to: &Path, own: &BTreeSet<String>) -> io::Result<()> {
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

fn entries(dir: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let mut found = Vec::new();
    if dir.exists() {
        for entry in fs::read_dir(dir).context(|| format!("cannot list {}", dir.display()))? {
            let entry = entry?;
            found.push((
                entry.path(),
                entry.file_name().to_string_lossy().into_owned(),
            ));
        }
    }
    Ok(found)
}

/// Copies a file or a directory with its times, over an existing one: Cargo compares the times.
fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let parent = to.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent).context(|| format!("cannot make {}", parent.display()))?;
    let mut source = from.as_os_str().to_owned();
    if from.is_dir() {
        fs::create_dir_all(to).context(|| format!("cannot make {}", to.display()))?;
        source.push("/.");
    }
    run(Command::new("cp").arg("-a").arg(source).arg(to))?;
    Ok(())
}

/// Removes the directories of other lock files and compilers that no run has used for [`UNUSED`].
fn remove_unused(keep: &Path) -> io::Result<()> {
    for (path, name) in entries(&cache())? {
        let old = || -> io::Result<bool> {
            let used = fs::metadata(path.join(USED))?.modified()?;
            Ok(used.elapsed().is_ok_and(|time| time > UNUSED))
        };
        if name.starts_with(PREFIX) && path != keep && old().unwrap_or(false) {
            fs::remove_dir_all(&path).context(|| format!("cannot remove {}", path.display()))?;
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

    #[test]
    fn a_target_with_own_packages_only_has_no_dependencies() {
        let target = tempfile::tempdir().unwrap();
        let own = BTreeSet::from(["halite-launch".to_owned()]);
        let has = || has_dependencies(target.path(), "debug", &own).unwrap();
        assert!(!has());
        let compiled = target.path().join(TARGET).join("debug/.fingerprint");
        fs::create_dir_all(compiled.join("halite-launch-0a1b")).unwrap();
        assert!(!has());
        fs::create_dir_all(compiled.join("serde-json-2c3d")).unwrap();
        assert!(has());
    }

    #[test]
    fn only_lines_of_profiles_count() {
        let manifest = "[workspace]\nmembers = []\n\n# Fast.\n[profile.dev]\n# Why.\ndebug = false\n\n[patch]\nx = 1\n";
        assert_eq!(profiles(manifest), ["[profile.dev]", "debug = false"]);
    }

    #[test]
    fn without_the_same_packages_the_last_used_of_the_same_compiler_are_used() {
        let directory = tempfile::tempdir().unwrap();
        let cache = directory.path().join("cache");
        let own = cache.join("target-0000-rustcnew");
        assert_eq!(last_used(&cache, &own).unwrap(), None);
        for (name, hour) in [
            ("target-1111-rustcnew", 1),
            ("target-2222-rustcnew", 3),
            ("target-3333-rustcnew", 2),
            ("target-4444-rustcold", 4),
            ("bundle-5555-rustcnew", 5),
        ] {
            let directory = cache.join(name);
            fs::create_dir_all(&directory).unwrap();
            let time = std::time::UNIX_EPOCH + Duration::from_secs(hour * 3600);
            let used = File::create(directory.join(USED)).unwrap();
            used.set_modified(time).unwrap();
        }
        // Interrupted before it was used.
        fs::create_dir_all(cache.join("target-6666-rustcnew")).unwrap();
        let found = last_used(&cache, &own).unwrap();
        assert_eq!(found, Some(cache.join("target-2222-rustcnew")));
    }

    #[test]
    fn only_registry_packages_make_another_directory() {
        let package = |name: &str, more: &str| format!("[[package]]\nname = \"{name}\"\n{more}\n");
        let of = |name: &str, version: &str, checksum: &str| {
            let more = format!(
                "version = \"{version}\"\nsource = \"registry+x\"\nchecksum = \"{checksum}\"\ndependencies = [\n \"own\",\n]\n"
            );
            package(name, &more)
        };
        let lock = |packages: &[String]| format!("version = 4\n\n{}", packages.concat());
        let serde = of("serde", "1.0.0", "aa");
        let libc = of("libc", "0.2.0", "bb");
        let own = package("ctl", "version = \"0.1.0\"\n");
        let found = registry_packages(&lock(&[serde.clone(), own.clone(), libc.clone()]));
        assert_eq!(
            found,
            "libc 0.2.0 registry+x bb\nserde 1.0.0 registry+x aa\n"
        );
        let other = package(
            "halite-new",
            "version = \"0.1.0\"\ndependencies = [\n \"libc\",\n]\n",
        );
        for same in [
            vec![libc.clone(), serde.clone()],
            vec![serde.clone(), libc.clone(), own, other],
        ] {
            assert_eq!(registry_packages(&lock(&same)), found);
        }
        for different in [of("libc", "0.2.1", "bb"), of("libc", "0.2.0", "cc")] {
            assert_ne!(registry_packages(&lock(&[serde.clone(), different])), found);
        }
        // The one of this repository has both kinds.
        let real = lock_file().unwrap();
        assert!(registry_packages(&real).contains("\nserde "));
        assert!(own_packages(&real).contains("halite-launch"));
    }
}
