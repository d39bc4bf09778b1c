//! Which images need a blob: a manifest names its parts, and other manifests.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::digest::Digest;
use super::tree::{Kind, Tree};

/// Takes out of a registry's links all that lead to damaged blobs, and to manifests that name one,
/// or name such a manifest. `read` gives the content of a manifest. What cannot be pulled for that
/// reason: `REPOSITORY:TAG` and `REPOSITORY@DIGEST`.
pub fn leave_out(
    tree: &mut Tree,
    damaged: &BTreeSet<Digest>,
    read: impl Fn(&Digest) -> Vec<u8>,
) -> Vec<String> {
    let all: BTreeSet<&Digest> = tree
        .links
        .values()
        .filter(|link| link.kind != Kind::Layer)
        .map(|link| &link.digest)
        .collect();
    let mut whole: BTreeMap<&Digest, Vec<Digest>> = all
        .into_iter()
        .filter(|manifest| !damaged.contains(*manifest))
        .map(|manifest| (manifest, named(&read(manifest))))
        .collect();
    let mut broken = damaged.clone();
    loop {
        let before = whole.len();
        whole.retain(|manifest, parts| {
            let good = !parts.iter().any(|part| broken.contains(part));
            if !good {
                broken.insert((*manifest).clone());
            }
            good
        });
        if whole.len() == before {
            break;
        }
    }
    let (mut lost, mut gone) = (Vec::new(), Vec::new());
    for (path, link) in &tree.links {
        let out = if link.kind == Kind::Layer {
            damaged
        } else {
            &broken
        };
        if !out.contains(&link.digest) {
            continue;
        }
        gone.push(path.clone());
        match link.kind {
            Kind::Tag => {
                let tag = path
                    .strip_suffix("/current/link")
                    .and_then(|path| path.rsplit('/').next());
                lost.push(format!("{}:{}", link.repository, tag.unwrap_or_default()));
            }
            Kind::Revision => lost.push(format!("{}@{}", link.repository, link.digest)),
            Kind::Layer | Kind::History => {}
        }
    }
    gone.iter().for_each(|path| tree.drop_link(path));
    lost.sort_unstable();
    lost
}

/// What has to be there for a manifest to be pulled, whichever kind it is of
/// (<https://github.com/opencontainers/image-spec/blob/main/manifest.md>, `image-index.md` there,
/// and Docker's).
fn named(manifest: &[u8]) -> Vec<Digest> {
    let manifest: Value = serde_json::from_slice(manifest).unwrap_or_default();
    let lists = ["manifests", "layers", "fsLayers"].map(|key| manifest[key].as_array());
    let parts = lists
        .into_iter()
        .flatten()
        .flatten()
        .chain(manifest.get("config"));
    let digests =
        parts.filter_map(|part| part["digest"].as_str().or_else(|| part["blobSum"].as_str()));
    digests.filter_map(|digest| digest.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_manifest_names_its_parts() {
        let digest = |n: u8| format!("sha256:{}", format!("{n:x}").repeat(64));
        for (manifest, wanted) in [
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
            // What a manifest is about need not be there.
            (
                format!(
                    r#"{{"subject": {{"digest": "{}"}}, "layers": []}}"#,
                    digest(6)
                ),
                vec![],
            ),
            ("no JSON".to_owned(), vec![]),
        ] {
            let found: Vec<String> = named(manifest.as_bytes())
                .iter()
                .map(ToString::to_string)
                .collect();
            assert_eq!(
                found,
                wanted.into_iter().map(digest).collect::<Vec<_>>(),
                "{manifest}"
            );
        }
    }
}
