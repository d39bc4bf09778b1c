//! Deltas: the files of a bundle that a site with another bundle lacks.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use halite_bundle::delta::Delta;
use halite_bundle::{Added, delta, verify};
use halite_errors::chain;
use halite_iso9660::read::IsoImage;
use halite_manifest::manifest;
use halite_seal::keys::{SecretKey, Trust};
use halite_testkit::{Site, files, hex, put, version};

use crate::several::{Two, checked, iso, two};

fn key(site: &Site) -> SecretKey {
    SecretKey::load(&site.path("builder.key"), &mut |_| {
        unreachable!("it has no password")
    })
    .unwrap()
}

fn export(site: &Site, old: &str, new: &str, out: &str) -> Result<Delta, String> {
    let [old, new, out] = [old, new, out].map(|name| site.path(name));
    // For a directory, the digest of its manifest without a check: some of the directories are
    // damaged or incomplete on purpose.
    let sha256 = if new.is_dir() {
        hex(&fs::read(new.join(manifest::FILE)).unwrap())
    } else {
        checked(&new)
    };
    halite_bundle::export_delta(&old, (&new, &sha256), &out, &[key(site)], &mut |_| ())
        .map_err(|error| chain(&error))
}

/// Names, modes and contents.
fn all(dir: &Path) -> Vec<(String, u32, Vec<u8>)> {
    let each = |name: String| {
        let path = dir.join(&name);
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        let bytes = fs::read(path).unwrap();
        (name, mode, bytes)
    };
    files(dir).into_iter().map(each).collect()
}

fn paths(image: &Path) -> Vec<String> {
    IsoImage::open(image)
        .unwrap()
        .entries()
        .iter()
        .map(|entry| entry.path.clone())
        .collect()
}

#[test]
fn a_site_makes_the_new_bundle_of_the_old_one_and_the_delta() {
    let two = two();
    let told = export(&two.site, "0.1.0.iso", "0.2.0.iso", "delta.iso").unwrap();
    assert_eq!(
        (told.old.version.as_str(), told.new.version.as_str()),
        ("0.1.0", "0.2.0")
    );
    let file = two.site.path("delta.iso");
    let trust = Trust::new(vec![key(&two.site).public().clone()]);
    let report = halite_seal::check(&file, &trust, &mut |_| ()).unwrap();
    assert!(
        report.is_sound() && report.statement.version == "0.2.0",
        "{report:?}"
    );
    assert_eq!(report.statement.volume, "HALITE_DELTA_0_2_0_V1_36_3");
    assert_eq!(delta::look(&file).unwrap(), Some(told));
    assert_eq!(delta::look(&two.site.path("0.2.0.iso")).unwrap(), None);
    assert_eq!(
        halite_bundle::inspect(&file).unwrap(),
        halite_bundle::inspect(&two.site.path("0.2.0.iso")).unwrap()
    );
    // Only files that the old bundle lacks: no layer of an image that both have, and no unchanged
    // program.
    let inside = paths(&file);
    assert!(
        inside.contains(&"files/states/host/init.sls".to_owned()),
        "{inside:?}"
    );
    assert!(
        !inside
            .iter()
            .any(|path| path.contains("/blobs/") || path.contains("/bin/")),
        "{inside:?}"
    );

    two.add("0.1.0.iso").unwrap();
    assert_eq!(two.add("delta.iso"), Ok(Added::New));
    let (made, whole) = (two.path("0.2.0"), two.site.path("whole"));
    IsoImage::open(&two.site.path("0.2.0.iso"))
        .unwrap()
        .extract(&whole, &mut |_| ())
        .unwrap();
    assert_eq!(all(&made), all(&whole), "the same as of the whole ISO");
    assert!(verify(&made, &mut |_| ()).unwrap().is_sound());
    assert_eq!(
        halite_bundle::signed_manifest::verified(&made, &trust)
            .unwrap()
            .signers
            .len(),
        1
    );
    let inode = |version: &str| {
        fs::metadata(two.path(version).join("bin/ctl"))
            .unwrap()
            .ino()
    };
    assert_eq!(
        inode("0.1.0"),
        inode("0.2.0"),
        "a common file is stored once"
    );
    assert_eq!(two.add("delta.iso"), Ok(Added::There));
    two.bundles.remove(&version("0.1.0")).unwrap();
    assert!(
        verify(&made, &mut |_| ()).unwrap().is_sound(),
        "it does not need the old bundle"
    );
    two.is_tidy();
}

#[test]
fn the_same_two_bundles_give_the_same_delta() {
    let two = two();
    export(&two.site, "0.1.0.iso", "0.2.0.iso", "one.iso").unwrap();
    export(&two.site, "0.1.0", "0.2.0", "two.iso").unwrap();
    assert!(
        fs::read(two.site.path("one.iso")).unwrap() == fs::read(two.site.path("two.iso")).unwrap()
    );
    assert!(!two.site.path(".one.iso.delta").exists());
}

#[test]
fn an_old_bundle_that_is_missing_another_or_damaged_is_named() {
    let refused = |two: &Two| {
        let error = two.add("delta.iso").unwrap_err();
        let previewed = two.preview("delta.iso").unwrap_err();
        // The order of damaged files below it differs.
        assert_eq!(previewed.lines().next(), error.lines().next());
        error
    };
    let two = two();
    export(&two.site, "0.1.0.iso", "0.2.0.iso", "delta.iso").unwrap();
    let error = refused(&two);
    for wanted in [
        "delta from 0.1.0 to 0.2.0",
        "needs the bundle 0.1.0",
        "there are: none",
        "whole bundle 0.2.0",
    ] {
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
    two.add("0.1.0.iso").unwrap();
    put(&two.path("0.1.0").join("bin/ctl"), b"damaged");
    put(&two.path("0.1.0").join("states/top.sls"), b"damaged");
    let error = refused(&two);
    for wanted in [
        "bundle 0.1.0 is damaged",
        "bin/ctl: changed",
        "states/top.sls: changed",
        "ctl bundle add",
    ] {
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
    assert_eq!(two.versions(), ["0.1.0"]);
    two.add("0.1.0.iso").unwrap();
    for result in [two.preview("delta.iso"), two.add("delta.iso")] {
        assert_eq!(result, Ok(Added::New));
    }

    // Another bundle of the same version is not the base of the delta.
    let Two { mut site, bundles } = two;
    bundles.remove(&version("0.1.0")).unwrap();
    bundles.remove(&version("0.2.0")).unwrap();
    put(&site.path("states/more.sls"), b"{}\n");
    site.recipe["version"] = "0.1.0".into();
    site.update(true).unwrap();
    site.build("other").unwrap();
    iso(&site, "other");
    let two = Two { site, bundles };
    two.add("other.iso").unwrap();
    let error = refused(&two);
    assert!(
        error.contains("another bundle of the version 0.1.0"),
        "{error}"
    );
    two.is_tidy();
}

#[test]
fn a_delta_to_an_unsuitable_bundle_is_refused() {
    let two = two();
    let error = export(&two.site, "0.1.0.iso", "0.1.0", "same.iso").unwrap_err();
    assert!(
        error.contains("both bundles have the version 0.1.0"),
        "{error}"
    );
    export(&two.site, "0.1.0", "0.2.0", "delta.iso").unwrap();
    let before = fs::read(two.site.path("delta.iso")).unwrap();
    let error = export(&two.site, "0.1.0", "delta.iso", "again.iso").unwrap_err();
    assert!(error.contains("this is a delta"), "{error}");
    let [old, new, out] = ["0.1.0", "0.2.0", "delta.iso"].map(|name| two.site.path(name));
    let other = "0".repeat(64);
    let error =
        halite_bundle::export_delta(&old, (&new, &other), &out, &[key(&two.site)], &mut |_| ())
            .unwrap_err();
    assert!(chain(&error).contains("it was replaced"), "{error}");
    put(&two.site.path("0.2.0/states/host/init.sls"), b"damaged");
    let error = export(&two.site, "0.1.0", "0.2.0", "delta.iso").unwrap_err();
    assert!(
        error.contains("damaged") && error.contains("states/host/init.sls"),
        "{error}"
    );
    assert!(
        fs::read(two.site.path("delta.iso")).unwrap() == before,
        "the existing file stays"
    );
    let left: Vec<PathBuf> = fs::read_dir(two.site.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    assert!(
        !left
            .iter()
            .any(|path| path.to_string_lossy().contains(".delta.iso")),
        "{left:?}"
    );
}

#[test]
fn what_changes_its_place_or_its_mode_is_made_right() {
    let two = two();
    // In the new bundle, a program of the old one also exists as a plain file, and a state of the
    // old one is a program.
    let Two { mut site, bundles } = two;
    let program = fs::read(site.path("bin/ctl")).unwrap();
    put(&site.path("states/host/ctl"), &program);
    site.recipe["version"] = "0.3.0".into();
    site.update(true).unwrap();
    site.build("0.3.0").unwrap();
    iso(&site, "0.3.0");
    export(&site, "0.1.0.iso", "0.3.0.iso", "delta.iso").unwrap();
    assert!(
        !paths(&site.path("delta.iso")).contains(&"files/states/host/ctl".to_owned()),
        "the old one has it"
    );
    let two = Two { site, bundles };
    // A file from a linked directory is copied, not hard-linked.
    two.link("0.1.0").unwrap();
    assert_eq!(two.add("delta.iso"), Ok(Added::New));
    let mode = |name: &str| {
        fs::metadata(two.path("0.3.0").join(name))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!((mode("states/host/ctl"), mode("bin/ctl")), (0o644, 0o755));
    assert!(verify(&two.path("0.3.0"), &mut |_| ()).unwrap().is_sound());
    let links = |path: PathBuf| fs::metadata(path).unwrap().nlink();
    assert_eq!(links(two.path("0.3.0").join("bin/ctl")), 1);

    // An interrupted addition starts again.
    two.bundles.remove(&version("0.3.0")).unwrap();
    put(&two.bundles.root().join(".0.3.0.new/bin/ctl"), b"half");
    assert_eq!(two.add("delta.iso"), Ok(Added::New));
    put(&two.path("0.3.0").join("bin/ctl"), b"damaged");
    assert_eq!(two.add("delta.iso"), Ok(Added::Replaced));
    assert!(verify(&two.path("0.3.0"), &mut |_| ()).unwrap().is_sound());
    two.is_tidy();
}
