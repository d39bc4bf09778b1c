//! Damage in the registry and in backups.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;

use halite_testkit::registry::OCI_MANIFEST;
use serde_json::{Value, json};

use crate::world::{BACKUP, RESTORE, World, all_of, flip, image, largest, place, plain_image};

#[test]
fn a_damaged_registry_is_backed_up_as_far_as_it_is_good() {
    let world = World::new();
    let (web, tool) = (
        image("app/web", "1", &[90_000, 40], 1),
        plain_image("tool", "1", 50_000, 9),
    );
    world.push("app/web", &web);
    world.push("tool", &tool);
    let (changed, missing) = (largest(&web), largest(&tool));
    flip(&world.live(&place(&changed)));
    let whole = fs::read(world.live(&place(&missing))).unwrap();
    fs::remove_file(world.live(&place(&missing))).unwrap();
    let made = world.refused(&[&BACKUP[..], &["--keep", "1"]].concat());
    let mut both = vec![changed.clone(), missing.clone()];
    both.sort();
    assert_eq!(made.named("damaged"), both, "{}", made.text);
    for damage in made.answer["damaged"].as_array().unwrap() {
        let (repository, why) = if damage["what"] == json!(changed) {
            ("app/web", "its 90000 bytes have the digest sha256:")
        } else {
            ("tool", "it is missing")
        };
        assert_eq!(damage["repositories"], json!([repository]));
        assert!(damage["why"].as_str().unwrap().starts_with(why), "{damage}");
    }
    let listed = world.done(&["list", "backups"]);
    assert_eq!(listed.answer["backups"][0]["complete"], false);
    let mut said = world.refused(&["verify", "backups"]).named("damaged");
    said.sort();
    assert_eq!(said, both);
    // A second backup neither counts nor removes it.
    world.refused(&[&BACKUP[..], &["--keep", "1"]].concat());
    assert_eq!(
        world.done(&["list", "backups"]).answer["backups"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    // It cannot be restored: the command fails before it changes anything.
    let before = all_of(&world.path("storage"));
    let mut said = world.refused(&RESTORE).named("damaged");
    said.sort();
    assert_eq!(said, both);
    assert!(before == all_of(&world.path("storage")));
    // Except if the registry has the blobs that the backup lacks.
    flip(&world.live(&place(&changed)));
    fs::write(world.live(&place(&missing)), whole).unwrap();
    world.done(&RESTORE);
    world.serves("app/web", &web);
    world.serves("tool", &tool);
    // A complete backup lets damaged ones be removed.
    let last = world.done(&[&BACKUP[..], &["--keep", "1"]].concat());
    assert_eq!(last.answer["removed"].as_array().unwrap().len(), 2);
}

#[test]
fn what_an_earlier_backup_has_makes_damage_good() {
    let world = World::new();
    let web = image("app/web", "1", &[90_000, 40_000, 7], 1);
    world.push("app/web", &web);
    let first = world.backup();
    let mut sizes: Vec<_> = web
        .blobs
        .iter()
        .map(|(digest, bytes)| (bytes.len(), digest.clone()))
        .collect();
    sizes.sort();
    let [.., (_, cut), (_, changed)] = sizes.as_slice() else {
        panic!("{sizes:?}")
    };
    let missing = &sizes[0].1;
    flip(&world.live(&place(changed)));
    fs::write(world.live(&place(cut)), "short").unwrap();
    fs::remove_dir_all(world.live(&place(missing)).parent().unwrap()).unwrap();
    let second = world.refused(&[&BACKUP[..], &["--keep", "1"]].concat());
    let mut both = vec![cut.clone(), missing.clone()];
    both.sort();
    assert_eq!(
        (second.named("repaired"), second.named("damaged")),
        (both, Vec::new()),
        "{}",
        second.text
    );
    assert_eq!(second.answer["repaired"][0]["from"], first.name());
    assert_eq!(second.answer["removed"], json!([]));
    assert_eq!(second.number("bytes"), first.number("bytes"));
    world.done(&["verify", "backups"]);
    let listed = world.done(&["list", "backups"]);
    assert_eq!(listed.answer["backups"].as_array().unwrap().len(), 2);
    assert_eq!(listed.answer["backups"][1]["complete"], true);
    // The backup repairs the registry.
    let restored = world.done(&RESTORE);
    let mut repaired = vec![json!(changed), json!(cut)];
    repaired.sort_by_key(ToString::to_string);
    assert_eq!(restored.answer["repaired"], json!(repaired));
    assert_eq!(restored.number("copied"), 3);
    world.serves("app/web", &web);
    world.backup();
}

#[test]
fn a_damaged_backup_is_found_out_and_not_put_back() {
    let world = World::new();
    let web = image("app/web", "1", &[90_000, 40_000], 1);
    world.push("app/web", &web);
    let first = world.backup();
    let second = world.backup();
    let blob = largest(&web);
    flip(&world.kept(&second.name(), &place(&blob)));
    let said = world.refused(&["verify", "backups"]);
    assert_eq!(said.named("damaged"), [blob.as_str()]);
    assert_eq!(
        said.answer["damaged"][0]["repositories"],
        json!(["app/web"])
    );
    // The registry is intact: no damaged blob is needed.
    world.done(&RESTORE);
    fs::remove_dir_all(world.path("storage/docker")).unwrap();
    let said = world.refused(&RESTORE);
    assert_eq!(said.named("damaged"), [blob.as_str()]);
    assert_eq!(said.answer["changed"], false);
    let files = all_of(&world.path("storage"))
        .into_iter()
        .filter(|file| file.2 & 0o040_000 == 0);
    assert_eq!(files.count(), 0);
    // The remedy that `ctl registry verify` prints.
    world.push("app/web", &web);
    for backup in [first.name(), second.name()] {
        fs::remove_file(world.kept(&backup, &place(&blob))).unwrap();
    }
    let third = world.backup();
    assert_eq!(third.number("bytesNew"), 90_000);
    world.done(&["verify", "backups"]);
}

#[test]
fn a_damaged_backup_is_put_back_without_what_is_damaged_if_that_is_wanted() {
    let world = World::new();
    let (web, next) = (
        image("app/web", "1", &[90_000, 40], 1),
        image("app/web", "2", &[70_000, 40], 5),
    );
    let tool = plain_image("tool", "1", 50_000, 9);
    for (name, all) in [("app/web", &web), ("app/web", &next), ("tool", &tool)] {
        world.push(name, all);
    }
    let backup = world.backup().name();
    // The name that restore prints for the pushed content.
    let called = |reference: &String| {
        let (name, reference) = reference.rsplit_once('/').unwrap();
        let mark = if reference.contains(':') { '@' } else { ':' };
        format!("{name}{mark}{reference}")
    };
    let all_but = |left_out: &[&str]| {
        world.refused(&RESTORE);
        let said = world.refused(&[&RESTORE[..], &["--without-damaged"]].concat());
        let mut left_out = left_out.to_vec();
        left_out.sort_unstable();
        assert_eq!(
            (&said.answer["changed"], said.named("damaged")),
            (
                &json!(true),
                left_out.iter().map(|d| (*d).to_owned()).collect()
            )
        );
        said
    };
    // A layer of both platforms of one image.
    let layer = largest(&web);
    flip(&world.kept(&backup, &place(&layer)));
    fs::remove_dir_all(world.path("storage/docker")).unwrap();
    let said = all_but(&[&layer]);
    let lost: Vec<String> = web
        .manifests
        .keys()
        .map(called)
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    assert_eq!((lost.len(), &said.answer["lost"]), (4, &json!(lost)));
    world.serves("app/web", &next);
    world.serves("tool", &tool);
    assert!(
        lost.iter()
            .all(|image| !world.has("app/web", image.split_once([':', '@']).unwrap().1))
    );
    let list = world.registry.get("app/web/tags/list", "*/*").unwrap();
    assert_eq!(
        serde_json::from_slice::<Value>(&list).unwrap()["tags"],
        json!(["2"])
    );
    // And the configuration of one platform, which both images have.
    let arm = next
        .blobs
        .iter()
        .find(|(_, bytes)| String::from_utf8_lossy(bytes).contains("arm64"));
    let arm = arm.unwrap().0.clone();
    flip(&world.kept(&backup, &place(&arm)));
    fs::remove_dir_all(world.path("storage/docker")).unwrap();
    let said = all_but(&[&layer, &arm]);
    let mut lost: BTreeSet<String> = lost.into_iter().collect();
    let whole = |(kind, bytes): &(String, Vec<u8>)| {
        *kind == OCI_MANIFEST && !String::from_utf8_lossy(bytes).contains(&arm)
    };
    let (good, bad): (Vec<_>, Vec<_>) = next
        .manifests
        .iter()
        .partition(|(_, manifest)| whole(manifest));
    lost.extend(bad.iter().map(|(reference, _)| called(reference)));
    assert_eq!(said.answer["lost"], json!(lost));
    let [(reference, _)] = good.as_slice() else {
        panic!("{good:?}")
    };
    assert!(world.has("app/web", reference.rsplit_once('/').unwrap().1));
    world.serves("tool", &tool);
    // Images that were left out can be pushed again, even if the registry has damaged blobs of them
    // that it takes for intact.
    world.push("app/web", &web);
    world.push("app/web", &next);
    for blob in [&layer, &arm] {
        flip(&world.live(&place(blob)));
    }
    let said = all_but(&[&layer, &arm]);
    assert_eq!(
        (&said.answer["lost"], &said.answer["repaired"]),
        (&json!(lost), &json!([]))
    );
    assert!(!world.live(&place(&layer)).exists());
    world.push("app/web", &web);
    world.push("app/web", &next);
    // Then the backup repairs nothing and lacks nothing.
    let restored = world.done(&[&RESTORE[..], &["--without-damaged"]].concat());
    assert_eq!(
        (&restored.answer["lost"], restored.number("copied")),
        (&json!([]), 0)
    );
    world.serves("app/web", &web);
}

#[test]
fn a_backup_whose_links_are_others_is_refused() {
    let world = World::new();
    world.push("app", &plain_image("app", "1", 90, 1));
    let name = world.backup().name();
    let link = world.kept(&name, "repositories/app/_manifests/tags/1/current/link");
    let text = fs::read_to_string(&link).unwrap();
    for (content, why) in [
        (
            Some(format!("sha256:{}", "0".repeat(64))),
            "these 5 differ from them",
        ),
        (Some("sha256:".to_owned()), "is not a digest"),
        (None, "made with 5 links"),
    ] {
        match content {
            Some(content) => fs::write(&link, content).unwrap(),
            None => fs::remove_file(&link).unwrap(),
        }
        let before = all_of(&world.path("storage"));
        for args in [&RESTORE[..], &["verify", "backups"]] {
            let said = world.refused(args);
            assert!(said.text.contains(why), "{why}: {}", said.text);
        }
        assert!(before == all_of(&world.path("storage")));
    }
    fs::write(&link, text).unwrap();
    world.done(&RESTORE);
    fs::remove_file(world.path("backups").join(&name).join("backup.json")).unwrap();
    let said = world.refused(&RESTORE);
    assert!(
        said.text
            .contains("not a complete backup of a registry: cannot read backup.json"),
        "{}",
        said.text
    );
    assert_eq!(
        world.done(&["list", "backups"]).answer["backups"][0]["complete"],
        false
    );
}

#[test]
fn links_of_the_file_system_are_not_followed() {
    let world = World::new();
    let web = plain_image("app", "1", 5000, 1);
    world.push("app", &web);
    let name = world.backup().name();
    let blob = place(&largest(&web));
    // A link in the registry whose content would be intact.
    let elsewhere = world.path("elsewhere");
    fs::rename(world.live(&blob), &elsewhere).unwrap();
    symlink(&elsewhere, world.live(&blob)).unwrap();
    fs::rename(world.live("repositories/app/_layers"), world.path("layers")).unwrap();
    symlink(world.path("layers"), world.live("repositories/app/_layers")).unwrap();
    let said = world.refused(&["backup", "--data", "storage", "--out", "others"]);
    assert_eq!(
        said.named("damaged"),
        ["repositories/app/_layers"],
        "{}",
        said.text
    );
    assert!(said.text.contains("symbolic link"), "{}", said.text);
    fs::remove_file(world.live("repositories/app/_layers")).unwrap();
    fs::rename(world.path("layers"), world.live("repositories/app/_layers")).unwrap();
    let said = world.refused(&["backup", "--data", "storage", "--out", "others"]);
    assert_eq!(said.named("damaged"), [largest(&web)], "{}", said.text);
    let said = world.refused(&RESTORE);
    assert!(
        said.text
            .contains("symbolic link, which is not followed; remove it"),
        "{}",
        said.text
    );
    assert!(elsewhere.exists());
    fs::remove_file(world.live(&blob)).unwrap();
    // A link in the backup.
    let kept = world.kept(&name, &blob);
    fs::remove_file(&kept).unwrap();
    symlink(&elsewhere, &kept).unwrap();
    for args in [&RESTORE[..], &["verify", "backups"]] {
        let said = world.refused(args);
        assert!(
            said.named("damaged") == [largest(&web)] && said.text.contains("symbolic link"),
            "{}",
            said.text
        );
    }
}

#[test]
fn a_tag_that_a_backup_never_had_is_named_when_it_is_put_back() {
    let world = World::new();
    let (one, two) = (
        plain_image("app", "1", 5000, 1),
        plain_image("app", "2", 6000, 2),
    );
    world.push("app", &one);
    world.push("app", &two);
    let whole = world.backup().name();
    let link = "repositories/app/_manifests/tags/2/current/link";
    fs::write(world.live(link), "sha256:").unwrap();
    let made = world.refused(&BACKUP);
    assert_eq!(made.named("damaged"), [link], "{}", made.text);
    let before = all_of(&world.path("storage"));
    let said = world.refused(&RESTORE);
    assert_eq!(
        (said.named("damaged"), &said.answer["changed"]),
        (vec![link.to_owned()], &json!(false))
    );
    assert!(before == all_of(&world.path("storage")));
    let without = [&RESTORE[..], &["--without-damaged"]].concat();
    // Even if the registry is lost in between.
    for lost in [false, true] {
        if lost {
            fs::remove_dir_all(world.path("storage/docker")).unwrap();
        }
        let said = world.refused(&without);
        assert_eq!(
            (said.named("damaged"), &said.answer["changed"]),
            (vec![link.to_owned()], &json!(true))
        );
        world.serves("app", &one);
        assert!(!world.has("app", "2"));
    }
    let said = world.command(&without).output().unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    assert!(
        !said.status.success() && text.contains(&format!("✗ {link} (in app): names no blob")),
        "{text}"
    );
    assert!(
        text.contains("without the images that are named here") && !text.contains('✓'),
        "{text}"
    );
    world.done(&["restore", &format!("backups/{whole}"), "--data", "storage"]);
    world.serves("app", &two);
}

/// The history of a tag names manifests that have been deleted and collected since: not damage.
#[test]
fn a_deleted_manifest_is_no_damage() {
    let world = World::new();
    let (old, new) = (
        plain_image("app", "1", 5000, 1),
        plain_image("app", "1", 6000, 2),
    );
    world.push("app", &old);
    world.push("app", &new);
    world.backup();
    let digest = old
        .manifests
        .keys()
        .find_map(|reference| reference.strip_prefix("app/sha256:"))
        .unwrap();
    // The files that `DELETE` and `registry garbage-collect` remove, and the one link that both
    // leave.
    fs::remove_dir_all(world.live(&format!(
        "repositories/app/_manifests/revisions/sha256/{digest}"
    )))
    .unwrap();
    fs::remove_dir_all(
        world
            .live(&place(&format!("sha256:{digest}")))
            .parent()
            .unwrap(),
    )
    .unwrap();
    assert!(
        world
            .live(&format!(
                "repositories/app/_manifests/tags/1/index/sha256/{digest}/link"
            ))
            .exists()
    );
    let made = world.backup();
    world.done(&["verify", "backups"]);
    assert!(
        !world
            .kept(&made.name(), &place(&format!("sha256:{digest}")))
            .exists()
    );
    fs::remove_dir_all(world.path("storage/docker")).unwrap();
    world.done(&RESTORE);
    world.serves("app", &new);
}
