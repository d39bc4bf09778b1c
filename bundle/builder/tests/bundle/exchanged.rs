//! Images and directories that are replaced between the check and the use.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use halite_bundle::{VerifiedImage, verify_same};
use halite_errors::chain;
use halite_iso9660::read::IsoImage;
use halite_iso9660::write::{Content, InputFile, Volume, write};
use halite_manifest::manifest;
use halite_seal::keys::{SecretKey, Trust};
use halite_testkit::{Site, files, hex, put};
use serde_json::Value;

use crate::several::{Two, checked, two};

/// Changes one byte of a file in an image, as a failing disk or an attacker would.
fn change(iso: &Path, path: &str) {
    let offset = IsoImage::open(iso).unwrap().entry(path).unwrap().offset;
    let file = fs::File::options()
        .read(true)
        .write(true)
        .open(iso)
        .unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 1], offset).unwrap();
}

/// Adds a bundle that was changed after its check; returns the reason why it was refused.
fn refused(two: &Two, name: &str, sha256: &str) -> String {
    let before = two.versions();
    let error = two
        .bundles
        .add_image(&two.site.path(name), sha256, &mut |_| ())
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert_eq!(two.versions(), before, "nothing is put in place");
    two.is_tidy();
    error
}

#[test]
fn an_image_that_changes_after_its_check_is_not_taken() {
    let two = two();
    let iso = two.site.path("0.1.0.iso");
    let sha256 = checked(&iso);
    let good = fs::read(&iso).unwrap();
    for path in [
        "bin/ctl",
        "states/host/init.sls",
        "manifest.json",
        "manifest.json.sha256",
    ] {
        change(&iso, path);
        let error = refused(&two, "0.1.0.iso", &sha256);
        assert!(
            error.contains(&format!("{path} has the sha256")) && error.contains("0.1.0.iso"),
            "{error}"
        );
        fs::write(&iso, &good).unwrap();
    }
    // Another complete bundle, signed by the same key, is not the checked one either.
    fs::copy(two.site.path("0.2.0.iso"), &iso).unwrap();
    let error = refused(&two, "0.1.0.iso", &sha256);
    assert!(error.contains("manifest.json has the sha256"), "{error}");
    assert!(error.contains("it was replaced since"), "{error}");
    fs::write(&iso, &good).unwrap();
    two.add("0.1.0.iso").unwrap();
}

/// Makes an image of a directory with altered files and the manifest that was checked.
fn forged(site: &Site, out: &str, alter: &dyn Fn(&mut BTreeMap<String, InputFile>)) {
    let dir = site.path("0.1.0");
    let source = |name: String| {
        let from = Content::File(dir.join(&name));
        (name, InputFile { from, mode: 0o644 })
    };
    let mut sources = files(&dir).into_iter().map(source).collect();
    alter(&mut sources);
    let volume = Volume {
        id: "X".to_owned(),
        date: jiff::Timestamp::UNIX_EPOCH,
    };
    write(&site.path(out), &volume, &sources, &mut |_| ()).unwrap();
}

#[test]
fn an_image_holds_nothing_but_what_its_manifest_names() {
    let two = two();
    let sha256 = checked(&two.site.path("0.1.0.iso"));
    let more = InputFile {
        from: Content::Bytes(b"#!/bin/sh\n".to_vec()),
        mode: 0o755,
    };
    forged(&two.site, "more.iso", &|sources| {
        drop(sources.insert("bin/more".to_owned(), more.clone()))
    });
    let error = refused(&two, "more.iso", &sha256);
    assert!(error.contains("bin/more is not in its manifest"), "{error}");
    forged(&two.site, "less.iso", &|sources| {
        drop(sources.remove("bin/ctl"))
    });
    let error = refused(&two, "less.iso", &sha256);
    assert!(error.contains("bin/ctl is not in it"), "{error}");
}

#[test]
fn a_look_at_a_part_is_a_look_at_what_was_checked() {
    let two = two();
    let iso = two.site.path("0.1.0.iso");
    let sha256 = checked(&iso);
    let look = |name: &str| {
        let sound = VerifiedImage::open(&iso, &sha256).unwrap();
        let out = two.site.path(name);
        sound
            .unpack_some(&out, &|path| path.starts_with("bin/"))
            .map_err(|error| chain(&error))
    };
    look("good").unwrap();
    assert!(files(&two.site.path("good")).contains(&"bin/ctl".to_owned()));
    // Only the requested files are compared, when they are extracted; other files may differ.
    change(&iso, "states/top.sls");
    look("other").unwrap();
    change(&iso, "bin/halite-minion");
    let error = look("bad").unwrap_err();
    assert!(
        error.contains("bin/halite-minion has the sha256"),
        "{error}"
    );
}

#[test]
fn a_delta_that_changes_after_its_check_is_not_taken() {
    let two = two();
    let key = SecretKey::load(&two.site.path("builder.key"), &mut |_| unreachable!()).unwrap();
    let [old, new, iso] = ["0.1.0.iso", "0.2.0.iso", "delta.iso"].map(|name| two.site.path(name));
    halite_bundle::export_delta(&old, (&new, &checked(&new)), &iso, &[key], &mut |_| ()).unwrap();
    two.add("0.1.0.iso").unwrap();
    let sha256 = checked(&iso);
    let good = fs::read(&iso).unwrap();
    for (path, named) in [
        ("delta.json", "delta.json has the sha256"),
        ("new/manifest.json", "new/manifest.json has the sha256"),
        (
            "files/states/host/init.sls",
            "states/host/init.sls: the result has the sha256",
        ),
    ] {
        change(&iso, path);
        let error = refused(&two, "delta.iso", &sha256);
        assert!(error.contains(named), "{path}: {error}");
        fs::write(&iso, &good).unwrap();
    }
    // The checksum file is made from the manifest; its content in the image does not matter.
    change(&iso, "new/manifest.json.sha256");
    two.bundles.add_image(&iso, &sha256, &mut |_| ()).unwrap();
    manifest::load(&two.path("0.2.0")).unwrap();
}

#[test]
fn a_delta_that_names_files_outside_is_not_taken() {
    let two = two();
    let [old, new, iso] = ["0.1.0.iso", "0.2.0.iso", "delta.iso"].map(|name| two.site.path(name));
    halite_bundle::export_delta(&old, (&new, &checked(&new)), &iso, &[], &mut |_| ()).unwrap();
    two.add("0.1.0.iso").unwrap();
    let good = IsoImage::open(&iso).unwrap();
    for (forged, outside) in [("up.iso", "../outside"), ("root.iso", "/outside")] {
        let mut manifest: Value =
            serde_json::from_slice(&good.small("new/manifest.json").unwrap()).unwrap();
        let files = manifest["files"].as_object_mut().unwrap();
        files.insert(outside.to_owned(), files["bin/ctl"].clone());
        let text = serde_json::to_vec(&manifest).unwrap();
        let mut said: Value = serde_json::from_slice(&good.small("delta.json").unwrap()).unwrap();
        said["new"]["manifest-sha256"] = hex(&text).into();
        let said = serde_json::to_vec(&said).unwrap();
        let sha256 = hex(&said);
        let checksum = format!("{}  manifest.json\n", hex(&text));
        let sources = [
            ("delta.json", said),
            ("new/manifest.json", text),
            ("new/manifest.json.sha256", checksum.into_bytes()),
            (
                "files/states/host/init.sls",
                good.small("files/states/host/init.sls").unwrap(),
            ),
        ];
        let source = |(name, bytes): (&str, Vec<u8>)| {
            (
                name.to_owned(),
                InputFile {
                    from: Content::Bytes(bytes),
                    mode: 0o644,
                },
            )
        };
        let volume = Volume {
            id: "X".to_owned(),
            date: jiff::Timestamp::UNIX_EPOCH,
        };
        write(
            &two.site.path(forged),
            &volume,
            &sources.into_iter().map(source).collect(),
            &mut |_| (),
        )
        .unwrap();
        let error = refused(&two, forged, &sha256);
        assert!(
            error.contains(&format!("names {outside:?}")) && error.contains("outside the bundle"),
            "{error}"
        );
        assert!(!two.bundles.root().join("outside").exists());
    }
}

#[test]
fn a_directory_whose_manifest_changes_after_its_check_is_not_taken() {
    let two = two();
    let dir = two.site.path("0.1.0");
    let verified = halite_bundle::signed_manifest::verified(&dir, &Trust::unsigned()).unwrap();
    // A consistent manifest, but not the checked one.
    for name in [manifest::FILE, manifest::CHECKSUM] {
        put(
            &dir.join(name),
            &fs::read(two.site.path("0.2.0").join(name)).unwrap(),
        );
    }
    let error = two
        .bundles
        .add_directory(&dir, &verified.sha256)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("manifest.json") && error.contains("it was replaced"),
        "{error}"
    );
    assert!(two.versions().is_empty());
    let report = verify_same(&dir, &verified.sha256, &mut |_| ()).unwrap();
    assert!(
        report.problems[0].to_string().contains("it was replaced"),
        "{report:?}"
    );
}
