//! The state of the source tree to which a result belongs.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};

/// Paths that the id of a tree leaves out: documents. Some suites run commands of pages; the tests
/// of the default run find the blocks of these commands, but a result stays when only their words
/// change.
const LEFT_OUT: [&str; 2] = ["docs", "*.md"];

/// The current source tree, including uncommitted changes, without documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tree {
    /// The id of its content, computed by git: equal for equal content.
    pub(crate) id: String,
    /// The checked-out commit.
    pub(crate) commit: String,
    /// `true` if the content differs from the commit.
    pub(crate) changed: bool,
}

impl Tree {
    /// The tree of a checkout. Nothing is written into the checkout or its repository.
    ///
    /// # Errors
    /// The directory is not a git checkout, or git is missing.
    pub(crate) fn of(root: &Path) -> Result<Self> {
        let plain = |words: &[&str]| git(root, &[], words);
        let commit = plain(&["rev-parse", "HEAD"])?;
        let objects = plain(&[
            "rev-parse",
            "--path-format=absolute",
            "--git-path",
            "objects",
        ])?;
        // A separate index and a separate store of objects.
        let work = tempfile::tempdir().context("cannot make a directory for the id of the tree")?;
        let (index, store) = (work.path().join("index"), work.path().join("objects"));
        std::fs::create_dir(&store)?;
        let own: [(&str, &OsStr); 3] = [
            ("GIT_INDEX_FILE", index.as_os_str()),
            ("GIT_OBJECT_DIRECTORY", store.as_os_str()),
            ("GIT_ALTERNATE_OBJECT_DIRECTORIES", objects.as_ref()),
        ];
        let written = || -> Result<String> {
            let remove = ["rm", "-r", "--cached", "--force", "--quiet"];
            let words = [&remove[..], &["--ignore-unmatch", "--"], &LEFT_OUT].concat();
            git(root, &own, &words)?;
            git(root, &own, &["write-tree"])
        };
        git(root, &own, &["read-tree", "HEAD"])?;
        let committed = written()?;
        git(root, &own, &["read-tree", "HEAD"])?;
        git(root, &own, &["add", "--all"])?;
        let id = written()?;
        ensure!(
            !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "git printed no id of a tree: {id}"
        );
        Ok(Self {
            changed: id != committed,
            id,
            commit,
        })
    }

    /// The commit in a table: `1a7abf73`, with a plus if the content differs.
    pub(crate) fn displayed(commit: &str, changed: bool) -> String {
        let short = commit.get(..8).unwrap_or(commit);
        format!("{short}{}", if changed { "+" } else { "" })
    }
}

/// The commits from this one to the present one, both included.
///
/// # Errors
/// The commit does not precede the present one.
pub(super) fn commits_since(root: &Path, commit: &str) -> Result<BTreeSet<String>> {
    let first = git(
        root,
        &[],
        &["rev-parse", "--verify", &format!("{commit}^{{commit}}")],
    )?;
    git(root, &[], &["merge-base", "--is-ancestor", &first, "HEAD"])
        .with_context(|| format!("{commit} does not precede the present commit"))?;
    let later = git(root, &[], &["rev-list", &format!("{first}..HEAD")])?;
    let later = later.lines().map(str::to_owned);
    Ok(later.chain([first]).collect())
}

/// The files that differ from those of a commit, without documents.
///
/// # Errors
/// The commit does not exist.
pub(super) fn changed_since(root: &Path, commit: &str) -> Result<Vec<String>> {
    let files = git(
        root,
        &[],
        &["diff", "--name-only", commit, "--", ".", ":!docs", ":!*.md"],
    )?;
    Ok(files.lines().map(str::to_owned).collect())
}

fn git(root: &Path, environment: &[(&str, &OsStr)], words: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .args(words)
        .current_dir(root)
        .envs(environment.iter().copied())
        .stdin(Stdio::null())
        .output()
        .context("cannot start git, which names the tree of the results; install it")?;
    if !output.status.success() {
        bail!(
            "cannot name the tree of {}: git {} ended with {}: {}",
            root.display(),
            words.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn repository() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let run = |words: &[&str]| git(dir.path(), &[], words).unwrap();
        run(&["init", "--quiet"]);
        fs::write(dir.path().join(".gitignore"), "/target\n").unwrap();
        fs::write(dir.path().join("a"), "one").unwrap();
        run(&["add", "--all"]);
        run(&[
            "-c",
            "user.name=a",
            "-c",
            "user.email=a@example.com",
            "commit",
            "--quiet",
            "--message=one",
        ]);
        dir
    }

    #[test]
    fn equal_content_has_one_id_and_each_change_another() {
        let dir = repository();
        let of = || Tree::of(dir.path()).unwrap();
        let clean = of();
        assert!(!clean.changed);
        assert_eq!(of(), clean);
        fs::create_dir(dir.path().join("target")).unwrap();
        fs::write(dir.path().join("target/ignored"), "x").unwrap();
        assert_eq!(of(), clean);
        // A change, and a file that git does not know yet.
        fs::write(dir.path().join("a"), "two").unwrap();
        let changed = of();
        assert!(changed.changed && changed.commit == clean.commit && changed.id != clean.id);
        fs::write(dir.path().join("b"), "new").unwrap();
        assert!(of().id != changed.id);
        fs::remove_file(dir.path().join("b")).unwrap();
        let same = of();
        for document in ["docs/guide/page", "a/README.md", "CONTRIBUTING.md"] {
            let path = dir.path().join("sub").join(document);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "text").unwrap();
        }
        fs::rename(dir.path().join("sub/docs"), dir.path().join("docs")).unwrap();
        assert_eq!(of(), same);
        fs::write(dir.path().join("a"), "one").unwrap();
        assert_eq!(of(), clean);
        // The checkout is unchanged.
        fs::remove_dir_all(dir.path().join("docs")).unwrap();
        fs::remove_dir_all(dir.path().join("sub")).unwrap();
        let status = git(dir.path(), &[], &["status", "--porcelain"]).unwrap();
        assert_eq!(status, "");
    }

    #[test]
    fn commits_and_changed_files_are_counted_from_a_commit() {
        let dir = repository();
        let run = |words: &[&str]| git(dir.path(), &[], words).unwrap();
        let first = run(&["rev-parse", "HEAD"]);
        fs::write(dir.path().join("b"), "new").unwrap();
        fs::write(dir.path().join("page.md"), "text").unwrap();
        run(&["add", "--all"]);
        let author = ["-c", "user.name=a", "-c", "user.email=a@example.com"];
        let commit = ["commit", "--quiet", "--message=two"];
        run(&[&author[..], &commit[..]].concat());
        let second = run(&["rev-parse", "HEAD"]);
        let since = |commit: &str| commits_since(dir.path(), commit).unwrap();
        assert_eq!(since(&first), [first.clone(), second.clone()].into());
        assert_eq!(since("HEAD"), [second].into());
        assert_eq!(changed_since(dir.path(), &first).unwrap(), ["b"]);
        let error = format!("{:#}", commits_since(dir.path(), "absent").unwrap_err());
        assert!(error.contains("absent"), "{error}");
    }

    #[test]
    fn a_directory_without_a_repository_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let error = format!("{:#}", Tree::of(dir.path()).unwrap_err());
        assert!(error.contains("cannot name the tree"), "{error}");
    }

    #[test]
    fn a_commit_is_short_in_a_table() {
        assert_eq!(Tree::displayed("1a7abf73c0ffee", false), "1a7abf73");
        assert_eq!(Tree::displayed("1a7abf73c0ffee", true), "1a7abf73+");
    }
}
