//! Several bundles at the same time, pulled from a real nginx with the configuration that the state
//! tree renders.

mod digests;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use halite_states::compile;
use halite_states::compile::Input;
use halite_states::tree::DirTree;
use halite_testkit::{Nginx, SharedSite, Site, SiteCopy, hex, layout, put};
use serde_json::{Value, json};

use crate::shared::built;

/// An nginx that serves bundles.
struct Server(Nginx);

/// The configuration that the state tree renders for a bootstrap host with these bundles; the first
/// one is in use.
fn configuration(bundles: &[(&str, PathBuf)]) -> String {
    let states = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../states");
    let fixture = fs::read_to_string(states.join("tests/tree/bootstrap.json")).unwrap();
    let fixture: Value = serde_json::from_str(&fixture).unwrap();
    let mut pillar = fixture["pillar"].clone();
    let each = |(version, path): &(&str, PathBuf)| json!({"version": version, "kubernetes": "", "path": path, "manifest": ""});
    pillar["halite"]["bundles"] = bundles.iter().map(each).collect();
    pillar["halite"]["bundle"]["version"] = json!(bundles[0].0);
    let tree = DirTree::new().root(states.join("tree"));
    let input = Input {
        tree: &tree,
        minion: "bootstrap-1",
        pillar: &pillar,
        grains: &fixture["grains"],
        bundle: &|path| Some(hex(path.as_bytes())),
    };
    let compiled = compile::sls(&input, &["halite.services.bundle_server".to_owned()]);
    let compiled = compiled.unwrap_or_else(|problems| panic!("{problems:?}"));
    let file = compiled
        .low
        .chunks
        .iter()
        .find(|chunk| chunk.name == "/etc/nginx/conf.d/halite.conf")
        .unwrap();
    file.args["contents"].as_str().unwrap().to_owned()
}

impl Server {
    fn start(site: &Site, bundles: &[(&str, PathBuf)]) -> Self {
        // In this test it serves without TLS, on a free port, and without an error log.
        let ours = |port| {
            configuration(bundles)
                .replace(
                    "listen 10.10.0.11:4551 ssl",
                    &format!("listen 127.0.0.1:{port}"),
                )
                // A state copies this file.
                .replace(
                    "/etc/halite/nginx/registry.conf",
                    &format!("{}/nginx/registry.conf*", bundles[0].1.display()),
                )
                .lines()
                .filter(|line| {
                    !["listen 127.0.0.1:4551", "ssl_", "error_log"]
                        .iter()
                        .any(|begin| line.trim().starts_with(begin))
                })
                .map(|line| format!("{line}\n"))
                .collect()
        };
        Self(Nginx::start(&site.path("nginx"), ours))
    }

    fn ask(&self, method: &str, path: &str) -> Answer {
        let mut stream = TcpStream::connect(("127.0.0.1", self.0.port)).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: halite\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap();
        Answer {
            head: String::from_utf8_lossy(&bytes[..end]).into_owned(),
            body: bytes[end + 4..].to_vec(),
        }
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path)
    }
}

struct Answer {
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn status(&self) -> &str {
        self.head.split(' ').nth(1).unwrap()
    }

    fn header(&self, name: &str) -> &str {
        let mut headers = self.head.lines().filter_map(|line| line.split_once(": "));
        headers
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map_or("", |(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {:?}", String::from_utf8_lossy(&self.body)))
    }
}

/// Pulls an image as containerd does, from the API at `root`; returns its layer.
fn pull(server: &Server, root: &str, repository: &str, tag: &str, suffix: &str) -> Vec<u8> {
    let head = server.ask(
        "HEAD",
        &format!("{root}/{repository}/manifests/{tag}{suffix}"),
    );
    assert_eq!(head.status(), "200", "{}", head.head);
    assert!(head.body.is_empty());
    let digest = head.header("docker-content-digest");
    let answer = server.get(&format!("{root}/{repository}/manifests/{digest}{suffix}"));
    assert_eq!(answer.status(), "200", "{}", answer.head);
    assert_eq!(
        answer.header("content-type"),
        "application/vnd.oci.image.manifest.v1+json"
    );
    assert_eq!(
        answer.header("content-length"),
        head.header("content-length")
    );
    assert_eq!(format!("sha256:{}", hex(&answer.body)), digest);
    let manifest = answer.json();
    let mut layer = Vec::new();
    for part in [&manifest["config"], &manifest["layers"][0]] {
        let digest = part["digest"].as_str().unwrap();
        let path = format!("{root}/{repository}/blobs/{digest}{suffix}");
        let answer = server.get(&path);
        assert_eq!(answer.status(), "200", "{}", answer.head);
        assert_eq!(answer.header("docker-content-digest"), digest);
        assert_eq!(answer.header("content-type"), "application/octet-stream");
        assert_eq!(format!("sha256:{}", hex(&answer.body)), digest);
        assert_eq!(
            server.ask("HEAD", &path).header("content-length"),
            answer.body.len().to_string()
        );
        layer = answer.body;
    }
    layer
}

/// A site with two bundles: the second has another etcd, and its CoreDNS image changed under the
/// same tag.
fn two() -> (SiteCopy, [(&'static str, PathBuf); 2]) {
    static TWO: SharedSite = SharedSite::new();
    let site = TWO.copy(|| {
        let mut site = Site::new();
        site.build("bundle").unwrap();
        site.recipe["version"] = json!("0.2.0");
        layout(
            &site.path("images/etcd"),
            "registry.k8s.io/etcd:3.6.9-0",
            b"etcd, the next",
        );
        layout(
            &site.path("images/coredns"),
            "registry.k8s.io/coredns/coredns:v1.14.2",
            b"coredns, rebuilt",
        );
        let images = site.recipe["images"].as_array_mut().unwrap();
        let etcd = images
            .iter_mut()
            .find(|image| image["component"] == "etcd")
            .unwrap();
        etcd["reference"] = json!("registry.k8s.io/etcd:3.6.9-0");
        site.renew("next");
        site
    });
    let bundles = [("0.1.0", site.path("bundle")), ("0.2.0", site.path("next"))];
    (site, bundles)
}

#[test]
fn each_bundle_has_its_own_images_and_files() {
    let (site, bundles) = two();
    let server = Server::start(&site, &bundles);
    for (root, etcd, coredns) in [
        (
            "/bundles/0.1.0/v2",
            ("3.6.8-0", &b"etcd"[..]),
            &b"coredns"[..],
        ),
        (
            "/bundles/0.2.0/v2",
            ("3.6.9-0", b"etcd, the next"),
            b"coredns, rebuilt",
        ),
        // The bundle in use.
        ("/v2", ("3.6.8-0", b"etcd"), b"coredns"),
    ] {
        let ping = server.get(&format!("{root}/"));
        assert_eq!(
            (
                ping.status(),
                ping.header("docker-distribution-api-version")
            ),
            ("200", "registry/2.0")
        );
        for (name, suffix) in [
            ("", "?ns=registry.k8s.io"),
            ("", ""),
            ("registry.k8s.io/", ""),
        ] {
            assert_eq!(
                pull(&server, root, &format!("{name}etcd"), etcd.0, suffix),
                etcd.1
            );
            assert_eq!(
                pull(
                    &server,
                    root,
                    &format!("{name}coredns/coredns"),
                    "v1.14.2",
                    suffix
                ),
                coredns
            );
        }
        assert_eq!(
            pull(
                &server,
                root,
                "flannel-io/flannel",
                "v0.28.4",
                "?ns=ghcr.io"
            ),
            b"flannel"
        );
        let tags = server.get(&format!("{root}/etcd/tags/list?ns=registry.k8s.io"));
        assert_eq!(tags.json(), json!({"name": "etcd", "tags": [etcd.0]}));
    }
    for (version, bundle) in &bundles {
        let manifest = halite_manifest::manifest::load(bundle).unwrap();
        for path in manifest
            .files
            .keys()
            .map(String::as_str)
            .chain(["manifest.json", "manifest.json.sha256"])
        {
            let answer = server.get(&format!("/bundles/{version}/{path}"));
            assert_eq!(answer.status(), "200", "{path}");
            assert_eq!(answer.body, fs::read(bundle.join(path)).unwrap(), "{path}");
        }
    }
    for path in [
        "/bundles/0.3.0/v2/",
        "/bundles/0.3.0/v2/etcd/manifests/3.6.8-0",
        "/bundles/0.3.0/manifest.json",
        "/bundles/0.1.0/nothing",
        "/bundles/0.1.0/../../../../../etc/passwd",
        "/bundles/0.1.0/%2e%2e/next/manifest.json",
        "/bundles/",
        "/manifest.json",
    ] {
        let status = server.get(path).status().to_owned();
        assert!(
            ["400", "404"].contains(&status.as_str()),
            "{path}: {status}"
        );
    }
}

#[test]
fn people_read_the_documentation_of_the_bundle_in_use() {
    let mut site = Site::new();
    for (path, text) in [
        ("docs/index.html", &b"<p>start</p>"[..]),
        ("docs/guide/a.html", b"<p>a</p>"),
        ("docs/search-1.js", b"window.search"),
    ] {
        put(&site.path(path), text);
    }
    site.recipe["docs"] = json!("docs");
    site.renew("bundle");
    let server = Server::start(&site, &[("0.1.0", site.path("bundle"))]);
    for (path, body) in [
        ("/docs/", &b"<p>start</p>"[..]),
        ("/docs/index.html", b"<p>start</p>"),
        ("/docs/guide/a.html", b"<p>a</p>"),
        ("/bundles/0.1.0/docs/search-1.js", b"window.search"),
    ] {
        let answer = server.get(path);
        assert_eq!(
            (answer.status(), answer.body.as_slice()),
            ("200", body),
            "{path}"
        );
        // The distribution's configuration names the types of other files.
        if path.ends_with(".html") {
            assert_eq!(answer.header("content-type"), "text/html", "{path}");
        }
    }
    assert_eq!(server.get("/docs").header("location"), "/docs/");
    assert_eq!(server.get("/docs/no.html").status(), "404");
    assert_eq!(server.ask("PUT", "/docs/index.html").status(), "405");
}

#[test]
fn a_bundle_that_is_taken_out_holds_up_no_other() {
    let (site, bundles) = two();
    for (gone, left, tag) in [(0, 1, "3.6.9-0"), (1, 0, "3.6.8-0")] {
        let [taken, away] = [bundles[gone].1.clone(), site.path("away")];
        fs::rename(&taken, &away).unwrap();
        // As after a restart of the host.
        let server = Server::start(&site, &bundles);
        let root = |of: usize| format!("/bundles/{}/v2", bundles[of].0);
        if left == 0 {
            assert!(!pull(&server, &root(left), "etcd", tag, "?ns=registry.k8s.io").is_empty());
        }
        let answer = server.get(&format!(
            "{}/etcd/manifests/{tag}?ns=registry.k8s.io",
            root(gone)
        ));
        assert_eq!(answer.status(), "404", "{}", answer.head);
        drop(server);
        fs::rename(&away, &taken).unwrap();
    }
}

#[test]
fn names_and_tags_are_listed_in_pages() {
    let (site, bundles) = two();
    let server = Server::start(&site, &bundles);
    let whole = server.get("/v2/_catalog").json();
    let names: Vec<&str> = whole["repositories"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_str().unwrap())
        .collect();
    assert_eq!(names.len(), 9);
    assert!(
        names.is_sorted() && names.contains(&"ghcr.io/flannel-io/flannel"),
        "{names:?}"
    );
    // Each listed image can be pulled by its name.
    assert_eq!(
        pull(&server, "/v2", "ghcr.io/flannel-io/flannel", "v0.28.4", ""),
        b"flannel"
    );
    for n in ["1", "4", "10", "37", "1000"] {
        let (mut seen, mut next) = (Vec::new(), format!("/v2/_catalog?n={n}"));
        loop {
            let answer = server.get(&next);
            assert_eq!(answer.status(), "200", "{next}: {}", answer.head);
            let page = answer.json()["repositories"].as_array().unwrap().clone();
            assert!(page.len() <= n.parse().unwrap(), "{next}: {page:?}");
            seen.extend(page.iter().map(|name| name.as_str().unwrap().to_owned()));
            let link = answer.header("link");
            if link.is_empty() {
                break;
            }
            next = link
                .strip_prefix('<')
                .unwrap()
                .strip_suffix(">; rel=\"next\"")
                .unwrap()
                .to_owned();
        }
        assert_eq!(seen, names, "n={n}");
    }
    let of = |path: &str| server.get(path).json();
    assert_eq!(of("/v2/_catalog?n=0"), json!({"repositories": []}));
    assert_eq!(
        of("/v2/_catalog?ns=ghcr.io"),
        json!({"repositories": ["flannel-io/flannel", "flannel-io/flannel-cni-plugin"]})
    );
    assert_eq!(
        of("/v2/_catalog?ns=ghcr.io&last=flannel-io%2Fflannel"),
        json!({"repositories": ["flannel-io/flannel-cni-plugin"]})
    );
    assert_eq!(
        of("/bundles/0.2.0/v2/etcd/tags/list?n=5"),
        json!({"name": "etcd", "tags": ["3.6.9-0"]})
    );
    assert_eq!(
        of("/v2/etcd/tags/list?last=3.6.8-0"),
        json!({"name": "etcd", "tags": []})
    );
    let wrong = server.get("/v2/_catalog?n=many");
    assert_eq!(
        (wrong.status(), &wrong.json()["errors"][0]["code"]),
        ("400", &json!("PAGINATION_NUMBER_INVALID"))
    );
}

#[test]
fn what_is_not_there_and_what_would_write_is_refused() {
    let site = built();
    let server = Server::start(&site, &[("0.1.0", site.path("bundle"))]);
    for root in ["/v2", "/bundles/0.1.0/v2"] {
        for (path, code) in [
            (
                "/etcd/manifests/3.6.9-0?ns=registry.k8s.io",
                "MANIFEST_UNKNOWN",
            ),
            ("/etcd/manifests/3.6.8-0?ns=docker.io", "MANIFEST_UNKNOWN"),
            (
                &format!(
                    "/etcd/manifests/sha256:{}?ns=registry.k8s.io",
                    "0".repeat(64)
                ),
                "MANIFEST_UNKNOWN",
            ),
            (
                &format!("/etcd/blobs/sha256:{}?ns=registry.k8s.io", "0".repeat(64)),
                "BLOB_UNKNOWN",
            ),
            ("/other/tags/list", "NAME_UNKNOWN"),
            ("/_catalog?ns=docker.io", "NAME_UNKNOWN"),
            ("/etcd/blobs/sha256:../../index.json", "NAME_UNKNOWN"),
        ] {
            let answer = server.get(&format!("{root}{path}"));
            assert_eq!(answer.status(), "404", "{path}: {}", answer.head);
            assert_eq!(answer.header("content-type"), "application/json", "{path}");
            assert_eq!(answer.header("docker-content-digest"), "", "{path}");
            assert_eq!(answer.json()["errors"][0]["code"], code, "{path}");
        }
        for path in [
            "/",
            "/_catalog",
            "/etcd/manifests/3.6.8-0",
            "/etcd/blobs/uploads/",
            "/etcd/tags/list",
            &format!("/etcd/blobs/sha256:{}", hex(b"etcd")),
        ] {
            for method in ["POST", "PUT", "DELETE", "PATCH"] {
                let answer = server.ask(method, &format!("{root}{path}"));
                assert_eq!(answer.status(), "405", "{method} {path}: {}", answer.head);
                assert_eq!(
                    answer.json()["errors"][0]["code"],
                    "UNSUPPORTED",
                    "{method} {path}"
                );
            }
        }
    }
    for method in ["POST", "PUT", "DELETE", "PATCH"] {
        assert_eq!(
            server.ask(method, "/bundles/0.1.0/manifest.json").status(),
            "405",
            "{method}"
        );
    }
    // Internal locations cannot be requested.
    assert_eq!(
        server
            .get(&format!("/.halite/manifest/oci/{}", hex(b"etcd")))
            .status(),
        "404"
    );
}

/// The disk with a bundle is removed while nginx runs.
#[test]
fn a_removed_bundle_does_not_break_the_others() {
    let (site, bundles) = two();
    let server = Server::start(&site, &bundles);
    fs::rename(&bundles[0].1, site.path("away")).unwrap();
    let answer = server.get("/v2/etcd/manifests/3.6.8-0?ns=registry.k8s.io");
    assert_eq!(
        (answer.status(), &answer.json()["errors"][0]["code"]),
        ("404", &json!("MANIFEST_UNKNOWN"))
    );
    assert_eq!(server.get("/bundles/0.1.0/manifest.json").status(), "404");
    assert_eq!(
        pull(&server, "/bundles/0.2.0/v2", "etcd", "3.6.9-0", ""),
        b"etcd, the next"
    );
    fs::rename(site.path("away"), &bundles[0].1).unwrap();
    assert_eq!(pull(&server, "/v2", "etcd", "3.6.8-0", ""), b"etcd");
}
