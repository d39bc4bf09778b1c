//! The commit from which a release is made.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use halite_lab::build_command::output;

/// The commit, and the changes of the tree since.
#[derive(Debug)]
pub(crate) struct Commit {
    seconds: u64,
    date: String,
    /// The files with uncommitted changes.
    changed: Vec<String>,
}

impl Commit {
    /// The commit of a checkout.
    ///
    /// # Errors
    /// It is not a checkout of git.
    pub(crate) fn of(root: &Path) -> Result<Self> {
        let git = |words: &[&str]| -> Result<String> {
            let mut git = Command::new("git");
            git.arg("-C").arg(root).env("TZ", "UTC").args(words);
            let said = output(&mut git, "asking git about the commit")?;
            Ok(String::from_utf8_lossy(&said).trim_end().to_owned())
        };
        let format = "--date=format-local:%Y-%m-%dT%H:%M:%SZ";
        let said = git(&["log", "-1", format, "--format=%ct %cd"])?;
        let (seconds, date) = said.split_once(' ').context("git names no commit")?;
        let changed = git(&["status", "--porcelain"])?;
        Ok(Self {
            seconds: seconds.parse()?,
            date: date.to_owned(),
            changed: changed.lines().map(|line| line.trim().to_owned()).collect(),
        })
    }

    /// Its time in seconds since 1970: the time of all files in archives.
    pub(crate) fn seconds(&self) -> u64 {
        self.seconds
    }

    /// Its time as RFC 3339 in UTC.
    pub(crate) fn date(&self) -> &str {
        &self.date
    }

    /// Refuses a tree with uncommitted changes.
    ///
    /// # Errors
    /// There are some.
    pub(crate) fn must_be_clean(&self) -> Result<()> {
        ensure!(
            self.changed.is_empty(),
            "cannot sign a release of a tree with uncommitted changes: {}; commit or remove them",
            self.changed.join(", ")
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_signs_only_a_clean_tree() {
        let dir = tempfile::tempdir().unwrap();
        let git = |words: &[&str]| {
            let mut git = Command::new("git");
            git.arg("-C").arg(dir.path()).args(words);
            for role in ["AUTHOR", "COMMITTER"] {
                git.env(format!("GIT_{role}_NAME"), "A");
                git.env(format!("GIT_{role}_EMAIL"), "a@example.org");
                git.env(format!("GIT_{role}_DATE"), "1700000000 +0200");
            }
            output(&mut git, "git").unwrap();
        };
        git(&["init", "--quiet"]);
        std::fs::write(dir.path().join("file"), "one").unwrap();
        git(&["add", "file"]);
        git(&["commit", "--quiet", "--message", "one"]);
        let commit = Commit::of(dir.path()).unwrap();
        assert_eq!(commit.seconds(), 1_700_000_000);
        assert_eq!(commit.date(), "2023-11-14T22:13:20Z");
        commit.must_be_clean().unwrap();
        std::fs::write(dir.path().join("file"), "two").unwrap();
        let error = Commit::of(dir.path()).unwrap().must_be_clean();
        let error = error.unwrap_err().to_string();
        assert!(
            error.contains("uncommitted changes: M file; commit"),
            "{error}"
        );
    }
}
