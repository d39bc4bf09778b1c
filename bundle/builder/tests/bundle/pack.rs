//! Bundles as sealed ISOs, and extracted from them.

use std::fs;

use halite_bundle::{Added, BundleStore, list, pack, unpack_some, verify};
use halite_errors::chain;
use halite_manifest::{Diff, ItemChange, Manifest, manifest};
use halite_seal::keys::{SecretKey, Trust, generate};
use halite_testkit::{Site, SiteCopy, files, hex, put};

use crate::shared::built;

/// A site whose bundle is `site.iso`, and the key that signed it.
fn packed() -> (SiteCopy, SecretKey) {
    let site = built();
    generate(&site.path("builder.key"), None, None).unwrap();
    let key = SecretKey::load(&site.path("builder.key"), &mut |_| {
        unreachable!("it has no password")
    })
    .unwrap();
    pack(
        &site.path("bundle"),
        &site.path("site.iso"),
        std::slice::from_ref(&key),
        &mut |_| (),
    )
    .unwrap();
    (site, key)
}

#[test]
fn leftovers_of_a_killed_build_do_not_stop_the_next_one() {
    let site = Site::new();
    let whole = site
        .build_image("X.iso")
        .unwrap_or_else(|error| panic!("{error}"));
    // The leftover of a build that was killed while removing the image's source directory.
    put(&site.path(".X.iso.bundle/images/index.json"), b"{}");
    let again = site
        .build_image("X.iso")
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.images, whole.images);
    assert!(!site.path(".X.iso.bundle").exists());
}

#[test]
fn what_comes_out_is_what_went_in() {
    let (site, key) = packed();
    let trust = Trust::new(vec![key.public().clone()]);
    let report = halite_seal::check(&site.path("site.iso"), &trust, &mut |_| ()).unwrap();
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(report.statement.volume, "HALITE_0_1_0_V1_36_3");
    assert_eq!(report.signers.len(), 1);

    let out = site.path("bundles/0.1.0");
    let bundles = BundleStore::new(site.path("bundles"));
    let add = || {
        bundles.add_image(
            &site.path("site.iso"),
            &report.statement.manifest_sha256,
            &mut |_| (),
        )
    };
    assert_eq!(add().unwrap(), Added::New);
    assert!(verify(&out, &mut |_| ()).unwrap().is_sound());
    let signature = format!("manifest.json.{}.minisig", key.public().id());
    let mut expected = files(&site.path("bundle"));
    expected.push(signature.clone());
    expected.sort_unstable();
    assert_eq!(files(&out), expected);

    // An extracted bundle is trusted because of the manifest's own signature, and only while that
    // matches.
    assert_eq!(
        halite_bundle::signed_manifest::verified(&out, &trust)
            .unwrap()
            .signers,
        report.signers
    );
    let other = Trust::new(vec![generate(&site.path("other.key"), None, None).unwrap()]);
    let error = halite_bundle::signed_manifest::verified(&out, &other)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(error.contains("no trusted key signed it"), "{error}");
    let error = halite_bundle::signed_manifest::verified(&site.path("bundle"), &trust)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(error.contains("it is not signed"), "{error}");
    let good = fs::read(out.join(manifest::FILE)).unwrap();
    put(&out.join(manifest::FILE), &[good.as_slice(), b" "].concat());
    let error = halite_bundle::signed_manifest::verified(&out, &trust)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(error.contains("does not match"), "{error}");
    put(&out.join(manifest::FILE), &good);
    // Adding the bundle again changes nothing; another bundle with its name is not overwritten.
    assert_eq!(add().unwrap(), Added::There);
    put(&out.join(manifest::CHECKSUM), b"another\n");
    assert_eq!(
        add().unwrap(),
        Added::Replaced,
        "a damaged bundle is replaced"
    );
    assert!(verify(&out, &mut |_| ()).unwrap().is_sound());
    let text = [good.as_slice(), b" "].concat();
    put(&out.join(manifest::FILE), &text);
    put(
        &out.join(manifest::CHECKSUM),
        format!("{}  manifest.json\n", hex(&text)).as_bytes(),
    );
    let error = add().map_err(|error| chain(&error)).unwrap_err();
    assert!(
        error.contains("another bundle of the same version"),
        "{error}"
    );
}

#[test]
fn an_image_is_listed_as_its_directory_is() {
    let (site, _) = packed();
    let listed = list(&site.path("site.iso")).unwrap();
    assert!(
        !listed.images.is_empty() && !listed.packages.is_empty(),
        "{listed:?}"
    );
    assert_eq!(listed, list(&site.path("bundle")).unwrap());
    let error = list(&site.path("builder.key"))
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(error.contains("builder.key"), "{error}");
}

#[test]
fn the_same_bundle_is_the_same_file() {
    let (site, key) = packed();
    let first = fs::read(site.path("site.iso")).unwrap();
    pack(
        &site.path("bundle"),
        &site.path("site.iso"),
        &[key],
        &mut |_| (),
    )
    .unwrap();
    assert!(
        first == fs::read(site.path("site.iso")).unwrap(),
        "the two differ"
    );
}

#[test]
fn an_incomplete_bundle_leaves_the_previous_image_untouched() {
    let (site, key) = packed();
    let before = fs::read(site.path("site.iso")).unwrap();
    fs::remove_file(site.path("bundle").join(manifest::CHECKSUM)).unwrap();
    pack(
        &site.path("bundle"),
        &site.path("site.iso"),
        &[key],
        &mut |_| (),
    )
    .unwrap_err();
    assert!(before == fs::read(site.path("site.iso")).unwrap());
    assert!(!site.path(".site.iso.new").exists());
}

#[test]
fn a_part_can_be_looked_at() {
    let (site, _) = packed();
    let out = site.path("look");
    unpack_some(&site.path("site.iso"), &out, &|path| {
        path.starts_with("states/")
    })
    .unwrap();
    assert_eq!(files(&out), ["states/host/init.sls", "states/top.sls"]);
}

#[test]
fn what_changes_is_told() {
    let (mut site, key) = packed();
    assert!(Diff::new(&look(&site, "site.iso"), &look(&site, "bundle")).is_empty());
    site.recipe["version"] = "0.2.0".into();
    site.recipe["packages"]["made"][2]["version"] = "1.2.4-1".into();
    put(&site.path("states/host/init.sls"), b"# new\n{}\n");
    put(&site.path("states/more.sls"), b"{}\n");
    site.build("bundle").unwrap();
    pack(
        &site.path("bundle"),
        &site.path("new.iso"),
        &[key],
        &mut |_| (),
    )
    .unwrap();
    let diff = Diff::new(&look(&site, "site.iso"), &look(&site, "new.iso"));
    let change = |name: &str, old: Option<&str>, new: Option<&str>| ItemChange {
        name: name.to_owned(),
        old: old.map(str::to_owned),
        new: new.map(str::to_owned),
    };
    assert_eq!(
        diff.versions,
        [change("bundle", Some("0.1.0"), Some("0.2.0"))]
    );
    assert_eq!(
        diff.packages,
        [change("kubectl", Some("1.2.3-1"), Some("1.2.4-1"))]
    );
    assert_eq!(diff.images, []);
    let states: Vec<_> = diff
        .states
        .iter()
        .map(|c| (c.name.as_str(), c.old.is_some()))
        .collect();
    assert_eq!(states, [("host/init.sls", true), ("more.sls", false)]);
    assert!(
        diff.added_size > 0 && diff.added_size < diff.new_size,
        "{diff:?}"
    );
}

fn look(site: &Site, name: &str) -> Manifest {
    halite_bundle::inspect(&site.path(name)).unwrap()
}
