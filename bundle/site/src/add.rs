//! Adding a bundle to a site.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Component, Path, PathBuf};

use halite_durable::disk_space::{Need, Room};
use halite_durable::files;
use halite_errors::chain;
use halite_manifest::{InstalledBundle, Manifest, manifest};
use halite_names::BundleVersion;

use crate::delta::Delta;
use crate::error::Error;
use crate::store::BundleStore;
use crate::verified::VerifiedImage;
use crate::{delta_apply, verify};

/// The result of adding a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// The bundle is new.
    New,
    /// The bundle already existed; nothing was done.
    There,
    /// The same bundle existed as a link, or was damaged; it was replaced.
    Replaced,
}

/// Directories that are hidden from the services which read bundles (their units have
/// `ProtectHome=` and `PrivateTmp=`), or whose content does not last.
const HIDDEN: [&str; 6] = ["/home", "/root", "/run/user", "/tmp", "/var/tmp", "/dev"];

impl BundleStore {
    /// Adds the bundle of an image that was already [checked](halite_seal::check()). A whole bundle
    /// is extracted; a delta is combined with its installed old bundle into a whole one. If the
    /// same bundle exists as a link, or is damaged, it is replaced atomically. `sha256` is the
    /// digest of the manifest from the checked statement: each file is compared again while it is
    /// extracted, and a file that differs is not added.
    ///
    /// # Errors
    /// The image has changed since the check, another bundle of the same version exists, a delta's
    /// old bundle is missing, the disk is full, another process is changing the bundles, or a
    /// system call fails. Then nothing has changed.
    pub fn add_image(
        &self,
        iso: &Path,
        sha256: &str,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Added, Error> {
        let sound = VerifiedImage::open(iso, sha256)?;
        let place = self.path(&sound.manifest().version);
        let _lock = self.lock()?;
        self.clear()?;
        let added = self.compare(&sound, progress)?;
        let to = match added {
            Added::There => return Ok(added),
            Added::Replaced => files::sibling(&place, "whole"),
            Added::New => place.clone(),
        };
        match sound.delta() {
            Some(delta) => {
                delta_apply::combine(&sound, delta, &self.old(iso, delta)?, &to, progress)?
            }
            None => {
                self.check_room(&sound)?;
                sound.extract(&to, progress)?;
            }
        }
        if added == Added::Replaced {
            files::put_in_place(&to, &place)?;
            self.forget(&sound.manifest().version)?;
        }
        Ok(added)
    }

    /// Returns what [`Self::add_image`] would do, and changes nothing. The room that the result of
    /// a delta needs is not compared. Leftovers of an interrupted change, which `add_image` removes
    /// first, count as used space.
    ///
    /// # Errors
    /// As there.
    pub fn preview_image(
        &self,
        iso: &Path,
        sha256: &str,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Added, Error> {
        let sound = VerifiedImage::open(iso, sha256)?;
        let added = self.compare(&sound, progress)?;
        match sound.delta() {
            _ if added == Added::There => {}
            Some(delta) => {
                let old = self.old(iso, delta)?;
                delta_apply::check(&sound, delta, &old, self.root())?;
            }
            None => self.check_room(&sound)?,
        }
        Ok(added)
    }

    /// Compares an image with the bundle of its version on this site.
    fn compare(
        &self,
        sound: &VerifiedImage,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Added, Error> {
        let version = &sound.manifest().version;
        let place = self.path(version);
        if fs::symlink_metadata(&place).is_err() {
            return Ok(Added::New);
        }
        self.refuse_other(version, Manifest::checksum(&sound.bytes).as_bytes())?;
        if !place.is_symlink() && verify(&place, progress)?.is_sound() {
            return Ok(Added::There);
        }
        Ok(Added::Replaced)
    }

    /// Refuses a whole bundle that does not fit on the disk.
    fn check_room(&self, sound: &VerifiedImage) -> Result<(), Error> {
        let need = Need::for_sizes(sound.image.entries().iter().map(|entry| entry.size));
        Ok(Room::at(self.root())?.holds(need, self.root())?)
    }

    /// The bundle that a delta is for.
    fn old(&self, iso: &Path, delta: &Delta) -> Result<InstalledBundle, Error> {
        self.get(&delta.old.version).map_err(|error| {
            let why = format!(
                "this is a delta from {} to {} and needs the bundle {0} (built {3}) on this site: {2}; add that one \
                 first, or bring the whole bundle {1}",
                delta.old.version,
                delta.new.version,
                chain(&error),
                delta.old.built
            );
            Error::content(iso, why)
        })
    }

    /// Adds the bundle in a directory as a link, without copying it. The signature of its manifest
    /// with this SHA-256 was already [verified](crate::signed_manifest::verified()). Existence and
    /// size of its files are checked, but not their contents. The digest is recorded: if the
    /// directory later has another manifest, the bundle is refused. [`visible`] checks whether the
    /// services can see the directory.
    ///
    /// # Errors
    /// Another bundle of the same version exists, files of the manifest are missing or have another
    /// size, another process is changing the bundles, or a system call fails.
    pub fn add_directory(&self, dir: &Path, sha256: &str) -> Result<Added, Error> {
        let dir = dir.canonicalize().map_err(Error::file("read", dir))?;
        let manifest = manifest::load_same(&dir, sha256)?;
        let place = self.path(&manifest.version);
        if !place.is_symlink() && place.canonicalize().is_ok_and(|there| there == dir) {
            return Ok(Added::There);
        }
        check_sizes(&dir, &manifest)?;
        let _lock = self.lock()?;
        self.clear()?;
        self.refuse_other_than(&dir, &manifest.version)?;
        let same = manifest::load_same(&place, sha256).is_ok();
        // An installed copy is better than a link.
        if same && !place.is_symlink() {
            return Ok(Added::There);
        }
        // The record is written before the link, so that no reader uses the link without its
        // record.
        let record = self.record(&manifest.version);
        files::replace(&record, 0o644, manifest::checksum_of(sha256).as_bytes())?;
        // The existing link leads to the same bundle and is kept.
        if same {
            return Ok(Added::There);
        }
        let beside = files::sibling(&place, "link");
        symlink(&dir, &beside).map_err(Error::file("make", &beside))?;
        let added = if fs::symlink_metadata(&place).is_ok() {
            Added::Replaced
        } else {
            Added::New
        };
        files::put_in_place(&beside, &place)?;
        Ok(added)
    }

    /// Returns what [`Self::add_directory`] would do, and changes nothing.
    ///
    /// # Errors
    /// As there.
    pub fn preview_directory(&self, dir: &Path, sha256: &str) -> Result<Added, Error> {
        let dir = dir.canonicalize().map_err(Error::file("read", dir))?;
        let manifest = manifest::load_same(&dir, sha256)?;
        let place = self.path(&manifest.version);
        check_sizes(&dir, &manifest)?;
        self.refuse_other_than(&dir, &manifest.version)?;
        if fs::symlink_metadata(&place).is_err() {
            return Ok(Added::New);
        }
        Ok(match manifest::load_same(&place, sha256) {
            Ok(_) => Added::There,
            Err(_) => Added::Replaced,
        })
    }

    /// Refuses the bundle in a directory if another one of its version exists.
    fn refuse_other_than(&self, dir: &Path, version: &BundleVersion) -> Result<(), Error> {
        if fs::symlink_metadata(self.path(version)).is_err() {
            return Ok(());
        }
        let checksum = dir.join(manifest::CHECKSUM);
        let checksum = fs::read(&checksum).map_err(Error::file("read", &checksum))?;
        self.refuse_other(version, &checksum)
    }

    /// Refuses a bundle if another one of its version exists. If the target of a link is missing or
    /// damaged, the link's record identifies the bundle. A damaged directory on the site has no
    /// such record, and may be replaced.
    ///
    /// # Errors
    /// Another bundle of that version exists, or the text is not a valid version.
    pub fn refuse_other(&self, version: &BundleVersion, checksum: &[u8]) -> Result<(), Error> {
        let place = self.path(version);
        let there = match fs::read(place.join(manifest::CHECKSUM)) {
            Ok(there) if manifest::load(&place).is_ok() => Some(there),
            _ if place.is_symlink() => self
                .recorded(version)
                .map(|sha256| manifest::checksum_of(&sha256).into_bytes()),
            _ => None,
        };
        if there.is_none_or(|there| there == checksum) {
            return Ok(());
        }
        let away = fs::read_link(&place).ok().filter(|to| !to.exists());
        let away =
            away.map(|to| format!(" (a link to {}, which does not exist now)", to.display()));
        let message = format!(
            "another bundle of the same version exists{}: give the new one its own version in its recipe, or \
             remove the existing one first (`ctl bundle remove`)",
            away.unwrap_or_default()
        );
        Err(Error::content(place, message))
    }
}

/// Refuses the bundle in a directory if files are missing or have another size.
fn check_sizes(dir: &Path, manifest: &Manifest) -> Result<(), Error> {
    let wrong = verify::sizes(dir, manifest)?;
    if wrong.is_empty() {
        return Ok(());
    }
    let message = format!("it is incomplete:\n  {}", wrong.join("\n  "));
    Err(Error::content(dir, message))
}

/// The directory of a bundle with the web server's maps, which resolve image names.
const INCLUDED: &str = "nginx";

/// Checks that nginx and the master can read a directory, whose path must have no links, and that
/// only root can change the files that hosts receive.
///
/// # Errors
/// The obstacle, and suitable places for a bundle.
pub fn visible(dir: &Path) -> Result<(), Error> {
    let refused = |why: String| {
        let message = format!(
            "{why}: mount or extract the bundle elsewhere, for example below /srv or /media, or add its ISO"
        );
        Err(Error::content(dir, message))
    };
    if let Some(hidden) = HIDDEN.iter().find(|hidden| dir.starts_with(hidden)) {
        return refused(format!(
            "the services that read a bundle cannot see files below {hidden}"
        ));
    }
    let mut path = PathBuf::new();
    for part in dir.components() {
        path.push(part);
        if part == Component::RootDir {
            continue;
        }
        let mode = fs::metadata(&path)
            .map_err(Error::file("read", &path))?
            .mode();
        if mode & 0o001 == 0 {
            return refused(format!(
                "{} is closed to other users, including nginx",
                path.display()
            ));
        }
        of_root(&path, dir)?;
    }
    let included = dir.join(INCLUDED);
    if !included.is_dir() {
        return Ok(());
    }
    of_root(&included, dir)?;
    for entry in fs::read_dir(&included).map_err(Error::file("list", &included))? {
        let entry = entry.map_err(Error::file("list", &included))?;
        of_root(&entry.path(), dir)?;
    }
    Ok(())
}

/// Refuses a path that a user other than root could change after the check.
fn of_root(path: &Path, dir: &Path) -> Result<(), Error> {
    let there = fs::symlink_metadata(path).map_err(Error::file("read", path))?;
    let why = if there.is_symlink() {
        "is a link".to_owned()
    } else if there.uid() != 0 {
        format!("belongs to the user {}", there.uid())
    } else if there.mode() & 0o022 != 0 {
        "can be changed by users other than root".to_owned()
    } else {
        return Ok(());
    };
    let message = format!(
        "{} {why}: the files of this bundle could be changed after its signature was verified; make root their owner \
         (`chown -R root: {dir} && chmod -R go-w {dir}`, and the directories above it), or add its ISO",
        path.display(),
        dir = dir.display()
    );
    Err(Error::content(dir, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_services_do_not_see_is_refused() {
        let text = visible(Path::new("/root/bundle")).unwrap_err().to_string();
        assert!(
            text.contains("below /root") && text.contains("/srv"),
            "{text}"
        );
        visible(Path::new("/usr/lib")).unwrap();
    }

    #[test]
    fn what_another_user_could_change_is_refused() {
        use std::os::unix::fs::{PermissionsExt as _, chown};
        if !rustix::process::geteuid().is_root() {
            return;
        }
        // Not below /tmp, which is hidden from services.
        let parent = tempfile::tempdir_in("/var/lib").unwrap();
        let dir = parent.path().join("bundle");
        let included = dir.join("nginx");
        let file = included.join("registry.conf");
        fs::create_dir_all(&included).unwrap();
        fs::write(&file, "").unwrap();
        let mode = |path: &Path, mode: u32| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        for path in [parent.path(), &dir, &included] {
            mode(path, 0o755);
        }
        mode(&file, 0o644);
        visible(&dir).unwrap();
        for path in [parent.path(), &dir, &included, &file] {
            chown(path, Some(65534), None).unwrap();
            let error = visible(&dir).unwrap_err().to_string();
            assert!(
                error.contains(&format!("{} belongs to the user 65534", path.display())),
                "{error}"
            );
            chown(path, Some(0), None).unwrap();
            let before = fs::metadata(path).unwrap().permissions();
            mode(path, before.mode() | 0o020);
            let error = visible(&dir).unwrap_err().to_string();
            assert!(
                error.contains("can be changed by users other than root"),
                "{error}"
            );
            fs::set_permissions(path, before).unwrap();
        }
        fs::rename(&file, dir.join("elsewhere")).unwrap();
        symlink("../elsewhere", &file).unwrap();
        let error = visible(&dir).unwrap_err().to_string();
        assert!(error.contains("registry.conf is a link"), "{error}");
    }
}
