//! Images by their digests.

use halite_testkit::put;
use halite_testkit::registry::OCI_INDEX;

use super::*;

#[test]
fn by_its_digest_a_server_has_an_image_or_none_and_never_another() {
    let (site, bundles) = two();
    let server = Server::start(&site, &bundles);
    let manifest = halite_manifest::manifest::load(&bundles[0].1).unwrap();
    let (name, digest) = manifest.images["coredns"].split_once('@').unwrap();
    let (repository, tag) = name.rsplit_once(':').unwrap();
    let repository = repository.strip_prefix("registry.k8s.io/").unwrap();
    let get = |version: &str, name: &str| {
        let path =
            format!("/bundles/{version}/v2/{repository}/manifests/{name}?ns=registry.k8s.io");
        server.get(&path)
    };
    let answer = get("0.1.0", digest);
    assert_eq!(format!("sha256:{}", hex(&answer.body)), digest);
    // The second bundle has another image under the same tag.
    assert_eq!(get("0.2.0", tag).status(), "200");
    assert_ne!(get("0.2.0", tag).body, answer.body);
    assert_eq!(get("0.2.0", digest).status(), "404");
}

/// Puts the image of a layout below an index of two platforms, only one of which is in the layout;
/// returns the index.
fn below_an_index(layout: &Path) -> Vec<u8> {
    let path = layout.join("index.json");
    let mut listed: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    let entry = &mut listed["manifests"][0];
    let mut amd64 = entry.clone();
    amd64.as_object_mut().unwrap().remove("annotations");
    amd64["platform"] = json!({"os": "linux", "architecture": "amd64"});
    let mut arm64 = amd64.clone();
    arm64["digest"] = json!(format!("sha256:{}", hex(b"not in the layout")));
    arm64["platform"]["architecture"] = json!("arm64");
    let index = json!({"schemaVersion": 2, "mediaType": OCI_INDEX, "manifests": [arm64, amd64]});
    let index = index.to_string().into_bytes();
    put(&layout.join("blobs/sha256").join(hex(&index)), &index);
    entry["mediaType"] = json!(OCI_INDEX);
    entry["digest"] = json!(format!("sha256:{}", hex(&index)));
    entry["size"] = json!(index.len());
    put(&path, listed.to_string().as_bytes());
    index
}

#[test]
fn an_image_is_also_served_by_the_digest_of_its_index() {
    let site = Site::new();
    let index = below_an_index(&site.path("images/etcd"));
    let made = site.build("bundle").unwrap();
    let bundle = site.path("bundle");
    let found = halite_bundle::verify(&bundle, &mut |_| ()).unwrap();
    assert_eq!(found.problems, []);
    let server = Server::start(&site, &[("0.1.0", bundle)]);
    let ask = |name: &str| server.get(&format!("/v2/etcd/manifests/{name}?ns=registry.k8s.io"));
    let answer = ask(&format!("sha256:{}", hex(&index)));
    assert_eq!(answer.status(), "200", "{}", answer.head);
    assert_eq!(answer.header("content-type"), OCI_INDEX);
    assert_eq!(answer.body, index);
    // containerd continues with the entry for its platform, which the bundle names.
    let amd64 = answer.json()["manifests"][1]["digest"].clone();
    assert!(made.images["etcd"].ends_with(&format!("@{}", amd64.as_str().unwrap())));
    let manifest = ask(amd64.as_str().unwrap());
    assert_eq!(manifest.status(), "200", "{}", manifest.head);
    assert_eq!(ask("3.6.8-0").body, manifest.body);
    assert_eq!(
        pull(&server, "/v2", "etcd", "3.6.8-0", "?ns=registry.k8s.io"),
        b"etcd"
    );
    // Nothing exists for the other platform.
    let arm64 = answer.json()["manifests"][0]["digest"].clone();
    assert_eq!(ask(arm64.as_str().unwrap()).status(), "404");
}
