//! The layout of a registry's data directory, which a backup shares.

use std::fs::File;
use std::path::{Component, Path, PathBuf};

use crate::digest::Digest;
use crate::error::Error;
use crate::folder::{Folder, Lookup};

/// The directory of the layout, in a data directory and in a backup.
pub const ROOT: &str = "docker/registry/v2";
/// The directory of the links, below [`ROOT`].
pub const REPOSITORIES: &str = "repositories";
/// The file with a blob's content, in the blob's own directory.
pub const CONTENT: &str = "data";

/// Opens the file of a blob. `v2` is the directory [`ROOT`].
pub fn open_blob(v2: &Folder, digest: &Digest) -> Lookup<File> {
    match v2.below(&digest.folder()) {
        Lookup::Found(folder) => folder.open_file(CONTENT),
        Lookup::Missing => Lookup::Missing,
        Lookup::Unexpected(why) => Lookup::Unexpected(why),
    }
}

/// Resolves the data directory, and checks that neither it nor `other` contains the other.
pub fn resolve_data(data: &Path, other: &Path) -> Result<PathBuf, Error> {
    let data = resolve(data)?;
    let other = resolve(other)?;
    if data.starts_with(&other) || other.starts_with(&data) {
        let message = format!(
            "it and the registry's data directory {} overlap; keep backups in another directory, best on \
             another disk",
            data.display()
        );
        return Err(Error::unusable(other, message));
    }
    Ok(data)
}

/// Resolves a path to one without symbolic links. Its last components need not exist.
fn resolve(path: &Path) -> Result<PathBuf, Error> {
    let whole = std::path::absolute(path).map_err(Error::file("resolve", path))?;
    let mut existing = whole.as_path();
    loop {
        match (existing.canonicalize(), existing.parent()) {
            (Ok(found), _) => {
                let rest = whole.strip_prefix(existing).unwrap_or(Path::new(""));
                let plain = rest
                    .components()
                    .all(|part| matches!(part, Component::Normal(_)));
                return match plain {
                    true => Ok(found.components().chain(rest.components()).collect()),
                    false => Err(Error::unusable(
                        path,
                        "the directories before its `..` do not exist",
                    )),
                };
            }
            (Err(error), Some(above)) if error.kind() == std::io::ErrorKind::NotFound => {
                existing = above
            }
            (Err(error), _) => return Err(Error::file("resolve", path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn data_and_backups_do_not_contain_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir_all(at("data/below")).unwrap();
        symlink(at("data"), at("link")).unwrap();
        for (data, other) in [
            ("data", "data"),
            ("data", "data/new/one"),
            ("data/below", "data"),
            ("data", "link/x"),
        ] {
            let text = resolve_data(&at(data), &at(other)).unwrap_err().to_string();
            assert!(text.contains("overlap"), "{text}");
        }
        assert!(resolve_data(&at("data"), &at("new/../data")).is_err());
        assert_eq!(
            resolve_data(&at("link"), &at("data-2")).unwrap(),
            fs::canonicalize(dir.path()).unwrap().join("data")
        );
    }
}
