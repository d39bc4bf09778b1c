//! Finds the images that cannot be pulled without certain blobs: a manifest names its layers, or
//! other manifests.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::digest::Digest;
use crate::tree::{LinkKind, Tree};

/// Removes from a registry's links those that name damaged blobs, and those that name manifests
/// which need one, directly or through other manifests. `read` returns the content of a manifest.
/// Returns the images that cannot be pulled for that reason: `REPOSITORY:TAG` and
/// `REPOSITORY@DIGEST`.
pub fn remove_damaged(
    tree: &mut Tree,
    damaged: &BTreeSet<Digest>,
    read: impl Fn(&Digest) -> Vec<u8>,
) -> Vec<String> {
    let all: BTreeSet<&Digest> = tree
        .links
        .values()
        .filter(|link| link.kind != LinkKind::Layer)
        .map(|link| &link.digest)
        .collect();
    let mut intact: BTreeMap<&Digest, Vec<Digest>> = all
        .into_iter()
        .filter(|manifest| !damaged.contains(*manifest))
        .map(|manifest| (manifest, parts(&read(manifest))))
        .collect();
    let mut broken = damaged.clone();
    loop {
        let before = intact.len();
        intact.retain(|manifest, parts| {
            let is_intact = !parts.iter().any(|part| broken.contains(part));
            if !is_intact {
                broken.insert((*manifest).clone());
            }
            is_intact
        });
        if intact.len() == before {
            break;
        }
    }
    let (mut lost, mut gone) = (Vec::new(), Vec::new());
    for (path, link) in &tree.links {
        let out = if link.kind == LinkKind::Layer {
            damaged
        } else {
            &broken
        };
        if !out.contains(&link.digest) {
            continue;
        }
        gone.push(path.clone());
        match link.kind {
            LinkKind::Tag => {
                let tag = path
                    .strip_suffix("/current/link")
                    .and_then(|path| path.rsplit('/').next());
                lost.push(format!("{}:{}", link.repository, tag.unwrap_or_default()));
            }
            LinkKind::Revision => lost.push(format!("{}@{}", link.repository, link.digest)),
            LinkKind::Layer | LinkKind::History => {}
        }
    }
    gone.iter().for_each(|path| tree.drop_link(path));
    lost.sort_unstable();
    lost
}

/// The blobs and manifests that a manifest of any kind needs to be pulled
/// (<https://github.com/opencontainers/image-spec/blob/main/manifest.md>, `image-index.md` there,
/// and Docker's).
fn parts(manifest: &[u8]) -> Vec<Digest> {
    let manifest: Value = serde_json::from_slice(manifest).unwrap_or_default();
    let lists = ["manifests", "layers", "fsLayers"].map(|key| manifest[key].as_array());
    let each = lists
        .into_iter()
        .flatten()
        .flatten()
        .chain(manifest.get("config"));
    let digests =
        each.filter_map(|part| part["digest"].as_str().or_else(|| part["blobSum"].as_str()));
    digests.filter_map(|digest| digest.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_manifest_names_its_parts() {
        let digest = |n: u8| format!("sha256:{}", format!("{n:x}").repeat(64));
        for (manifest, expected) in [
            (
                format!(
                    r#"{{"config": {{"digest": "{}"}}, "layers": [{{"digest": "{}"}}]}}"#,
                    digest(1),
                    digest(2)
                ),
                vec![2, 1],
            ),
            (
                format!(
                    r#"{{"manifests": [{{"digest": "{}"}}, {{"digest": "{}"}}]}}"#,
                    digest(3),
                    digest(4)
                ),
                vec![3, 4],
            ),
            (
                format!(r#"{{"fsLayers": [{{"blobSum": "{}"}}]}}"#, digest(5)),
                vec![5],
            ),
            // The subject of a manifest is not needed.
            (
                format!(
                    r#"{{"subject": {{"digest": "{}"}}, "layers": []}}"#,
                    digest(6)
                ),
                vec![],
            ),
            ("no JSON".to_owned(), vec![]),
        ] {
            let found: Vec<String> = parts(manifest.as_bytes())
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(
                found,
                expected.into_iter().map(digest).collect::<Vec<_>>(),
                "{manifest}"
            );
        }
    }
}
