//! Every kind of damage is found and reported.

use std::fs;
use std::os::unix::fs::symlink;

use halite_bundle::{BundleDamage, verify};
use halite_manifest::manifest;
use halite_testkit::{Site, files, hex, put};
use serde_json::Value;

use crate::shared::built;

fn problems(site: &Site) -> Vec<BundleDamage> {
    verify(&site.path("bundle"), &mut |_| ()).unwrap().problems
}

#[test]
fn one_flipped_byte_in_any_file_is_named() {
    let site = built();
    let bundle = site.path("bundle");
    let all = files(&bundle);
    assert!(all.len() > 40, "{all:?}");
    for file in all {
        let path = bundle.join(&file);
        let good = fs::read(&path).unwrap();
        let mut bad = good.clone();
        let middle = bad.len() / 2;
        bad[middle] ^= 1;
        put(&path, &bad);
        let found = problems(&site);
        match (file.as_str(), found.as_slice()) {
            (manifest::FILE | manifest::CHECKSUM, [BundleDamage::Manifest { message }]) => {
                assert!(message.contains("manifest.json"), "{message}");
            }
            (_, [BundleDamage::Changed { path, .. }]) if *path == file => {}
            _ => panic!("{file}: {found:?}"),
        }
        put(&path, &good);
    }
    assert_eq!(problems(&site), []);
}

#[test]
fn a_missing_a_cut_and_an_extra_file_are_named_together() {
    let site = built();
    let bundle = site.path("bundle");
    fs::remove_file(bundle.join("bin/ctl")).unwrap();
    put(&bundle.join("states/top.sls"), b"base:\n");
    put(&bundle.join("states/foreign.sls"), b"");
    fs::remove_file(bundle.join("install")).unwrap();
    symlink("bin/halite-master", bundle.join("install")).unwrap();
    let found: Vec<String> = problems(&site).iter().map(ToString::to_string).collect();
    assert!(
        found.iter().any(|p| p.starts_with("bin/ctl: missing: ")),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .any(|p| p.starts_with("states/top.sls: changed: 6 bytes instead of 20")),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .any(|p| p == "states/foreign.sls: exists, but is not in the manifest"),
        "{found:?}"
    );
    assert!(
        found
            .iter()
            .any(|p| p == "install: missing: it is not a regular file"),
        "{found:?}"
    );
}

/// Removes a file from a bundle and from its manifest: every remaining file matches the manifest.
fn take_out(site: &Site, file: &str) {
    let bundle = site.path("bundle");
    fs::remove_file(bundle.join(file)).unwrap();
    rewrite(site, |value| {
        let files = value["files"].as_object_mut().unwrap();
        files.remove(file).unwrap();
    });
}

#[test]
fn an_image_without_a_layer_is_named() {
    let site = built();
    let layer = hex(b"etcd");
    take_out(&site, &format!("images/blobs/sha256/{layer}"));
    let found: Vec<String> = problems(&site).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [format!(
            "incomplete: registry.k8s.io/etcd:3.6.8-0: sha256:{layer} is missing"
        )]
    );
}

/// Replaces the manifest of a bundle, with its checksum, as its signer could.
fn rewrite(site: &Site, change: impl FnOnce(&mut Value)) {
    let path = site.path("bundle").join(manifest::FILE);
    let mut value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    change(&mut value);
    let bytes = serde_json::to_vec_pretty(&value).unwrap();
    put(&path, &bytes);
    let checksum = format!("{}  manifest.json\n", hex(&bytes));
    put(
        &site.path("bundle").join(manifest::CHECKSUM),
        checksum.as_bytes(),
    );
}

#[test]
fn an_image_that_is_not_that_of_the_manifest_is_named() {
    let site = built();
    let made = manifest::load(&site.path("bundle")).unwrap();
    let (name, digest) = made.images["etcd"].split_once('@').unwrap();
    let other = format!("sha256:{}", "0".repeat(64));
    rewrite(&site, |value| {
        value["images"]["etcd"] = format!("{name}@{other}").into();
    });
    let found: Vec<String> = problems(&site).iter().map(ToString::to_string).collect();
    assert_eq!(
        found,
        [format!(
            "incomplete: {name} (etcd) is {digest} in images/index.json, and another image in manifest.json"
        )]
    );
    // Bundles of earlier versions name it by its tag alone.
    rewrite(&site, |value| value["images"]["etcd"] = name.into());
    assert_eq!(problems(&site), []);
}

#[test]
fn a_package_without_its_archive_is_named() {
    let site = built();
    take_out(&site, "apt/pool/kubectl_1.2.3-1_amd64.deb");
    let found: Vec<String> = problems(&site).iter().map(ToString::to_string).collect();
    let expected =
        "incomplete: the package kubectl: pool/kubectl_1.2.3-1_amd64.deb does not match the index";
    assert_eq!(found, [expected]);
}
