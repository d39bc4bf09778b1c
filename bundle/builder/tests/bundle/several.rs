//! Several bundles at one site.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};
use std::path::{Path, PathBuf};

use halite_bundle::{Added, BundleStore, pack, verify};
use halite_errors::chain;
use halite_iso9660::read::IsoImage;
use halite_manifest::manifest;
use halite_names::BundleVersion;
use halite_seal::keys::{SecretKey, Trust, generate};
use halite_testkit::{SharedSite, Site, SiteCopy, files, hex, put, version};

/// A site, and two bundles for it: `0.1.0` and `0.2.0`, each as an ISO and as a directory.
pub struct Two {
    pub site: SiteCopy,
    pub bundles: BundleStore,
}

pub fn two() -> Two {
    static TWO: SharedSite = SharedSite::new();
    let site = TWO.copy(|| {
        let mut site = Site::new();
        generate(&site.path("builder.key"), None, None).unwrap();
        for version in ["0.1.0", "0.2.0"] {
            site.recipe["version"] = version.into();
            put(
                &site.path("states/host/init.sls"),
                format!("# {version}\n{{}}\n").as_bytes(),
            );
            site.renew(version);
            iso(&site, version);
        }
        site
    });
    let bundles = BundleStore::new(site.path("bundles"));
    Two { site, bundles }
}

/// Packs a directory into `DIRECTORY.iso`.
pub fn iso(site: &Site, directory: &str) {
    let key = SecretKey::load(&site.path("builder.key"), &mut |_| {
        unreachable!("it has no password")
    })
    .unwrap();
    pack(
        &site.path(directory),
        &site.path(&format!("{directory}.iso")),
        &[key],
        &mut |_| (),
    )
    .unwrap();
}

/// Checks an image and returns the digest of its manifest.
pub fn checked(iso: &Path) -> String {
    let report = halite_seal::check(iso, &Trust::unsigned(), &mut |_| ()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    report.statement.manifest_sha256
}

impl Two {
    pub fn add(&self, name: &str) -> Result<Added, String> {
        let iso = self.site.path(name);
        let checked = checked(&iso);
        self.bundles
            .add_image(&iso, &checked, &mut |_| ())
            .map_err(|error| chain(&error))
    }

    pub fn preview(&self, name: &str) -> Result<Added, String> {
        let iso = self.site.path(name);
        let checked = checked(&iso);
        self.bundles
            .preview_image(&iso, &checked, &mut |_| ())
            .map_err(|error| chain(&error))
    }

    pub fn link(&self, name: &str) -> Result<Added, String> {
        let dir = self.site.path(name);
        let verified = halite_bundle::signed_manifest::verified(&dir, &Trust::unsigned()).unwrap();
        self.bundles
            .add_directory(&dir, &verified.sha256)
            .map_err(|error| chain(&error))
    }

    pub fn versions(&self) -> Vec<BundleVersion> {
        self.bundles
            .list()
            .unwrap()
            .into_iter()
            .map(|held| held.version)
            .collect()
    }

    pub fn path(&self, version: &str) -> PathBuf {
        self.bundles.path(&self::version(version))
    }

    /// Asserts that no addition is in progress and that none left files behind.
    pub fn is_tidy(&self) {
        let names = fs::read_dir(self.bundles.root()).unwrap();
        let hidden: Vec<_> = names
            .map(|entry| entry.unwrap().file_name())
            // The lock file stays.
            .filter(|name| name.as_encoded_bytes()[0] == b'.' && name != ".lock")
            .collect();
        assert!(hidden.is_empty(), "{hidden:?}");
    }
}

#[test]
fn several_bundles_coexist() {
    let two = two();
    assert!(
        two.bundles.list().unwrap().is_empty(),
        "a new site has no bundles"
    );
    assert_eq!(two.add("0.1.0.iso"), Ok(Added::New));
    assert_eq!(two.add("0.2.0.iso"), Ok(Added::New));
    assert_eq!(
        two.add("0.2.0.iso"),
        Ok(Added::There),
        "a second addition changes nothing"
    );
    assert_eq!(two.versions(), ["0.1.0", "0.2.0"]);
    for held in two.bundles.list().unwrap() {
        assert!(
            held.trouble().is_none() && held.link_target.is_none(),
            "{held:?}"
        );
        assert_eq!(held.manifest.unwrap().version, held.version);
        assert!(verify(&held.path, &mut |_| ()).unwrap().is_sound());
    }
    // A file of either bundle is found by its digest; a file of neither is not found.
    let old = manifest::load(&two.path("0.1.0")).unwrap();
    let digest = old.sha256("states/host/init.sls").unwrap();
    assert_eq!(
        two.bundles.file(digest),
        Some(two.path("0.1.0").join("states/host/init.sls"))
    );
    assert_eq!(two.bundles.file(&"0".repeat(64)), None);

    two.bundles.remove(&version("0.1.0")).unwrap();
    assert_eq!(two.versions(), ["0.2.0"]);
    let error = two
        .bundles
        .remove(&version("0.1.0"))
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("there is no bundle 0.1.0") && error.contains("there are: 0.2.0"),
        "{error}"
    );
    two.is_tidy();
}

#[test]
fn another_one_of_the_same_version_is_refused() {
    let two = two();
    two.add("0.1.0.iso").unwrap();
    put(&two.site.path("states/host/init.sls"), b"# another\n{}\n");
    let mut site = two.site;
    site.recipe["version"] = "0.1.0".into();
    site.renew("other");
    iso(&site, "other");
    let two = Two {
        site,
        bundles: two.bundles,
    };
    for refused in [two.add("other.iso"), two.link("other")] {
        let error = refused.unwrap_err();
        assert!(
            error.contains("another bundle of the same version") && error.contains("0.1.0"),
            "{error}"
        );
    }
    let held = two.bundles.get(&version("0.1.0")).unwrap();
    assert!(verify(&held.path, &mut |_| ()).unwrap().is_sound());
}

#[test]
fn a_directory_is_linked_and_never_copied() {
    let two = two();
    assert_eq!(two.link("0.1.0"), Ok(Added::New));
    let held = two.bundles.get(&version("0.1.0")).unwrap();
    assert_eq!(
        held.link_target,
        Some(two.site.path("0.1.0").canonicalize().unwrap())
    );
    assert!(held.manifest.is_ok());
    assert_eq!(two.link("0.1.0"), Ok(Added::There));
    two.bundles.remove(&version("0.1.0")).unwrap();
    assert!(
        verify(&two.site.path("0.1.0"), &mut |_| ())
            .unwrap()
            .is_sound(),
        "only the link is removed"
    );

    // Missing, truncated and additional files are found without reading contents.
    fs::remove_file(two.site.path("0.2.0/states/top.sls")).unwrap();
    put(&two.site.path("0.2.0/bin/ctl"), b"short");
    put(&two.site.path("0.2.0/more"), b"");
    let error = two.link("0.2.0").unwrap_err();
    for wanted in [
        "states/top.sls: ",
        "bin/ctl: 5 bytes instead of",
        "more: exists, but is not",
    ] {
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
    assert!(two.versions().is_empty());
    two.is_tidy();
}

#[test]
fn a_linked_bundle_stays_the_one_that_was_added() {
    let two = two();
    two.link("0.1.0").unwrap();
    let dir = two.site.path("0.1.0");
    let kept = ["manifest.json", "manifest.json.sha256", "bin/ctl"]
        .map(|name| (name, fs::read(dir.join(name)).unwrap()));
    // Another program, a manifest with its digest, and a checksum of that manifest: they all match,
    // but no key signed them.
    let program = b"#!/bin/sh\necho evil\n";
    let mut manifest: serde_json::Value = serde_json::from_slice(&kept[0].1).unwrap();
    manifest["files"]["bin/ctl"] =
        serde_json::json!({"sha256": hex(program), "size": program.len()});
    let manifest = serde_json::to_vec_pretty(&manifest).unwrap();
    put(&dir.join("bin/ctl"), program);
    put(&dir.join("manifest.json"), &manifest);
    put(
        &dir.join("manifest.json.sha256"),
        format!("{}  manifest.json\n", hex(&manifest)).as_bytes(),
    );
    let held = two.bundles.get(&version("0.1.0")).unwrap();
    let trouble = held.trouble().unwrap();
    assert!(
        trouble.contains("it is not the bundle that was added")
            && trouble.contains("ctl bundle add"),
        "{trouble}"
    );
    for (name, content) in &kept {
        put(&dir.join(name), content);
    }
    assert!(
        two.bundles
            .get(&version("0.1.0"))
            .unwrap()
            .trouble()
            .is_none()
    );

    // Another bundle of its version does not replace it while it is missing or damaged.
    for (name, content) in [("away", None), ("damaged", Some(&b"damaged"[..]))] {
        let aside = two.site.path("aside");
        match content {
            None => fs::rename(&dir, &aside).unwrap(),
            Some(content) => put(&dir.join("manifest.json"), content),
        }
        let place = &two.bundles;
        let error = place.refuse_other(
            &version("0.1.0"),
            format!("{}  manifest.json\n", hex(&manifest)).as_bytes(),
        );
        assert!(
            error
                .map_err(|error| chain(&error))
                .unwrap_err()
                .contains("another bundle of the same version"),
            "{name}"
        );
        place
            .refuse_other(&version("0.1.0"), &kept[1].1)
            .unwrap_or_else(|error| panic!("{name}: the same one: {error}"));
        if content.is_none() {
            fs::rename(&aside, &dir).unwrap();
        }
        put(&dir.join("manifest.json"), &kept[0].1);
    }
    // An unreadable record is not a reason to trust the files.
    let record = two.bundles.root().join("0.1.0@manifest.json.sha256");
    let text = fs::read(&record).unwrap();
    fs::write(&record, [0xff, 0xfe]).unwrap();
    assert!(
        two.bundles
            .get(&version("0.1.0"))
            .unwrap()
            .trouble()
            .is_some()
    );
    fs::write(&record, text).unwrap();
    assert!(
        two.bundles
            .get(&version("0.1.0"))
            .unwrap()
            .trouble()
            .is_none()
    );

    // From a directory with the unchanged bundle, it is linked again.
    put(&dir.join("manifest.json"), b"damaged");
    let again = two.site.path("again");
    IsoImage::open(&two.site.path("0.1.0.iso"))
        .unwrap()
        .extract(&again, &mut |_| ())
        .unwrap();
    assert_eq!(two.link("again"), Ok(Added::Replaced));
    assert_eq!(
        two.bundles.get(&version("0.1.0")).unwrap().link_target,
        Some(again.canonicalize().unwrap())
    );
    put(&dir.join("manifest.json"), &kept[0].1);
    two.bundles.remove(&version("0.1.0")).unwrap();
    two.link("0.1.0").unwrap();

    // The record is removed with the link, and a missing record is written by the next addition.
    let names = || {
        let mut names: Vec<_> = fs::read_dir(two.bundles.root())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| name != ".lock")
            .collect();
        names.sort();
        names
    };
    fs::remove_file(&record).unwrap();
    assert_eq!(two.bundles.recorded(&version("0.1.0")), None);
    assert_eq!(two.link("0.1.0"), Ok(Added::There));
    assert_eq!(
        two.bundles.recorded(&version("0.1.0")),
        Some(hex(&kept[0].1))
    );
    assert_eq!(two.versions(), ["0.1.0"]);
    two.bundles.remove(&version("0.1.0")).unwrap();
    assert!(names().is_empty(), "{:?}", names());
    two.link("0.1.0").unwrap();
    two.add("0.1.0.iso").unwrap();
    assert_eq!(names(), ["0.1.0"]);
}

#[test]
fn a_medium_that_was_taken_out_is_told_and_can_be_replaced() {
    let two = two();
    two.link("0.1.0").unwrap();
    let away = two.site.path("away");
    fs::rename(two.site.path("0.1.0"), &away).unwrap();
    let held = two.bundles.get(&version("0.1.0")).unwrap();
    let trouble = held.trouble().unwrap();
    for wanted in [
        "bundles/0.1.0",
        "it is a link to",
        "contains no bundle now",
        "mount the disk or ISO",
        "ctl bundle add",
    ] {
        assert!(trouble.contains(wanted), "{wanted}: {trouble}");
    }
    // Another bundle at the same path is not this one.
    fs::rename(two.site.path("0.2.0"), two.site.path("0.1.0")).unwrap();
    let trouble = two
        .bundles
        .get(&version("0.1.0"))
        .unwrap()
        .trouble()
        .unwrap();
    assert!(trouble.contains("the bundle 0.2.0 is at"), "{trouble}");
    fs::remove_dir_all(two.site.path("0.1.0")).unwrap();

    assert_eq!(two.add("0.1.0.iso"), Ok(Added::Replaced));
    let held = two.bundles.get(&version("0.1.0")).unwrap();
    assert!(held.link_target.is_none() && held.trouble().is_none());
    fs::rename(&away, two.site.path("0.1.0")).unwrap();
    assert_eq!(
        two.link("0.1.0"),
        Ok(Added::There),
        "a link does not replace a copy"
    );
    assert!(
        two.bundles
            .get(&version("0.1.0"))
            .unwrap()
            .link_target
            .is_none()
    );
    two.is_tidy();
}

#[test]
fn a_damaged_one_is_made_whole_again() {
    let two = two();
    two.add("0.1.0.iso").unwrap();
    put(&two.path("0.1.0").join("bin/ctl"), b"damaged");
    assert_eq!(two.add("0.1.0.iso"), Ok(Added::Replaced));
    assert!(verify(&two.path("0.1.0"), &mut |_| ()).unwrap().is_sound());
    two.is_tidy();
}

#[test]
fn what_was_left_by_who_was_cut_off_is_removed() {
    let two = two();
    two.add("0.1.0.iso").unwrap();
    let root = two.bundles.root();
    put(&root.join(".0.2.0.new/bin/ctl"), b"half");
    put(&root.join(".0.0.9.removed/bin/ctl"), b"half");
    symlink("/nowhere", root.join(".0.3.0.link")).unwrap();
    assert_eq!(two.versions(), ["0.1.0"], "leftovers are not listed");
    assert_eq!(two.add("0.2.0.iso"), Ok(Added::New));
    two.is_tidy();
    assert_eq!(
        files(&two.path("0.2.0")).len(),
        files(&two.site.path("0.2.0")).len() + 1,
        "the signature is added"
    );
    put(&root.join(".0.0.9.removed/bin/ctl"), b"half");
    two.bundles.remove(&version("0.2.0")).unwrap();
    two.is_tidy();
}

#[test]
fn only_one_at_a_time_changes_them() {
    let two = two();
    two.add("0.1.0.iso").unwrap();
    let other = fs::File::open(two.bundles.root().join(".lock")).unwrap();
    // A child process of another test may hold the lock of the addition for a moment longer.
    other.lock().unwrap();
    let error = two.add("0.2.0.iso").unwrap_err();
    assert!(
        error.contains("another process is adding or removing"),
        "{error}"
    );
    assert!(two.bundles.remove(&version("0.1.0")).is_err());
    assert_eq!(two.versions(), ["0.1.0"]);
    drop(other);
    two.bundles.remove(&version("0.1.0")).unwrap();
}

#[test]
fn nothing_else_in_the_directory_is_a_bundle() {
    let two = two();
    two.add("0.1.0.iso").unwrap();
    put(&two.bundles.root().join("notes"), b"a file");
    fs::create_dir(two.bundles.root().join("lost+found")).unwrap();
    assert_eq!(two.versions(), ["0.1.0"]);
    assert_eq!(
        two.bundles.manifests(),
        [two.path("0.1.0").join("manifest.json")]
    );
    assert!(
        fs::metadata(two.path("0.1.0")).unwrap().mode() & 0o005 == 0o005,
        "nginx reads it"
    );
}
