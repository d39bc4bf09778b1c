//! Builds Halite's own programs as they are shipped.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::{fs, thread};

use anyhow::{Context as _, Result, anyhow};

use crate::progress::Board;
use crate::{build_command, dependencies};

pub use crate::dirs::source_root;

/// Cargo's profiles and the programs (packages of the same name) that are built with each.
const PROFILES: &[(&str, &[&str])] = &[
    ("release", &["ctl", "halite-builder"]),
    ("small", &["halite-master", "halite-minion"]),
];

/// What the version of [`other_minion`] has at its end.
pub const OTHER: &str = "+other";

/// Builds the programs as they are shipped (the daemons small, see the profiles in `Cargo.toml`) and
/// returns the directory that has all of them. Messages begin with the profile's name.
pub fn release(board: &Board) -> Result<PathBuf> {
    if let Err(error) = dependencies::restore() {
        board.say("dependencies", &format!("compiled again: {error:#}"));
    }
    let target = source_root().join("target/x86_64-unknown-linux-gnu");
    let shipped = target.join("shipped");
    fs::create_dir_all(&shipped)?;
    // The last step of the small one takes minutes on one processor, which leaves the other for the
    // rest.
    let shipped_to = shipped.as_path();
    thread::scope(|scope| {
        let build = |(profile, programs)| {
            scope.spawn(move || build(profile, programs, &[], shipped_to, board))
        };
        let builds: Vec<_> = PROFILES.iter().copied().map(build).collect();
        builds
            .into_iter()
            .try_for_each(|build| build.join().map_err(|_| anyhow!("a build panicked"))?)
    })?;
    Ok(shipped)
}

/// Builds a minion that is another program than the shipped one, and says so by its version
/// ([`OTHER`]); returns its path. Only the minion's own crate is compiled again, and linked.
pub fn other_minion(board: &Board) -> Result<PathBuf> {
    let target = source_root().join("target/x86_64-unknown-linux-gnu");
    let place = target.join("shipped/other");
    fs::create_dir_all(&place)?;
    // With the same packages as before, so that Cargo compiles all that they share no other way.
    let shipped = PROFILES
        .iter()
        .find(|(_, programs)| programs.contains(&"halite-minion"));
    let (profile, programs) = shipped.context("the minion is not shipped")?;
    let features = ["--features", "halite-minion/other-version"];
    build(profile, programs, &features, &place, board)?;
    Ok(place.join("halite-minion"))
}

/// Lets a `ctl` that is run find `halite-builder`, which is in no bundle and on no ISO.
pub fn with_builder(command: &mut Command) -> Result<&mut Command> {
    static PATH: OnceLock<OsString> = OnceLock::new();
    if PATH.get().is_none() {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let programs = release(&Board::silent())?;
        let all = std::iter::once(programs).chain(std::env::split_paths(&path));
        let _ = PATH.set(std::env::join_paths(all)?);
    }
    Ok(command.env("PATH", PATH.get().context("there is no PATH")?))
}

/// Builds programs and links them to a directory.
fn build(
    profile: &str,
    programs: &[&str],
    features: &[&str],
    to: &Path,
    board: &Board,
) -> Result<()> {
    let target = source_root().join("target/x86_64-unknown-linux-gnu");
    // Cargo leaves a program at one path, whatever its features are: no other build may come
    // between this one and the links.
    let lock = fs::File::create(target.join(format!("shipped/.{profile}.lock")))?;
    lock.lock()?;
    let mut cargo = build_command::cargo();
    cargo.args(["build", "--profile", profile, "--locked"]);
    cargo
        .arg("--manifest-path")
        .arg(source_root().join("Cargo.toml"));
    cargo.args(programs.iter().flat_map(|program| ["--package", *program]));
    cargo.args(features);
    let what = format!("Halite's programs, profile {profile}");
    let mut line = board.line(profile);
    build_command::run(&mut cargo, &what, &mut |text| line.say(text))?;
    if let Err(error) = dependencies::store(profile) {
        line.say(&format!("cannot keep the compiled dependencies: {error:#}"));
    }
    for program in programs {
        link(&target.join(profile).join(program), to, program)?;
    }
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
