//! The nginx configuration that serves a site's bundles: their files, and their images as a
//! pull-only registry
//! (<https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pull>), directly from
//! the OCI layout.
//!
//! A site has several bundles, so each provides only *entries* of maps ([`MANIFESTS_MAP`],
//! [`LISTS_MAP`], [`LINKS_MAP`]), which all begin with its version. The site's configuration
//! defines the maps and includes the entries of every bundle. The locations ([`SERVER`]) are the
//! same for all bundles and are included once, from the bundle in use.
//! `halite/services/bundle_server/nginx.conf.j2` of the state tree combines all of this.
//!
//! containerd sends the requests for every registry to one host, and names the registry in the
//! argument `ns`. Maps translate version, registry and path to a digest; the file system decides
//! which blobs exist. The maps ignore case, as all maps of nginx do.

mod locations;
mod pages;

use std::collections::{BTreeMap, BTreeSet};

use halite_fetch::ImageRef;
use halite_fetch::oci_layout::{Descriptor, INDEXES, LayoutImage, MANIFESTS};

pub use locations::locations;

/// Entries of the map to `$halite_manifest`: the blob of each name, as `KIND/HEX`.
pub const MANIFESTS_MAP: &str = "nginx/manifests.map";

/// Entries of the map to `$halite_list`: the lists of tags and of names, as sent to clients.
pub const LISTS_MAP: &str = "nginx/lists.map";

/// Entries of the map to `$halite_next`: the link to the next page of a list.
pub const LINKS_MAP: &str = "nginx/links.map";

/// The nginx locations.
pub const SERVER: &str = "nginx/registry.conf";

/// The media types of manifests and indexes, with their names in the locations.
const KINDS: [(&str, &str); 4] = [
    ("oci", MANIFESTS[0]),
    ("docker", MANIFESTS[1]),
    ("oci-index", INDEXES[0]),
    ("docker-index", INDEXES[1]),
];

/// The target of a name: the kind and the digest of a blob.
fn target(blob: &Descriptor) -> String {
    let known = KINDS.iter().find(|(_, media)| *media == blob.media_type);
    let (kind, _) = known.unwrap_or(&KINDS[1]);
    format!("{kind}/{}", blob.hex().unwrap_or_default())
}

/// The entries of the maps for the images of the bundle with this version: path and content.
#[must_use]
pub fn maps(version: &str, images: &[(ImageRef, LayoutImage)]) -> Vec<(&'static str, String)> {
    let mut manifests = Keys::default();
    let mut tags: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for (reference, image) in images {
        // The tag is the manifest, not the index: the bundle has only one platform of the index.
        let digests = std::iter::once(&image.manifest).chain(&image.index);
        let names = digests.map(|blob| (blob.digest.as_str(), blob));
        for (name, blob) in names.chain([(reference.tag.as_str(), &image.manifest)]) {
            for place in places(&reference.registry, &reference.repository) {
                let key = format!("{version} {place}/manifests/{name}");
                manifests.set(key, &target(blob));
            }
        }
        tags.entry((&reference.registry, &reference.repository))
            .or_default()
            .insert(&reference.tag);
    }
    let (mut lists, mut links) = (Keys::default(), Keys::default());
    let mut add = |place: &str, head: &str, names: &BTreeSet<String>| {
        for page in pages::pages(names) {
            let key = format!("{version} {place} {} {}", page.size, page.last);
            let quoted: Vec<String> = page
                .names
                .iter()
                .map(|name| format!("\"{name}\""))
                .collect();
            lists.set(key.clone(), &format!("{{{head}:[{}]}}", quoted.join(",")));
            if let Some(next) = page.next {
                links.set(key, next);
            }
        }
    };
    // In the catalog of its own registry, a name is short; in the common catalog, it includes the
    // registry.
    let mut catalogs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for ((registry, repository), tags) in &tags {
        let tags = tags.iter().map(|tag| (*tag).to_owned()).collect();
        for place in places(registry, repository) {
            add(
                &format!("{place}/tags/list"),
                &format!("\"name\":\"{repository}\",\"tags\""),
                &tags,
            );
        }
        catalogs
            .entry(String::new())
            .or_default()
            .insert(format!("{registry}/{repository}"));
        for registry in spellings(registry) {
            catalogs
                .entry(registry)
                .or_default()
                .insert((*repository).to_owned());
        }
    }
    for (registry, names) in &catalogs {
        add(
            &format!("{registry}/v2/_catalog"),
            "\"repositories\"",
            names,
        );
    }
    vec![
        (MANIFESTS_MAP, manifests.entries("the blob of each name")),
        (LISTS_MAP, lists.entries("lists of tags and of names")),
        (LINKS_MAP, links.entries("the next page of each list")),
    ]
}

/// The values of `ns` and the beginnings of the path under which an image is found. The registry is
/// in one of the two, or in neither if the name stays unambiguous.
fn places(registry: &str, repository: &str) -> BTreeSet<String> {
    let mut found: BTreeSet<String> = spellings(registry)
        .into_iter()
        .map(|registry| format!("{registry}/v2/{repository}"))
        .collect();
    found.insert(format!("/v2/{registry}/{repository}"));
    found.insert(format!("/v2/{repository}"));
    found
}

/// The spellings of a name in an argument: some clients escape characters without need, and nginx
/// does not undo that.
fn spellings(name: &str) -> BTreeSet<String> {
    [
        name.to_owned(),
        name.replace(':', "%3A").replace('/', "%2F"),
    ]
    .into()
}

/// The entries of one map.
#[derive(Default)]
struct Keys {
    /// The target of each key; `None` if two images share the key.
    targets: BTreeMap<String, Option<String>>,
}

impl Keys {
    fn set(&mut self, key: String, target: &str) {
        // nginx refuses a map with two keys that differ only in case.
        let entry = self
            .targets
            .entry(key.to_lowercase())
            .or_insert_with(|| Some(target.to_owned()));
        if entry.as_deref() != Some(target) {
            *entry = None;
        }
    }

    fn entries(&self, what: &str) -> String {
        let mut text = format!("# Entries of a map: {what}; made by `ctl bundle build`.\n");
        for (key, target) in &self.targets {
            if let Some(target) = target {
                text.push_str(&format!("\"{key}\" '{target}';\n"));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(text: &str, digit: &str) -> (ImageRef, LayoutImage) {
        let manifest = Descriptor {
            media_type: MANIFESTS[0].into(),
            digest: format!("sha256:{}", digit.repeat(64)),
            size: 1,
            annotations: BTreeMap::new(),
            platform: None,
        };
        (
            ImageRef::parse(text).unwrap(),
            LayoutImage {
                index: None,
                manifest,
                parts: Vec::new(),
            },
        )
    }

    fn text(images: &[(ImageRef, LayoutImage)]) -> String {
        maps("1.0", images)
            .into_iter()
            .map(|(name, content)| format!("=== {name}\n{content}"))
            .collect()
    }

    #[test]
    fn maps_of_two_images() {
        let maps = text(&[
            image("registry.k8s.io/pause:3.10.2", "a"),
            image("localhost:5000/a/b:1", "b"),
        ]);
        let golden = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/golden/registry-maps.txt"
        );
        if std::env::var_os("HALITE_UPDATE_GOLDENS").is_some() {
            std::fs::write(golden, &maps).unwrap();
        }
        assert_eq!(
            maps,
            std::fs::read_to_string(golden).unwrap_or_default(),
            "{golden}"
        );
    }

    #[test]
    fn an_index_is_found_by_its_digest_and_the_tag_stays_the_manifest() {
        let (reference, mut image) = image("one.example/a:1", "a");
        image.index = Some(Descriptor {
            media_type: INDEXES[1].into(),
            digest: format!("sha256:{}", "b".repeat(64)),
            ..image.manifest.clone()
        });
        let maps = text(&[(reference, image)]);
        for (name, target) in [
            ("1".to_owned(), format!("oci/{}", "a".repeat(64))),
            (
                format!("sha256:{}", "a".repeat(64)),
                format!("oci/{}", "a".repeat(64)),
            ),
            (
                format!("sha256:{}", "b".repeat(64)),
                format!("docker-index/{}", "b".repeat(64)),
            ),
        ] {
            let line = format!("\"1.0 one.example/v2/a/manifests/{name}\" '{target}';");
            assert!(maps.contains(&line), "{line}: {maps}");
        }
        assert!(locations().contains("/manifest/docker-index/"));
    }

    #[test]
    fn a_name_that_two_registries_have_needs_the_registry() {
        let maps = text(&[image("one.example/a:1", "a"), image("two.example/a:1", "b")]);
        assert!(maps.contains("\"1.0 one.example/v2/a/manifests/1\""));
        assert!(maps.contains("\"1.0 /v2/two.example/a/manifests/1\""));
        assert!(!maps.contains("\"1.0 /v2/a/manifests/1\""));
        // The lists of tags are equal, so they are unambiguous.
        assert!(maps.contains("\"1.0 /v2/a/tags/list  \""));
    }

    #[test]
    fn tags_that_differ_in_case_only_do_not_make_the_server_fail() {
        let maps = text(&[
            image("one.example/a:RC", "a"),
            image("one.example/a:rc", "b"),
        ]);
        assert!(
            !maps.contains("manifests/rc\"") && !maps.contains("manifests/RC\""),
            "{maps}"
        );
        assert!(
            maps.contains("'{\"name\":\"a\",\"tags\":[\"RC\",\"rc\"]}'"),
            "{maps}"
        );
    }
}
