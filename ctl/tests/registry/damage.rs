//! Damage in the registry and in backups.

use std::fs;
use std::os::unix::fs::{chown, symlink};

use rustix::process::geteuid;

use crate::world::{BACKUP, RESTORE, World, all_of, flip, image, largest, place, plain_image};

#[test]
fn a_damaged_registry_is_not_backed_up() {
    let world = World::new();
    let (web, tool) = (
        image("app/web", "1", &[90_000, 40], 1),
        plain_image("tool", "1", 50_000, 9),
    );
    world.push("app/web", &web);
    world.push("tool", &tool);
    let (changed, missing) = (largest(&web), largest(&tool));
    flip(&world.live(&place(&changed)));
    fs::remove_file(world.live(&place(&missing))).unwrap();
    let said = world.refused(&BACKUP);
    for (digest, repository, why) in [
        (&changed, "app/web", "its content has another digest"),
        (&missing, "tool", "it cannot be read: No such file"),
    ] {
        let wanted = format!("{digest} (in {repository}): {why}");
        assert!(
            said.has(&[wanted.as_str(), "no backup was made"]),
            "{}",
            said.text
        );
    }
    assert_eq!(world.backups(), [""; 0]);
    assert!(!world.is_partial());
    // The remedy that the message names.
    fs::remove_file(world.live(&place(&changed))).unwrap();
    world.push("app/web", &web);
    world.push("tool", &tool);
    world.backup();
    world.done(&["verify", "backups"]);
}

#[test]
fn the_previous_backup_repairs_the_registry() {
    let world = World::new();
    let web = image("app/web", "1", &[90_000, 40_000, 7], 1);
    world.push("app/web", &web);
    let first = world.backup();
    let mut sizes: Vec<_> = web
        .blobs
        .iter()
        .map(|(digest, bytes)| (bytes.len(), digest))
        .collect();
    sizes.sort();
    let [(_, missing), .., (_, cut), (_, changed)] = sizes.as_slice() else {
        panic!("{sizes:?}")
    };
    flip(&world.live(&place(changed)));
    fs::write(world.live(&place(cut)), "short").unwrap();
    fs::remove_dir_all(world.live(&place(missing)).parent().unwrap()).unwrap();
    let late = plain_image("late", "1", 50, 9);
    world.push("late", &late);
    // The next backup has all blobs, including those pushed since.
    let second = world.backup();
    assert!(second.number("size") > first.number("size"));
    world.done(&["verify", "backups"]);
    let repaired = [missing, cut, changed].map(|digest| web.blobs[*digest].len());
    let copied = world.done(&RESTORE).number("addedSize");
    assert_eq!(copied, repaired.iter().sum::<usize>() as u64);
    world.serves("app/web", &web);
    world.serves("late", &late);
}

#[test]
fn a_damaged_backup_is_found_and_not_restored() {
    let world = World::new();
    let web = image("app/web", "1", &[90_000, 40_000], 1);
    world.push("app/web", &web);
    let (first, second) = (world.backup().name(), world.backup().name());
    let blob = largest(&web);
    flip(&world.kept(&second, &place(&blob)));
    let damage =
        format!("{second}: it is damaged: {blob} (in app/web): its content has another digest");
    let said = world.refused(&["verify", "backups"]);
    assert!(
        said.has(&[damage.as_str(), "remove the file of each damaged blob"]),
        "{}",
        said.text
    );
    // The registry has the blob intact.
    world.done(&RESTORE);
    world.serves("app/web", &web);
    fs::remove_dir_all(world.path("storage/docker")).unwrap();
    let said = world.refused(&RESTORE);
    assert!(
        said.has(&[damage.as_str(), "nothing was changed"]),
        "{}",
        said.text
    );
    assert!(!world.live("").exists());
    // The remedy that `ctl registry verify` prints.
    world.push("app/web", &web);
    for backup in [first, second] {
        fs::remove_file(world.kept(&backup, &place(&blob))).unwrap();
    }
    assert_eq!(world.backup().number("addedSize"), 90_000);
    world.done(&["verify", "backups"]);
}

#[test]
fn a_backup_with_other_links_is_refused() {
    let world = World::new();
    world.push("app", &plain_image("app", "1", 90, 1));
    let name = world.backup().name();
    let link = world.kept(&name, "repositories/app/_manifests/tags/1/current/link");
    let text = fs::read_to_string(&link).unwrap();
    let zero = format!("sha256:{}", "0".repeat(64));
    for (content, why) in [
        (Some(&zero[..]), "its links have changed"),
        (Some("sha256:"), "current/link"),
        (None, "its links have changed"),
    ] {
        match content {
            Some(content) => fs::write(&link, content).unwrap(),
            None => fs::remove_file(&link).unwrap(),
        }
        let before = all_of(&world.path("storage"));
        for args in [&RESTORE[..], &["verify", "backups"]] {
            let said = world.refused(args);
            assert!(said.has(&[why]), "{why}: {}", said.text);
        }
        assert!(before == all_of(&world.path("storage")));
    }
    fs::write(&link, text).unwrap();
    world.done(&RESTORE);
    let metadata = world.path("backups").join(&name).join("backup.json");
    fs::write(&metadata, "{").unwrap();
    world.refused(&RESTORE);
    let listed = world.done(&["list", "backups"]).answer;
    assert!(listed["backups"][0]["problem"].is_string(), "{listed}");
    fs::remove_file(&metadata).unwrap();
    let said = world.refused(&RESTORE);
    assert!(
        said.has(&["there is no backup of a registry here"]),
        "{}",
        said.text
    );
}

#[test]
fn symbolic_links_are_not_followed() {
    let world = World::new();
    let web = plain_image("app", "1", 5000, 1);
    world.push("app", &web);
    world.backup();
    let blob = place(&largest(&web));
    // Links in the registry whose content would be intact.
    let elsewhere = world.path("elsewhere");
    let others = ["backup", "--data", "storage", "--out", "others"];
    for path in [blob.as_str(), "repositories/app/_layers"] {
        fs::rename(world.live(path), &elsewhere).unwrap();
        symlink(&elsewhere, world.live(path)).unwrap();
        let said = world.refused(&others);
        assert!(said.text.contains("symbolic link"), "{}", said.text);
        fs::remove_file(world.live(path)).unwrap();
        fs::rename(&elsewhere, world.live(path)).unwrap();
    }
    world.done(&others);
    // A restore as root writes nothing to a place that only root may write to.
    if geteuid().is_root() {
        let trap = world.path("trap");
        fs::create_dir(&trap).unwrap();
        chown(world.path("storage"), Some(1234), Some(2345)).unwrap();
        fs::remove_dir_all(world.path("storage/docker")).unwrap();
        symlink(&trap, world.path("storage/docker")).unwrap();
        let said = world.refused(&RESTORE);
        assert!(said.has(&["Permission denied"]), "{}", said.text);
        assert_eq!(fs::read_dir(trap).unwrap().count(), 0);
    }
}

/// The history of a tag names manifests that have been deleted and collected since: not damage.
#[test]
fn a_deleted_manifest_is_not_damage() {
    let world = World::new();
    let (old, new) = (
        plain_image("app", "1", 5000, 1),
        plain_image("app", "1", 6000, 2),
    );
    world.push("app", &old);
    world.push("app", &new);
    let mut references = old.manifests.keys();
    let digest = references
        .find_map(|reference| reference.strip_prefix("app/sha256:"))
        .unwrap();
    // The files that `DELETE` and `registry garbage-collect` remove, and the one link that both
    // leave.
    let revision = format!("repositories/app/_manifests/revisions/sha256/{digest}");
    fs::remove_dir_all(world.live(&revision)).unwrap();
    let blob = place(&format!("sha256:{digest}"));
    fs::remove_dir_all(world.live(&blob).parent().unwrap()).unwrap();
    let history = format!("repositories/app/_manifests/tags/1/index/sha256/{digest}/link");
    assert!(world.live(&history).exists());
    world.backup();
    world.done(&["verify", "backups"]);
    fs::remove_dir_all(world.path("storage/docker")).unwrap();
    world.done(&RESTORE);
    world.serves("app", &new);
}
