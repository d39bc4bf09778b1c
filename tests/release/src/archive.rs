//! Archives whose bytes depend only on the content: sorted, with one time and no owner.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use halite_durable::files;
use tar::{Builder, Header};

/// The files of an archive, by their path in it.
#[derive(Debug, Default)]
pub(crate) struct Tree(BTreeMap<String, PathBuf>);

impl Tree {
    /// Adds a file.
    pub(crate) fn file(&mut self, path: &str, from: &Path) {
        self.0.insert(path.to_owned(), from.to_owned());
    }

    /// Adds every file of a folder, below a path.
    ///
    /// # Errors
    /// The folder cannot be listed.
    pub(crate) fn folder(&mut self, path: &str, from: &Path) -> Result<()> {
        for name in files::walk(from)? {
            self.file(&format!("{path}/{name}"), &from.join(&name));
        }
        Ok(())
    }

    /// Writes the files as NAME.tar.gz into a directory, all below the directory NAME and with the
    /// time `seconds` (since 1970).
    ///
    /// # Errors
    /// A file cannot be read or written.
    pub(crate) fn write(&self, name: &str, seconds: u64, out: &Path) -> Result<()> {
        let path = out.join(format!("{name}.tar.gz"));
        self.pack(name, seconds, &path)
            .with_context(|| format!("cannot write {}", path.display()))
    }

    fn pack(&self, name: &str, seconds: u64, path: &Path) -> Result<()> {
        // Without a time or a name of its own.
        let packer = GzBuilder::new().write(fs::File::create(path)?, Compression::best());
        let mut archive = Builder::new(packer);
        for (below, from) in &self.0 {
            let cannot = || format!("cannot read {}", from.display());
            let file = fs::File::open(from).with_context(cannot)?;
            let status = file.metadata().with_context(cannot)?;
            let mut header = Header::new_gnu();
            header.set_size(status.len());
            let is_program = status.permissions().mode() & 0o100 != 0;
            header.set_mode(if is_program { 0o755 } else { 0o644 });
            header.set_mtime(seconds);
            header.set_uid(0);
            header.set_gid(0);
            archive.append_data(&mut header, format!("{name}/{below}"), file)?;
        }
        let mut file = archive.into_inner()?.finish()?;
        file.flush()?;
        file.sync_all().map_err(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_same_files_make_the_same_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let long = format!("docs/{}/page.html", "long".repeat(40));
        let mut made = Vec::new();
        for round in ["one", "two"] {
            // Written in another order, at another time, with another umask.
            let from = dir.path().join(round);
            let mut names = vec!["b", "a", long.as_str()];
            let mode = if round == "one" { 0o644 } else { 0o600 };
            if round == "two" {
                names.reverse();
            }
            for name in names {
                files::write(&from.join(name), mode, name.as_bytes()).unwrap();
            }
            files::write(&from.join("bin/ctl"), 0o755, b"program").unwrap();
            let mut tree = Tree::default();
            tree.folder("content", &from).unwrap();
            let out = dir.path().join(format!("out-{round}"));
            fs::create_dir(&out).unwrap();
            tree.write("halite-1", 1_700_000_000, &out).unwrap();
            made.push(fs::read(out.join("halite-1.tar.gz")).unwrap());
        }
        assert_eq!(made[0], made[1]);
        let list = Command::new("tar")
            .env("TZ", "UTC")
            .args(["--list", "--verbose", "--numeric-owner", "--file"])
            .arg(dir.path().join("out-one/halite-1.tar.gz"))
            .output()
            .unwrap();
        let list = String::from_utf8(list.stdout).unwrap();
        let lines: Vec<&str> = list.lines().collect();
        assert_eq!(lines.len(), 4, "{list}");
        assert!(lines[0].starts_with("-rw-r--r-- 0/0 "), "{list}");
        let program = lines[2];
        assert!(program.starts_with("-rwxr-xr-x 0/0 "), "{list}");
        let end = "2023-11-14 22:13 halite-1/content/bin/ctl";
        assert!(program.ends_with(end), "{list}");
        assert!(
            lines[3].ends_with(&format!("halite-1/content/{long}")),
            "{list}"
        );
    }
}
