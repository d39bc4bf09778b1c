//! Another user swaps a file or a directory for a link between plan and effect: nothing outside is
//! changed. Needs root, because the minion runs as root.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink as link};
use std::path::PathBuf;

use halite_errors::chain;
use rustix::process::geteuid;

use super::*;

/// The user who swaps.
const USER: u32 = 65534;

/// A directory of a service's user, and next to it a file and a directory of root.
struct Scene(tempfile::TempDir);

impl Scene {
    /// `None` without root: only root can make a link for another user.
    fn new() -> Option<Self> {
        if !geteuid().is_root() {
            return None;
        }
        let scene = Self(tempfile::tempdir().unwrap());
        fs::create_dir(scene.path("data")).unwrap();
        chown(scene.path("data"), Some(USER), None).unwrap();
        fs::create_dir(scene.path("root")).unwrap();
        fs::write(scene.path("root/shadow"), "secret").unwrap();
        fs::set_permissions(scene.path("root/shadow"), fs::Permissions::from_mode(0o600)).unwrap();
        for (name, to) in [("file", "../root/shadow"), ("dir", "../root")] {
            link(to, scene.path("data").join(name)).unwrap();
            lchown(scene.path("data").join(name), Some(USER), None).unwrap();
        }
        Some(scene)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn unchanged(&self) {
        let stat = fs::metadata(self.path("root/shadow")).unwrap();
        assert_eq!((stat.uid(), stat.mode() & 0o7777), (0, 0o600));
        assert_eq!(fs::read(self.path("root/shadow")).unwrap(), b"secret");
        assert_eq!(fs::metadata(self.path("root")).unwrap().uid(), 0);
        assert_eq!(list(&self.path("root")).unwrap(), ["shadow"]);
    }
}

const THEIRS: Owner = Owner {
    uid: Some(USER),
    gid: Some(USER),
    mode: Some(0o666),
};

fn refused_for_the_link(result: HostResult<()>) {
    let error = chain(&result.unwrap_err());
    assert!(error.contains("belongs to the user 65534"), "{error}");
}

#[test]
fn owner_and_mode_are_not_set_through_a_link_of_another_user() {
    let Some(scene) = Scene::new() else { return };
    for path in ["data/file", "data/dir", "data/dir/shadow"] {
        refused_for_the_link(set_owner(&scene.path(path), THEIRS));
    }
    refused_for_the_link(mkdir(&scene.path("data/dir"), THEIRS));
    scene.unchanged();
}

#[test]
fn nothing_is_written_or_removed_through_a_link_of_another_user() {
    let Some(scene) = Scene::new() else { return };
    for path in ["data/file", "data/dir/shadow", "data/dir/new"] {
        refused_for_the_link(write(&scene.path(path), b"x", THEIRS));
    }
    refused_for_the_link(mkdir(&scene.path("data/dir/new"), THEIRS));
    refused_for_the_link(symlink(&scene.path("data/dir/new"), "/"));
    refused_for_the_link(remove(&scene.path("data/dir/shadow")));
    scene.unchanged();
    // The link itself may be removed and replaced.
    remove(&scene.path("data/file")).unwrap();
    symlink(&scene.path("data/dir"), "elsewhere").unwrap();
    scene.unchanged();
}

#[test]
fn links_of_root_are_followed_as_before() {
    let Some(scene) = Scene::new() else { return };
    link("root", scene.path("by-root")).unwrap();
    set_owner(&scene.path("by-root/shadow"), THEIRS).unwrap();
    let stat = fs::metadata(scene.path("root/shadow")).unwrap();
    assert_eq!(
        (stat.uid(), stat.gid(), stat.mode() & 0o7777),
        (USER, USER, 0o666)
    );
    mkdir(&scene.path("by-root/new"), Owner::default()).unwrap();
    assert_eq!(list(&scene.path("root")).unwrap(), ["new", "shadow"]);
}
