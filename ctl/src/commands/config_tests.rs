//! Checks against a bundle in each of its forms.

use std::path::PathBuf;

use halite_bundle::pack;
use halite_seal::keys::{SecretKey, generate};
use halite_testkit::put;

use super::wizard::only_image;
use super::*;

const CLUSTER: &str = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: prod}\n\
    networks: {controlPlane: {cidrs: [10.0.0.0/24]}}\nkubernetes: {version: \"1.36\"}\n";

/// A bundle as the directory `media/bundle` and the ISO `media/halite.iso`.
struct Media(halite_testkit::Site);

impl Media {
    fn new() -> Self {
        let made = halite_testkit::Site::new();
        generate(&made.path("builder.key"), None, None).unwrap();
        made.record("2026-01-01T00:00:00Z");
        made.build("media/bundle").unwrap();
        let key = SecretKey::load(&made.path("builder.key"), &mut |_| unreachable!()).unwrap();
        let media = Self(made);
        let (directory, iso) = (media.path("bundle"), media.path("halite.iso"));
        pack(&directory, &iso, &[key], &mut |_| ()).unwrap();
        media
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path(&format!("media/{name}"))
    }

    /// Validates a cluster document against the bundle in this file or directory.
    fn validate(&self, document: &str, bundle: &str) -> anyhow::Result<u8> {
        put(&self.path("cluster.yaml"), document.as_bytes());
        let path = ConfigPath {
            path: self.path("cluster.yaml"),
            bundle: Some(self.path(bundle)),
        };
        validate(&path, &mut Screen::new(Format::Json))
    }
}

#[test]
fn an_iso_is_checked_against_as_its_directory_is() {
    let media = Media::new();
    let [directory, iso] = ["bundle", "halite.iso"].map(|name| facts(&media.path(name)).unwrap());
    let path = directory.path.clone();
    assert_eq!(BundleFacts { path, ..iso }, directory);
    let other = CLUSTER.replace("1.36", "1.20");
    for bundle in ["bundle", "halite.iso"] {
        assert_eq!(media.validate(CLUSTER, bundle).unwrap(), 0, "{bundle}");
        assert_eq!(media.validate(&other, bundle).unwrap(), FAILED, "{bundle}");
    }
}

#[test]
fn a_cluster_document_alone_may_have_the_values_of_its_secrets_elsewhere() {
    let document = format!("{CLUSTER}secrets: {{smtp: {{roles: [worker]}}}}\n");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cluster.yaml");
    put(&path, document.as_bytes());
    assert!(load(&texts(&path).unwrap(), &Context::default()).is_ok());
    // In a directory, it is known that no encrypted file has it.
    let problems = load(&texts(directory.path()).unwrap(), &Context::default()).unwrap_err();
    let text = report(&problems);
    assert!(text.contains("`smtp` has no value"), "{text}");
}

#[test]
fn a_file_that_is_not_a_bundle_is_named() {
    let media = Media::new();
    put(&media.path("other.iso"), b"something else");
    for bundle in ["other.iso", "missing.iso"] {
        let error = media.validate(CLUSTER, bundle).unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains(bundle), "{text}");
    }
}

#[test]
fn the_wizard_finds_the_only_iso_of_a_bundle_beside_it() {
    let media = Media::new();
    put(&media.path("debian.iso"), b"something else");
    let iso = media.path("halite.iso");
    assert_eq!(only_image(&media.path("")), Some(iso.clone()));
    std::fs::copy(&iso, media.path("halite-2.iso")).unwrap();
    assert_eq!(only_image(&media.path("")), None, "it cannot choose");
    assert_eq!(only_image(&media.path("bundle")), None);
}
