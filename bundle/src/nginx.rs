//! The nginx configuration that serves the images of a bundle as a registry that can only be pulled from
//! (<https://github.com/opencontainers/distribution-spec/blob/main/spec.md#pull>), straight from the OCI layout.
//!
//! containerd asks one host for every registry and names the registry in the argument `ns`. Maps turn that and the path
//! into a digest; which blobs exist the file system knows. Two files come out: [`MAPS`] belongs into `http {}`, and
//! [`SERVER`] into a `server {}` that says before where the layout is: `set $halite_images /media/halite/images;`.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    oci::{Image, MANIFESTS},
    recipe::Reference,
};

/// Path of the maps in a bundle.
pub const MAPS: &str = "nginx/registry-maps.conf";

/// Path of the locations in a bundle.
pub const SERVER: &str = "nginx/registry.conf";

/// The locations. They are the same for every bundle: what differs is in the maps.
///
/// `default_type` takes no variable, hence a location for each media type. An error's body is what the specification
/// asks for. `ns` decides which registry is meant; without it a name is searched in all of them.
pub const LOCATIONS: &str = r#"# Serves the image layout below $halite_images as a registry; made by `ctl bundle build`.
location = /v2/ {
    if ($request_method !~ "^(GET|HEAD)$") { return 405; }
    error_page 405 = @halite_unsupported;
    default_type application/json;
    add_header Docker-Distribution-Api-Version registry/2.0 always;
    return 200 "{}";
}

location ~ "^/v2/.+/manifests/[^/]+$" {
    if ($request_method !~ "^(GET|HEAD)$") { return 405; }
    if ($halite_manifest = "") { return 404; }
    error_page 404 = @halite_manifest_unknown;
    error_page 405 = @halite_unsupported;
    rewrite ^ /.halite/manifest/$halite_manifest last;
}

location ~ "^/\.halite/manifest/oci/(?<halite_digest>[0-9a-f]{64})$" {
    internal;
    error_page 404 = @halite_manifest_unknown;
    types { }
    default_type application/vnd.oci.image.manifest.v1+json;
    add_header Docker-Content-Digest sha256:$halite_digest;
    add_header Docker-Distribution-Api-Version registry/2.0;
    alias $halite_images/blobs/sha256/$halite_digest;
}

location ~ "^/\.halite/manifest/docker/(?<halite_digest>[0-9a-f]{64})$" {
    internal;
    error_page 404 = @halite_manifest_unknown;
    types { }
    default_type application/vnd.docker.distribution.manifest.v2+json;
    add_header Docker-Content-Digest sha256:$halite_digest;
    add_header Docker-Distribution-Api-Version registry/2.0;
    alias $halite_images/blobs/sha256/$halite_digest;
}

location ~ "^/v2/.+/blobs/sha256:(?<halite_digest>[0-9a-f]{64})$" {
    if ($request_method !~ "^(GET|HEAD)$") { return 405; }
    error_page 404 = @halite_blob_unknown;
    error_page 405 = @halite_unsupported;
    types { }
    default_type application/octet-stream;
    add_header Docker-Content-Digest sha256:$halite_digest;
    add_header Docker-Distribution-Api-Version registry/2.0;
    alias $halite_images/blobs/sha256/$halite_digest;
}

location ~ "^/v2/.+/tags/list$" {
    if ($request_method !~ "^(GET|HEAD)$") { return 405; }
    if ($halite_tags = "") { return 404; }
    error_page 404 = @halite_name_unknown;
    error_page 405 = @halite_unsupported;
    default_type application/json;
    add_header Docker-Distribution-Api-Version registry/2.0;
    return 200 $halite_tags;
}

location /v2/ {
    if ($request_method !~ "^(GET|HEAD)$") { return 405; }
    error_page 404 = @halite_name_unknown;
    error_page 405 = @halite_unsupported;
    return 404;
}

location @halite_manifest_unknown {
    default_type application/json;
    return 404 '{"errors":[{"code":"MANIFEST_UNKNOWN","message":"this bundle has no such image"}]}';
}

location @halite_blob_unknown {
    default_type application/json;
    return 404 '{"errors":[{"code":"BLOB_UNKNOWN","message":"this bundle has no such blob"}]}';
}

location @halite_name_unknown {
    default_type application/json;
    return 404 '{"errors":[{"code":"NAME_UNKNOWN","message":"this bundle has no such image"}]}';
}

location @halite_unsupported {
    default_type application/json;
    return 405 '{"errors":[{"code":"UNSUPPORTED","message":"images of a bundle can only be pulled"}]}';
}
"#;

/// The maps for some images: from `ns` and path to what is served.
#[must_use]
pub fn maps(images: &[(Reference, Image)]) -> String {
    let mut manifests = Keys::default();
    let mut tags: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    for (reference, image) in images {
        let kind = if image.manifest.media_type == MANIFESTS[0] { "oci" } else { "docker" };
        let target = format!("{kind}/{}", image.manifest.hex().unwrap_or_default());
        for name in [reference.tag.as_str(), image.manifest.digest.as_str()] {
            manifests.add(reference, &format!("manifests/{name}"), &target);
        }
        tags.entry((&reference.registry, &reference.repository)).or_default().insert(&reference.tag);
    }
    let mut lists = Keys::default();
    for (reference, _) in images {
        let known = &tags[&(reference.registry.as_str(), reference.repository.as_str())];
        let known: Vec<String> = known.iter().map(|tag| format!("\"{tag}\"")).collect();
        let body = format!("{{\"name\":\"{}\",\"tags\":[{}]}}", reference.repository, known.join(","));
        lists.add(reference, "tags/list", &body);
    }
    let longest = manifests.longest().max(lists.longest());
    format!(
        "# From registry and path to what is served; made by `ctl bundle build` from the bundle's images.\n\
         map_hash_bucket_size {};\nmap_hash_max_size {};\n\n{}\n{}",
        (longest + 64).next_power_of_two().max(128),
        ((manifests.targets.len() + lists.targets.len()) * 4).next_power_of_two().max(2048),
        manifests.map("halite_manifest"),
        lists.map("halite_tags"),
    )
}

/// The entries of one map.
#[derive(Default)]
struct Keys {
    /// `None` where two registries have a name for different things.
    targets: BTreeMap<String, Option<String>>,
}

impl Keys {
    /// Adds what `path` within an image's name leads to, under each spelling.
    fn add(&mut self, reference: &Reference, path: &str, target: &str) {
        let Reference { registry, repository, .. } = reference;
        // A port's colon may arrive escaped: nginx does not undo that in arguments.
        let escaped = registry.replace(':', "%3A");
        self.set(format!("{registry}/v2/{repository}/{path}"), target);
        self.set(format!("{escaped}/v2/{repository}/{path}"), target);
        self.set(format!("/v2/{registry}/{repository}/{path}"), target);
        self.set(format!("/v2/{repository}/{path}"), target);
    }

    fn set(&mut self, key: String, target: &str) {
        let entry = self.targets.entry(key).or_insert_with(|| Some(target.to_owned()));
        if entry.as_deref() != Some(target) {
            *entry = None;
        }
    }

    fn longest(&self) -> usize {
        self.targets.keys().map(String::len).max().unwrap_or_default()
    }

    fn map(&self, variable: &str) -> String {
        let mut text = format!("map $arg_ns$uri ${variable} {{\n    default \"\";\n");
        for (key, target) in &self.targets {
            if let Some(target) = target {
                text.push_str(&format!("    \"{key}\" '{target}';\n"));
            }
        }
        text.push_str("}\n");
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::Descriptor;

    fn image(text: &str, digit: &str) -> (Reference, Image) {
        let manifest = Descriptor {
            media_type: MANIFESTS[0].into(),
            digest: format!("sha256:{}", digit.repeat(64)),
            size: 1,
            annotations: BTreeMap::new(),
            platform: None,
        };
        (Reference::parse(text).unwrap(), Image { manifest, parts: Vec::new() })
    }

    #[test]
    fn maps_of_two_images() {
        let maps = maps(&[image("registry.k8s.io/pause:3.10.2", "a"), image("localhost:5000/a/b:1", "b")]);
        let golden = include_str!("../tests/bundle/golden/registry-maps.conf");
        assert_eq!(maps, golden, "\n{maps}");
    }

    #[test]
    fn a_name_that_two_registries_have_needs_the_registry() {
        let maps = maps(&[image("one.example/a:1", "a"), image("two.example/a:1", "b")]);
        assert!(maps.contains("\"one.example/v2/a/manifests/1\""));
        assert!(maps.contains("\"/v2/two.example/a/manifests/1\""));
        assert!(!maps.contains("    \"/v2/a/manifests/1\""));
        // The lists of tags are equal, so there is no doubt about them.
        assert!(maps.contains("\"/v2/a/tags/list\""));
    }
}
