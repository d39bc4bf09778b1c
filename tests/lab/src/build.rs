//! Builds Halite's own programs as they are shipped.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{fs, thread};

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::command::passthrough;

/// Cargo's profiles and the programs (packages of the same name) that are built with each.
const PROFILES: &[(&str, &[&str])] = &[
    ("release", &["ctl", "halite-builder", "halite-master"]),
    ("small", &["halite-minion"]),
];

/// The root of the source tree.
#[must_use]
pub fn source_root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap_or(Path::new("."))
        .to_owned()
}

/// What [`release`] does, for whoever waits for it.
pub const WHAT: &str = "building ctl, halite-builder, halite-master and halite-minion (release; about ten minutes when nothing is cached)";

/// Builds the programs as they are shipped (the minion small, see the profiles in `Cargo.toml`) and
/// returns the directory that holds all four.
pub fn release() -> Result<PathBuf> {
    let target = source_root().join("target/x86_64-unknown-linux-gnu");
    let shipped = target.join("shipped");
    fs::create_dir_all(&shipped)?;
    // The last step of the small one takes minutes on one processor, which leaves the other for the
    // rest.
    thread::scope(|scope| {
        let build = |(profile, programs)| scope.spawn(move || build(profile, programs));
        let builds: Vec<_> = PROFILES.iter().copied().map(build).collect();
        builds
            .into_iter()
            .try_for_each(|build| build.join().map_err(|_| anyhow!("a build panicked"))?)
    })?;
    for (profile, programs) in PROFILES {
        for program in *programs {
            link(&target.join(profile).join(program), &shipped, program)?;
        }
    }
    Ok(shipped)
}

/// Lets a `ctl` that is run find `halite-builder`, which is in no bundle and on no ISO.
pub fn with_builder(command: &mut Command) -> Result<&mut Command> {
    static PATH: OnceLock<OsString> = OnceLock::new();
    if PATH.get().is_none() {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let all = std::iter::once(release()?).chain(std::env::split_paths(&path));
        let _ = PATH.set(std::env::join_paths(all)?);
    }
    Ok(command.env("PATH", PATH.get().context("there is no PATH")?))
}

fn build(profile: &str, programs: &[&str]) -> Result<()> {
    let manifest = source_root().join("Cargo.toml");
    let manifest = manifest.to_string_lossy();
    let mut args = vec![
        "build",
        "--profile",
        profile,
        "--locked",
        "--manifest-path",
        &manifest,
    ];
    args.extend(programs.iter().flat_map(|program| ["--package", *program]));
    ensure!(passthrough("cargo", &args)?, "Halite does not build");
    Ok(())
}

/// Makes a program appear in a directory under its name in one step: another run may be reading
/// there.
fn link(program: &Path, dir: &Path, name: &str) -> Result<()> {
    let fresh = dir.join(format!(".{name}.{}", std::process::id()));
    fs::hard_link(program, &fresh).with_context(|| format!("cannot link {}", program.display()))?;
    fs::rename(&fresh, dir.join(name))?;
    // A rename from one link of a file to another leaves both.
    if fresh.exists() {
        fs::remove_file(&fresh)?;
    }
    Ok(())
}
