//! The reading of all files of a tree's directories. What is not declared is removed, so a file
//! that cannot be read is an error and not an absent file.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::{fs, io};

use halite_document::Problem;

use super::{DEEPEST, DirTree, MAX_FILE, MemoryTree, Tree as _};

impl DirTree {
    /// The files of all directories as they are now, without the tree in memory. A directory that
    /// does not exist has none.
    ///
    /// # Errors
    /// Every file and directory that cannot be read, and every link to a directory or out of its
    /// root, by its path on disk. Ignored are pipes and sockets, which have no content, and hidden
    /// links to nothing, which editors use as locks.
    pub fn read_directories(&self) -> Result<MemoryTree, Vec<Problem>> {
        let mut reading = Reading::default();
        for (prefix, directory) in &self.roots {
            match directory.canonicalize() {
                Ok(root) => reading.directory(&root, directory, prefix, 0),
                Err(error) => reading.unreadable(directory, &error),
            }
        }
        let mut problems = reading.problems;
        problems.sort_by(|one, other| one.file.cmp(&other.file));
        if problems.is_empty() {
            Ok(reading.files)
        } else {
            Err(problems)
        }
    }
}

#[derive(Default)]
struct Reading {
    files: MemoryTree,
    problems: Vec<Problem>,
}

impl Reading {
    /// Reads the files below a directory; `root` is the real path of the tree's directory.
    fn directory(&mut self, root: &Path, directory: &Path, prefix: &str, depth: usize) {
        if depth > DEEPEST {
            let message = format!("cannot read it: more than {DEEPEST} nested directories");
            return self.problem(directory, &message, "move its files up");
        }
        let entries = fs::read_dir(directory).and_then(Iterator::collect::<io::Result<Vec<_>>>);
        let entries = match entries {
            Ok(entries) => entries,
            Err(error) => return self.unreadable(directory, &error),
        };
        for entry in entries {
            let (path, name) = (entry.path(), entry.file_name());
            let is_directory = match entry.file_type() {
                Ok(kind) => kind.is_dir(),
                Err(error) => {
                    self.unreadable(&path, &error);
                    continue;
                }
            };
            if is_directory && name == ".git" {
                continue;
            }
            match name.to_str().filter(|name| !name.contains('\\')) {
                None => self.problem(
                    &path,
                    "cannot read it: its name is not UTF-8, or has a backslash",
                    "rename it",
                ),
                Some(name) if is_directory => {
                    self.directory(root, &path, &format!("{prefix}{name}/"), depth + 1);
                }
                Some(name) => self.file(root, &path, &format!("{prefix}{name}")),
            }
        }
    }

    /// Reads one file. An earlier root has it already, if both have it.
    fn file(&mut self, root: &Path, path: &Path, name: &str) {
        if self.files.read(name).is_some() {
            return;
        }
        let found = path
            .canonicalize()
            .and_then(|real| Ok((real.metadata()?, real)));
        let (data, real) = match found {
            Ok(found) => found,
            Err(error) => return self.unreadable(path, &error),
        };
        if data.is_dir() {
            return self.problem(
                path,
                "cannot read it: a link to a directory is not followed",
                "put the directory itself here, or mount it here",
            );
        }
        if !real.starts_with(root) {
            let message = format!("cannot read it: the link leads out of {}", root.display());
            return self.problem(path, &message, "copy the file here");
        }
        if !data.is_file() {
            return;
        }
        if data.len() > MAX_FILE {
            let message = format!(
                "cannot read it: it has {} bytes, and a file may have {MAX_FILE}",
                data.len()
            );
            return self.problem(path, &message, "put it into the bundle, or elsewhere");
        }
        match fs::read(&real) {
            Ok(content) => {
                let mode = data.permissions().mode() & 0o7777;
                self.files.insert(name, content, Some(mode));
            }
            Err(error) => self.unreadable(path, &error),
        }
    }

    /// Reports a path that cannot be read, unless it does not exist, or did not exist for a moment.
    fn unreadable(&mut self, path: &Path, error: &io::Error) {
        if error.kind() == ErrorKind::NotFound {
            // An editor may have made it again since.
            let is_link = path.symlink_metadata().is_ok_and(|data| data.is_symlink());
            let is_hidden = path
                .file_name()
                .is_some_and(|name| name.as_encoded_bytes().starts_with(b"."));
            if is_link && !is_hidden {
                self.problem(
                    path,
                    "cannot read it: it is a link to nothing",
                    "restore its target, or remove the link",
                );
            }
            return;
        }
        let message = format!("cannot read it: {error}");
        self.problem(path, &message, "repair it, or remove it");
    }

    fn problem(&mut self, path: &Path, message: &str, hint: &str) {
        let problem = Problem::in_file(path.display().to_string(), message);
        self.problems.push(problem.hint(hint));
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::symlink;
    use std::path::PathBuf;

    use super::*;

    /// A directory `custom` with one file, next to a directory `elsewhere` with another.
    fn place() -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let own = directory.path().join("custom");
        let elsewhere = directory.path().join("elsewhere");
        for (folder, file) in [(&own, "a.yaml"), (&elsewhere, "b.yaml")] {
            fs::create_dir(folder).unwrap();
            fs::write(folder.join(file), "content").unwrap();
        }
        (directory, own)
    }

    fn read(own: &Path) -> Result<Vec<String>, String> {
        let read = DirTree::new().mount("custom", own).read_directories();
        read.map(|files| files.list()).map_err(|problems| {
            let problems = problems.iter().map(ToString::to_string);
            problems.collect::<Vec<_>>().join("\n")
        })
    }

    #[test]
    fn a_file_that_cannot_be_read_does_not_count_as_absent() {
        type Make = fn(&Path);
        let cases: [(&str, &str, Make); 6] = [
            ("manifests", "a link to a directory is not followed", |at| {
                symlink("../elsewhere", at).unwrap();
            }),
            ("b.yaml", "the link leads out of", |at| {
                symlink("../elsewhere/b.yaml", at).unwrap();
            }),
            ("c.yaml", "a link to nothing", |at| {
                symlink("../nowhere", at).unwrap();
            }),
            ("d.yaml", "a file may have", |at| {
                let file = fs::File::create(at).unwrap();
                file.set_len(MAX_FILE + 1).unwrap();
            }),
            ("e\\f.yaml", "has a backslash", |at| {
                fs::write(at, "").unwrap();
            }),
            ("deep", "more than 32 nested directories", |at| {
                fs::create_dir_all(at.join("d/".repeat(DEEPEST))).unwrap();
            }),
        ];
        let (_directory, own) = place();
        for (name, _, make) in cases {
            make(&own.join(name));
        }
        fs::write(own.join(OsStr::from_bytes(b"\xff.yaml")), "").unwrap();
        let told = read(&own).unwrap_err();
        for (name, why, _) in cases {
            let line = told.lines().find(|line| line.contains(why));
            let line = line.unwrap_or_else(|| panic!("{why}: {told}"));
            assert!(
                line.contains(&own.join(name).display().to_string()),
                "{line}"
            );
        }
        // The last one has a name that is not UTF-8.
        let problems = told.lines().filter(|line| line.contains("cannot read it"));
        assert_eq!(problems.count(), cases.len() + 1, "{told}");
    }

    #[test]
    fn links_within_a_root_are_followed_and_what_has_no_content_is_ignored() {
        let (_directory, own) = place();
        assert_eq!(read(&own.join("missing")).unwrap(), [""; 0]);
        symlink("a.yaml", own.join("b.yaml")).unwrap();
        symlink("someone@host.1:2", own.join(".#a.yaml")).unwrap();
        fs::create_dir(own.join(".git")).unwrap();
        symlink("/nowhere", own.join(".git/link")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(own.join("socket")).unwrap();
        let both = ["custom/a.yaml", "custom/b.yaml"];
        assert_eq!(read(&own).unwrap(), both);
    }

    #[test]
    fn a_directory_is_missing_only_if_nothing_has_its_name() {
        let (directory, own) = place();
        let link = directory.path().join("link");
        symlink(&own, &link).unwrap();
        assert_eq!(read(&link).unwrap(), ["custom/a.yaml"]);
        fs::remove_dir_all(&own).unwrap();
        assert!(read(&link).unwrap_err().contains("a link to nothing"));
        fs::write(&own, "").unwrap();
        assert!(read(&own).unwrap_err().contains("cannot read it"));
    }
}
