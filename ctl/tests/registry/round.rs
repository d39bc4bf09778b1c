//! Backup, loss and restore.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::process::Command;
use std::sync::mpsc;

use halite_testkit::names;
use halite_testkit::process::{end, signal};
use rustix::process::{Signal, geteuid};

use crate::world::{BACKUP, PARTIAL, RESTORE, World, all_of, image, largest, place, plain_image};

#[test]
fn what_was_lost_comes_back_as_it_was() {
    let world = World::new();
    // A tag that moves: the first image stays without one.
    let first = plain_image("app/web", "1", 70_000, 1);
    world.push("app/web", &first);
    let mut web = image("app/web", "1", &[70_000, 5], 1);
    world.push("app/web", &web);
    let old = first
        .manifests
        .into_iter()
        .filter(|(reference, _)| reference.contains("sha256:"));
    web.manifests.extend(old);
    let tool = image("app", "v2", &[0, 40_000], 7);
    world.push("app", &tool);
    world.serves("app/web", &web);

    let made = world.backup();
    assert_eq!(made.number("tags"), 2, "{}", made.text);
    let blobs: BTreeSet<_> = web.blobs.keys().chain(tool.blobs.keys()).collect();
    let manifests: BTreeSet<_> = web
        .manifests
        .values()
        .chain(tool.manifests.values())
        .map(|(_, bytes)| bytes)
        .collect();
    assert_eq!(made.number("blobs"), (blobs.len() + manifests.len()) as u64);
    assert_eq!(made.number("size"), made.number("addedSize"));
    // Only root may read it, and no file is hard-linked to the registry's own.
    let dir = world.path("backups").join(made.name());
    let live: BTreeSet<_> = all_of(&world.path("storage"))
        .into_iter()
        .map(|file| file.1)
        .collect();
    for (name, inode, mode, ..) in all_of(&dir) {
        assert!(
            mode & 0o040_000 != 0 || mode == 0o100_600,
            "{name} {mode:o}"
        );
        assert!(!live.contains(&inode), "{name} is a file of the registry");
    }
    assert_eq!(fs::metadata(&dir).unwrap().mode() & 0o777, 0o700);
    let listed = &world.done(&["list", "backups"]).answer["backups"];
    assert_eq!(
        (&listed[0]["backup"], &listed[0]["tags"]),
        (&made.name().into(), &2.into())
    );
    assert_eq!(
        world.done(&["verify", "backups"]).number("blobs"),
        made.number("blobs")
    );

    // Later images are removed, and changed ones are restored.
    world.push("app/web", &plain_image("app/web", "1", 9, 30));
    world.push("late", &plain_image("late", "1", 10, 31));
    let restored = world.done(&RESTORE);
    assert_eq!(restored.number("addedSize"), 0);
    assert!(!world.has("late", "1"));
    world.serves("app/web", &web);
    world.serves("app", &tool);

    // All data is lost while the registry runs.
    fs::remove_dir_all(world.path("storage/docker")).unwrap();
    assert!(!world.has("app/web", "1"));
    let owner = if geteuid().is_root() {
        (1234, 2345)
    } else {
        (geteuid().as_raw(), 0)
    };
    if geteuid().is_root() {
        chown(world.path("storage"), Some(owner.0), Some(owner.1)).unwrap();
    }
    let restored = world.done(&[
        "restore",
        &format!("backups/{}", made.name()),
        "--data",
        "storage",
    ]);
    assert_eq!(restored.number("addedSize"), made.number("size"));
    world.serves("app/web", &web);
    world.serves("app", &tool);
    for (name, _, _, found, _) in all_of(&world.path("storage")) {
        assert!(
            !geteuid().is_root() || found == owner,
            "{name} is of {found:?}"
        );
        assert!(!name.contains("/."), "{name} was left");
    }
    // It accepts pushes.
    world.push("app/web", &plain_image("app/web", "3", 90, 32));

    // A restore with nothing but `cp` works, too.
    fs::remove_dir_all(world.path("storage/docker")).unwrap();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(dir.join("docker"))
        .arg(world.path("storage"))
        .status();
    assert!(copied.unwrap().success());
    world.serves("app/web", &web);
    world.serves("app", &tool);
}

#[test]
fn a_second_backup_holds_only_what_is_new() {
    let world = World::new();
    let web = image("app/web", "1", &[300_000, 80_000], 1);
    world.push("app/web", &web);
    let first = world.backup();
    let more = plain_image("app/more", "1", 50_000, 5);
    world.push("app/more", &more);
    let second = world.backup();
    let blobs = more
        .blobs
        .iter()
        .filter(|(digest, _)| !web.blobs.contains_key(*digest));
    let new: usize = blobs.map(|(_, bytes)| bytes.len()).sum::<usize>()
        + more
            .manifests
            .values()
            .map(|(_, bytes)| bytes.len())
            .max()
            .unwrap();
    assert_eq!(second.number("addedSize"), new as u64);
    assert_eq!(second.number("size"), first.number("size") + new as u64);
    for digest in web.blobs.keys() {
        let inode = |backup: &str| {
            fs::metadata(world.kept(backup, &place(digest)))
                .unwrap()
                .ino()
        };
        assert_eq!(inode(&first.name()), inode(&second.name()), "{digest}");
        assert_ne!(
            inode(&second.name()),
            fs::metadata(world.live(&place(digest))).unwrap().ino()
        );
    }
    // Without changes nothing is new, and only the requested number is kept.
    let third = world.done(&[&BACKUP[..], &["--keep", "1"]].concat());
    assert_eq!(third.number("addedSize"), 0);
    assert_eq!(
        third.answer["removed"],
        serde_json::json!([first.name(), second.name()])
    );
    assert_eq!(names(&world.path("backups")), [third.name()]);
    world.done(&["verify", &format!("backups/{}", third.name())]);
    fs::remove_dir_all(world.path("storage/docker")).unwrap();
    world.done(&RESTORE);
    world.serves("app/web", &web);
    world.serves("app/more", &more);
}

#[test]
fn an_empty_registry_has_a_backup_until_anything_is_pushed() {
    let world = World::new();
    let keep = [&BACKUP[..], &["--keep", "2"]].concat();
    let made = world.done(&keep);
    assert_eq!((made.number("tags"), made.number("blobs")), (0, 0));
    world.done(&["verify", "backups"]);
    let web = plain_image("app/web", "1", 50, 1);
    world.push("app/web", &web);
    world.done(&RESTORE);
    assert!(!world.has("app/web", "1"));
    world.push("app/web", &web);
    let first = world.done(&keep).name();
    // Looks like a disk that is new or not mounted.
    fs::remove_dir_all(world.path("storage/docker")).unwrap();
    for _ in 0..3 {
        let said = world.refused(&keep);
        let wanted = format!("storage: the registry is empty, but the backup {first} is not");
        assert!(said.text.contains(&wanted), "{}", said.text);
    }
    assert!(!world.is_partial());
    // Images pushed to the wrong disk replace no backup.
    world.push("late", &plain_image("late", "1", 50, 2));
    let late = world.done(&keep);
    assert_eq!(late.answer["removed"], serde_json::json!([made.name()]));
    assert_eq!(names(&world.path("backups")), [first.clone(), late.name()]);
    fs::remove_dir_all(world.path("storage/docker")).unwrap();
    world.refused(&keep);
    world.done(&["restore", &format!("backups/{first}"), "--data", "storage"]);
    world.serves("app/web", &web);
}

#[test]
fn a_missing_registry_or_backup_is_refused() {
    let world = World::new();
    world.push("app", &plain_image("app", "1", 50, 1));
    let before = all_of(&world.path("storage"));
    for (args, path) in [
        (
            &["backup", "--data", "no-such", "--out", "backups"][..],
            "no-such",
        ),
        (&["list", "no-such"], "no-such"),
        (&RESTORE, "backups"),
    ] {
        let said = world.refused(args);
        assert!(said.text.contains(path), "{}", said.text);
        assert!(said.text.contains("No such file"), "{}", said.text);
    }
    assert!(!world.path("backups").exists());
    world.backup();
    world.refused(&["restore", "backups", "--data", "no-such"]);
    let said = world.refused(&["restore", "tmp", "--data", "storage"]);
    assert!(
        said.has(&["there is no backup of a registry here"]),
        "{}",
        said.text
    );
    assert!(before == all_of(&world.path("storage")));
}

/// Backups rely on this: the registry writes each link atomically.
#[test]
fn the_registry_moves_links_to_their_places() {
    let world = World::new();
    let (first, second) = (
        plain_image("app", "1", 50, 1),
        plain_image("app", "1", 60, 2),
    );
    world.push("app", &first);
    let link = world.live("repositories/app/_manifests/tags/1/current/link");
    let mut opened = fs::File::open(&link).unwrap();
    let before = fs::read_to_string(&link).unwrap();
    world.push("app", &second);
    assert_ne!(fs::read_to_string(&link).unwrap(), before);
    let mut still = String::new();
    opened.read_to_string(&mut still).unwrap();
    assert_eq!(still, before, "the file itself was written to");
}

/// A backup that runs during pushes is complete.
#[test]
fn pushes_during_a_backup_are_in_it_or_not() {
    let world = World::new();
    world.push("app", &image("app", "0", &[100_000], 1));
    let backups: Vec<String> = std::thread::scope(|scope| {
        // At most five are pushed before the first backups are made, so that some come during them.
        // The receiver belongs to this scope, so that a failed backup does not leave the pushes
        // waiting.
        let (told, pushed) = mpsc::sync_channel(4);
        let world = &world;
        scope.spawn(move || {
            for push in 1..=15 {
                // Tags move, and repositories are added.
                let name = if push % 3 == 0 {
                    format!("new/{push}")
                } else {
                    "app".to_owned()
                };
                let tag = (push % 5).to_string();
                world
                    .registry
                    .push(&name, &image(&name, &tag, &[2000, 30], 100 + push * 10));
                told.send(()).unwrap();
            }
        });
        let mut made = Vec::new();
        // Several during each push, however long it takes; all are kept.
        loop {
            made.extend((0..4).map(|_| {
                world
                    .done(&[&BACKUP[..], &["--keep", "100"]].concat())
                    .name()
            }));
            if pushed.recv().is_err() {
                return made;
            }
            pushed.try_iter().for_each(drop);
        }
    });
    let mut tags = BTreeSet::new();
    for backup in backups {
        let place = format!("backups/{backup}");
        world.done(&["verify", &place]);
        fs::remove_dir_all(world.path("storage/docker")).unwrap();
        let restored = world.done(&["restore", &place, "--data", "storage"]);
        let listed = world.registry.get("_catalog?n=1000", "*/*").unwrap();
        let listed: serde_json::Value = serde_json::from_slice(&listed).unwrap();
        let names = listed["repositories"].as_array().unwrap();
        let all: usize = names
            .iter()
            .map(|name| world.complete(name.as_str().unwrap()))
            .sum();
        assert_eq!(all as u64, restored.number("tags"));
        tags.insert(all);
    }
    assert!(
        tags.len() > 1,
        "nothing was pushed during the backups: {tags:?}"
    );
}

/// Like the previous test, at a moment that is certainly in the middle.
#[test]
fn a_push_in_the_middle_of_a_backup_does_no_harm() {
    let world = World::new();
    let large = image("app", "1", &[24 << 20], 1);
    world.push("app", &large);
    let blob = place(&largest(&large));
    let in_the_middle = || world.kept(PARTIAL, &blob).exists();
    let reset = || fs::remove_dir_all(world.path("backups")).unwrap();
    let child = world.stopped(&BACKUP, in_the_middle, reset);
    let late = image("app", "1", &[3000], 50);
    world.push("app", &late);
    signal(&child, Signal::CONT);
    let (good, said) = end(child);
    assert!(good, "{said}");
    world.done(&["verify", "backups"]);
    fs::remove_dir_all(world.path("storage/docker")).unwrap();
    world.done(&RESTORE);
    world.serves("app", &large);
    let second = late
        .manifests
        .keys()
        .find(|reference| reference.contains("sha256:"))
        .unwrap();
    assert!(!world.has("app", second.rsplit_once('/').unwrap().1));
}
