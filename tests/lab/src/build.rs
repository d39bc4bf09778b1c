//! Builds Halite's own programs, as developed or as shipped.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::{fs, thread};

use anyhow::{Context as _, Result, anyhow};
use halite_launch::cargo::LIKE_THE_TESTS;
use halite_launch::dependencies;

use crate::command::run;
use crate::progress::Board;
use crate::{build_command, earlier};

pub use crate::dirs::source_root;

/// All programs; packages have the same names.
const ALL: &[&str] = &["ctl", "halite-builder", "halite-master", "halite-minion"];

/// Cargo's profiles, and the programs that are shipped from each.
const PROFILES: [(&str, &[&str]); 2] = [
    ("release", &["ctl", "halite-builder"]),
    ("small", &["halite-master", "halite-minion"]),
];

/// The minion's package.
const MINION: &str = "halite-minion";

/// The end of the version of [`other_minion`].
pub const OTHER: &str = "+other";

/// The way in which Halite's programs are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Programs {
    /// Like the tests, which compile the same crates: quick to build, with overflow checks and
    /// debug assertions.
    Dev,
    /// As an operator gets them: optimised for size, which takes many minutes.
    Shipped,
    /// Those of an [earlier commit](earlier::COMMIT), as [`Self::Dev`].
    Earlier,
}

impl Programs {
    /// Builds the programs and returns the directory that contains all of them. Messages begin with
    /// the profile's name.
    ///
    /// # Errors
    /// A crate does not compile.
    pub fn build(self, board: &Board) -> Result<PathBuf> {
        /// The programs that this process has built: the source tree does not change while it runs.
        static BUILT: Mutex<Vec<(Programs, PathBuf)>> = Mutex::new(Vec::new());
        let mut built = BUILT.lock().map_err(|_| anyhow!("a build panicked"))?;
        if let Some((_, place)) = built.iter().find(|(programs, _)| *programs == self) {
            return Ok(place.clone());
        }
        let place = match self {
            Self::Dev => {
                restore(&["debug"], board);
                dev(board)
            }
            Self::Shipped => {
                restore(&PROFILES.map(|(profile, _)| profile), board);
                shipped(board)
            }
            Self::Earlier => earlier::programs(ALL, board),
        }?;
        built.push((self, place.clone()));
        Ok(place)
    }

    /// The source tree from which they are built; an earlier one exists once they are built.
    #[must_use]
    pub fn source(self) -> PathBuf {
        match self {
            Self::Dev | Self::Shipped => source_root(),
            Self::Earlier => earlier::source(),
        }
    }
}

/// Cargo's target directory.
fn target() -> PathBuf {
    source_root().join("target/x86_64-unknown-linux-gnu")
}

/// Copies the compiled dependencies of these profiles from the cache.
fn restore(profiles: &[&str], board: &Board) {
    let mut say = |text: &str| board.say("dependencies", text);
    if let Err(error) = dependencies::restore(&source_root().join("target"), profiles, &mut say) {
        say(&format!("compiled again: {error}"));
    }
}

fn dev(board: &Board) -> Result<PathBuf> {
    let place = target().join("stripped");
    build("dev", ALL, &[], &place, board)?;
    Ok(place)
}

fn shipped(board: &Board) -> Result<PathBuf> {
    let place = target().join("shipped");
    // The last step of the small profile takes minutes on one processor, which leaves the other for
    // the rest.
    let to = place.as_path();
    thread::scope(|scope| {
        let build =
            |(profile, programs)| scope.spawn(move || build(profile, programs, &[], to, board));
        let builds: Vec<_> = PROFILES.iter().copied().map(build).collect();
        builds
            .into_iter()
            .try_for_each(|build| build.join().map_err(|_| anyhow!("a build panicked"))?)
    })?;
    Ok(place)
}

/// Builds a minion that differs from [`Programs::Dev`]'s, and shows this by its version
/// ([`OTHER`]); returns its path. Only the minion's own crate is compiled again, and linked.
///
/// # Errors
/// The crate does not compile.
pub fn other_minion(board: &Board) -> Result<PathBuf> {
    let place = target().join("stripped/other");
    let features = ["--features", "halite-minion/other-version"];
    build("dev", &[MINION], &features, &place, board)?;
    Ok(place.join(MINION))
}

/// The variable that chooses the sets of options for which `halite-builder` compiles a state tree.
pub const OPTION_SETS: &str = "HALITE_OPTION_SETS";

/// Lets a `ctl` that builds or checks a bundle use a covering array of the options: a quarter of an
/// operator's sets. A test of `--full` compares the requirements of both.
pub fn with_fewer_option_sets(command: &mut Command) -> &mut Command {
    command.env(OPTION_SETS, "covering")
}

/// Lets a `ctl` find `halite-builder`, which is in no bundle and on no ISO, with [fewer sets of
/// options](with_fewer_option_sets).
///
/// # Errors
/// The programs do not compile.
pub fn with_builder(command: &mut Command, programs: Programs) -> Result<&mut Command> {
    let own = programs.build(&Board::silent())?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let all = std::iter::once(own).chain(std::env::split_paths(&path));
    command.env("PATH", std::env::join_paths(all)?);
    Ok(with_fewer_option_sets(command))
}

/// Builds programs, with the features that the whole workspace requires of their dependencies, and
/// puts them into a directory without symbols.
fn build(
    profile: &str,
    programs: &[&str],
    features: &[&str],
    to: &Path,
    board: &Board,
) -> Result<()> {
    fs::create_dir_all(to)?;
    // Cargo puts a program at one path, whatever its features are: no other build may run between
    // this one and the copies.
    let lock = fs::File::create(target().join(format!(".programs-{profile}.lock")))?;
    lock.lock()?;
    let mut cargo = build_command::cargo();
    cargo.args(["build", "--profile", profile, "--locked"]);
    cargo
        .arg("--manifest-path")
        .arg(source_root().join("Cargo.toml"));
    if profile == "dev" {
        cargo.args(LIKE_THE_TESTS);
        cargo.args(programs.iter().flat_map(|program| ["--bin", *program]));
    } else {
        cargo.args(programs.iter().flat_map(|program| ["--package", *program]));
    }
    cargo.args(features);
    let what = format!("Halite's programs, profile {profile}");
    let mut line = board.line(profile);
    build_command::run(&mut cargo, &what, &mut |text| line.say(text))?;
    let folder = if profile == "dev" { "debug" } else { profile };
    // Those of the profile dev are stored when the tests and the lint have compiled theirs too.
    if profile != "dev"
        && let Err(error) = dependencies::store(&source_root().join("target"), folder)
    {
        line.say(&format!("cannot keep the compiled dependencies: {error}"));
    }
    for program in programs {
        strip(&target().join(folder).join(program), to, program)?;
    }
    Ok(())
}

/// Puts a program without symbols into a directory under its name, atomically: another run may be
/// reading there. Its time is that of the program.
fn strip(program: &Path, dir: &Path, name: &str) -> Result<()> {
    let made = dir.join(name);
    let modified = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    let is_new = modified(program).is_none() || modified(program) != modified(&made);
    if is_new {
        let fresh = dir.join(format!(".{name}.{}", std::process::id()));
        let words = ["--preserve-dates".as_ref(), "-o".as_ref()];
        let paths = [fresh.as_os_str(), program.as_os_str()];
        run("strip", &[&words[..], &paths[..]].concat())
            .with_context(|| format!("cannot strip {}", program.display()))?;
        fs::rename(&fresh, &made)?;
    }
    Ok(())
}
