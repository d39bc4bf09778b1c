//! Builds of this repository's programs by Cargo.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;
use std::{env, fs, io};

use crate::errors::Context as _;
use crate::source_root;

/// Cargo without the variables by which the cargo of `cargo lab` describes that package. Build
/// scripts, ring's among others, watch them: with them the lab's own builds, those of a program
/// that runs without cargo, and those of a developer would each recompile everything that depends
/// on ring.
#[must_use]
pub fn cargo() -> Command {
    let mut command = Command::new("cargo");
    without_package(&mut command);
    command
}

/// Removes the variables that describe a package from the environment of a program that starts
/// Cargo.
pub fn without_package(command: &mut Command) {
    for (name, _) in env::vars_os() {
        let is_of_package = |name: &str| {
            ["CARGO_MANIFEST_", "CARGO_PKG_"]
                .iter()
                .any(|start| name.starts_with(start))
        };
        if name.to_str().is_some_and(is_of_package) {
            command.env_remove(name);
        }
    }
}

/// The directory of the programs that Cargo builds next to this one.
///
/// # Errors
/// The system does not report the path of this program.
pub fn programs() -> io::Result<PathBuf> {
    let own = env::current_exe().context(|| "cannot find this program's file".to_owned())?;
    Ok(own.parent().unwrap_or(Path::new("/")).to_owned())
}

/// Cargo's target directory, from a directory `TARGET/TRIPLE/PROFILE` in it.
#[must_use]
pub fn target(programs: &Path) -> PathBuf {
    programs.ancestors().nth(2).unwrap_or(programs).to_owned()
}

/// Arguments of `cargo build` with which `cargo test --workspace` compiles no crate again: all
/// members of the workspace, for the features of their dependencies, and the features that only
/// development dependencies enable.
pub const LIKE_THE_TESTS: [&str; 3] = [
    "--workspace",
    "--features",
    "halite-cluster/testing,halite-core/testing,halite-store/testing",
];

/// Builds programs next to this one, [like the tests](LIKE_THE_TESTS).
///
/// # Errors
/// Cargo cannot be started, or failed; it has printed the reason.
pub fn build(programs: &[&str], quiet: bool) -> io::Result<()> {
    let mut cargo = cargo();
    cargo.arg("build").args(LIKE_THE_TESTS);
    cargo.arg("--manifest-path");
    cargo.arg(source_root().join("Cargo.toml"));
    cargo.args(programs.iter().flat_map(|program| ["--bin", *program]));
    if quiet {
        cargo.arg("--quiet");
    }
    let status = (cargo.status()).context(|| "cannot start cargo".to_owned())?;
    if !status.success() {
        let names = programs.join(", ");
        return Err(io::Error::other(format!(
            "cannot build {names}: cargo ended with {status}"
        )));
    }
    Ok(())
}

/// Returns whether a program is newer than the files from which Cargo built it. Cargo alone decides
/// what it builds; this predicts whether it prints anything.
#[must_use]
pub fn is_fresh(program: &Path) -> bool {
    let time = |path: &Path| fs::metadata(path)?.modified();
    let (Ok(notes), Ok(built)) = (
        fs::read_to_string(program.with_extension("d")),
        time(program),
    ) else {
        return false;
    };
    let manifests = ["Cargo.toml", "Cargo.lock", ".cargo/config.toml"];
    let manifests = manifests.map(|name| source_root().join(name));
    let older = |path: &Path| time(path).is_ok_and(|time: SystemTime| time <= built);
    let mut sources = sources(&notes);
    sources.extend(manifests);
    sources.iter().all(|path| older(path))
}

/// The files in Cargo's notes on a program: `PROGRAM: FILE FILE…`, a space in a name as `\ `.
fn sources(notes: &str) -> Vec<PathBuf> {
    let files = notes.split_once(": ").map_or("", |(_, files)| files);
    let files = files.trim_end().replace("\\ ", "\0");
    let names = files.split(' ').filter(|name| !name.is_empty());
    names.map(|name| name.replace('\0', " ").into()).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn cargo_does_not_see_the_package_that_starts_it() {
        let command = cargo();
        let removed: Vec<_> = command
            .get_envs()
            .filter(|(_, value)| value.is_none())
            .map(|(name, _)| name.to_owned())
            .collect();
        // Cargo has set them for this test.
        for name in ["CARGO_MANIFEST_DIR", "CARGO_PKG_NAME"] {
            assert!(removed.iter().any(|it| it == name), "{name}: {removed:?}");
        }
        assert!(!removed.iter().any(|name| name == "CARGO_HOME"));
    }

    #[test]
    fn every_crate_with_test_helpers_is_built_like_the_tests() {
        let crates = fs::read_dir(source_root().join("master")).unwrap();
        let crates = crates.map(|entry| entry.unwrap().path().join("Cargo.toml"));
        let mut features: Vec<String> = crates
            .filter_map(|manifest| fs::read_to_string(manifest).ok())
            .filter(|manifest| manifest.contains("\ntesting = ["))
            .filter_map(|manifest| {
                let name = manifest.split_once("name = \"")?.1.split('"').next()?;
                Some(format!("{name}/testing"))
            })
            .collect();
        features.sort();
        assert_eq!(LIKE_THE_TESTS[2], features.join(","));
    }

    #[test]
    fn a_program_is_fresh_until_one_of_its_files_changes() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("lab");
        let source = directory.path().join("with a space.rs");
        assert!(!is_fresh(&program), "it was never built");
        fs::write(&source, "").unwrap();
        let name = source.to_string_lossy().replace(' ', "\\ ");
        let notes = format!("{}: {name}\n", program.display());
        fs::write(program.with_extension("d"), notes).unwrap();
        let file = fs::File::create(&program).unwrap();
        // Later than the manifests of this repository.
        let built = SystemTime::now() + Duration::from_secs(3600);
        file.set_modified(built).unwrap();
        assert!(is_fresh(&program));
        let file = fs::File::options().write(true).open(&source).unwrap();
        file.set_modified(built + Duration::from_secs(1)).unwrap();
        assert!(!is_fresh(&program));
        fs::remove_file(&source).unwrap();
        assert!(!is_fresh(&program), "a file is missing");
    }

    #[test]
    fn the_target_directory_is_that_of_the_programs() {
        let programs = Path::new("/clone/target/x86_64-unknown-linux-gnu/debug");
        assert_eq!(target(programs), Path::new("/clone/target"));
    }
}
