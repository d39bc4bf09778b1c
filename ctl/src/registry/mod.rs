//! Backups of the registry with the site's own images.
//!
//! The registry is CNCF's `distribution` with its filesystem driver: below `docker/registry/v2`
//! there are `blobs`, each under its digest, and `repositories`, whose files `link` name blobs. It
//! writes a blob before the link that names it, so links that are read first name blobs that are
//! there. A backup has the same layout. Its blobs are further names of those that an earlier backup
//! has, never of the registry's own.

mod backup;
mod backups;
mod digest;
mod facts;
mod folder;
mod images;
mod making;
mod pass;
mod report;
mod restore;
mod tree;
mod verify;

use std::fs::File;
use std::path::{Component, Path, PathBuf};

use halite_durable::Error;

use self::digest::Digest;
use self::folder::{Folder, Found};

pub use self::backup::make;
pub use self::backups::{Backup, Backups};
pub use self::facts::{Damage, Mended};
pub use self::report::Reporter;
pub use self::restore::restore;
pub use self::verify::verify;
pub use halite_pillar::registry::DATA;

/// Where everything is, in the data directory and in a backup.
const ROOT: &str = "docker/registry/v2";
/// In that, the links.
const REPOSITORIES: &str = "repositories";
/// In that, what they name.
const BLOBS: &str = "blobs";
/// The file of each blob, in a directory of its own.
const CONTENT: &str = "data";

/// The file of a blob.
fn blob(v2: &Folder, digest: &Digest) -> Found<File> {
    match v2.below(&digest.folder()) {
        Found::Here(folder) => folder.plain(CONTENT),
        Found::Gone => Found::Gone,
        Found::Strange(why) => Found::Strange(why),
    }
}

/// The data directory as it really is, after a look that it and `other` are not within one another.
fn apart(data: &Path, other: &Path) -> Result<PathBuf, Error> {
    let data = real(data)?;
    let other = real(other)?;
    if data.starts_with(&other) || other.starts_with(&data) {
        let message = format!(
            "it and the registry's data directory {} are within one another: keep backups elsewhere, best on \
             another disk",
            data.display()
        );
        return Err(Error::content(other, message));
    }
    Ok(data)
}

/// A path without links; its last parts need not be there yet.
fn real(path: &Path) -> Result<PathBuf, Error> {
    let whole = std::path::absolute(path).map_err(Error::file("find", path))?;
    let mut there = whole.as_path();
    loop {
        match (there.canonicalize(), there.parent()) {
            (Ok(found), _) => {
                let rest = whole.strip_prefix(there).unwrap_or(Path::new(""));
                let plain = rest
                    .components()
                    .all(|part| matches!(part, Component::Normal(_)));
                return match plain {
                    true => Ok(found.components().chain(rest.components()).collect()),
                    false => Err(Error::content(path, "its parts before `..` are not there")),
                };
            }
            (Err(error), Some(above)) if error.kind() == std::io::ErrorKind::NotFound => {
                there = above
            }
            (Err(error), _) => return Err(Error::file("find", path)(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn data_and_backups_are_apart() {
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
            let text = apart(&at(data), &at(other)).unwrap_err().to_string();
            assert!(text.contains("within one another"), "{text}");
        }
        assert!(apart(&at("data"), &at("new/../data")).is_err());
        assert_eq!(
            apart(&at("link"), &at("data-2")).unwrap(),
            fs::canonicalize(dir.path()).unwrap().join("data")
        );
    }
}
