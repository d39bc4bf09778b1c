//! Halite's programs of an earlier commit, and its source tree: built once from the repository's
//! own history, and kept in the cache.

use std::fs;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use halite_launch::dependencies;

use crate::build_command;
use crate::command::run;
use crate::dirs::source_root;
use crate::progress::Board;

/// The commit, from which a site is upgraded to the present tree: the last one before clusters
/// could be upgraded by a minor version and rotate certificates.
pub const COMMIT: &str = "367d7ee2dec0396b6164f32209c34f787b34c55e";

/// Builds the programs unless they exist, and returns their directory.
///
/// # Errors
/// The clone lacks the commit, or a crate does not compile.
pub fn programs(names: &[&str], board: &Board) -> Result<PathBuf> {
    Ok(ensure_made(names, board)?.join("bin"))
}

/// The commit's source tree, once its programs are built.
#[must_use]
pub fn source() -> PathBuf {
    directory().join("source")
}

fn directory() -> PathBuf {
    crate::cache().join("earlier").join(COMMIT)
}

fn ensure_made(names: &[&str], board: &Board) -> Result<PathBuf> {
    let made = directory();
    let parent = made.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(parent)?;
    let lock = parent.join(".lock");
    let lock = File::create(&lock).with_context(|| format!("cannot make {}", lock.display()))?;
    lock.lock()?;
    if made.exists() {
        return Ok(made);
    }
    // After an interruption Cargo continues in it: the archive's files have the commit's time.
    let work = parent.join(format!(".making-{COMMIT}"));
    let tree = work.join("source");
    extract(&source_root(), COMMIT, &tree)?;
    let target = work.join("target");
    let mut line = board.line("earlier");
    if let Err(error) = dependencies::restore(&target, &["debug"], &mut |text| line.say(text)) {
        line.say(&format!("compiled again: {error}"));
    }
    let mut cargo = build_command::cargo();
    cargo
        .current_dir(&tree)
        .env("CARGO_TARGET_DIR", &target)
        .args(["build", "--profile", "dev", "--locked", "--workspace"])
        .args(names.iter().flat_map(|name| ["--bin", *name]));
    let what = format!("Halite of the commit {}", &COMMIT[..8]);
    build_command::run(&mut cargo, &what, &mut |text| line.say(text))?;
    let (from, to) = (
        target.join("x86_64-unknown-linux-gnu/debug"),
        work.join("bin"),
    );
    fs::create_dir_all(&to)?;
    for name in names {
        let (stripped, program) = (to.join(name), from.join(name));
        let words = ["-o".as_ref(), stripped.as_os_str(), program.as_os_str()];
        run("strip", &words).with_context(|| format!("cannot strip {name}"))?;
    }
    fs::remove_dir_all(&target).with_context(|| format!("cannot remove {}", target.display()))?;
    fs::rename(&work, &made)
        .with_context(|| format!("cannot move {} to {}", work.display(), made.display()))?;
    Ok(made)
}

/// Extracts the files of a commit of a clone into a directory.
fn extract(clone: &Path, commit: &str, to: &Path) -> Result<()> {
    let git = || {
        let mut git = Command::new("git");
        // root may run it in the clone of another user.
        git.args(["-c", "safe.directory=*", "-C"]).arg(clone);
        git
    };
    let known = git()
        .args(["cat-file", "-e", &format!("{commit}^{{commit}}")])
        .stderr(Stdio::null())
        .status()
        .context("cannot start git")?;
    ensure!(
        known.success(),
        "cannot build Halite of the commit {commit}: {} does not have it; a shallow clone gets the rest of the history with `git \
         fetch --unshallow`",
        clone.display()
    );
    fs::create_dir_all(to)?;
    let mut archive = git()
        .args(["archive", "--format=tar", commit])
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start git")?;
    let stream = archive.stdout.take().context("git has no output")?;
    let mut tar = Command::new("tar");
    let unpacked = tar.args(["-x", "-C"]).arg(to).stdin(stream).status()?;
    ensure!(
        archive.wait()?.success() && unpacked.success(),
        "cannot extract the commit {commit} into {}",
        to.display()
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clone() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "of the commit").unwrap();
        let identity = ["-c", "user.name=x", "-c", "user.email=x@localhost"];
        for words in [
            &["init", "-q"][..],
            &["add", "file"],
            &["-c", "core.hooksPath=/dev/null", "commit", "-q", "-m", "x"],
        ] {
            let mut git = Command::new("git");
            git.arg("-C").arg(dir.path()).args(identity).args(words);
            assert!(git.status().unwrap().success());
        }
        dir
    }

    #[test]
    fn the_files_of_a_commit_are_extracted_as_they_were() {
        let clone = clone();
        fs::write(clone.path().join("file"), "changed since").unwrap();
        let to = tempfile::tempdir().unwrap();
        extract(clone.path(), "HEAD", to.path()).unwrap();
        let file = fs::read_to_string(to.path().join("file")).unwrap();
        assert_eq!(file, "of the commit");
    }

    #[test]
    fn a_clone_without_the_commit_is_reported_with_the_remedy() {
        let to = tempfile::tempdir().unwrap();
        let error = extract(clone().path(), COMMIT, to.path()).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains(COMMIT) && error.contains("git fetch --unshallow"),
            "{error}"
        );
    }
}
