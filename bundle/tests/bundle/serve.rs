//! The images of a bundle, pulled from a real nginx.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::Command,
};

use crate::site::{Site, hex};
use serde_json::{Value, json};

/// An nginx of our own that serves one bundle; stopped when dropped.
struct Server {
    conf: PathBuf,
    address: String,
}

impl Server {
    fn start(site: &Site, bundle: &Path) -> Self {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let dir = site.path("nginx");
        fs::create_dir_all(&dir).unwrap();
        let conf = dir.join("nginx.conf");
        // One process, the test's own: whoever runs the test may read the files.
        let text = format!(
            "pid {dir}/pid; error_log {dir}/error.log; master_process off; events {{}}\n\
             http {{ access_log off; client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;\n\
             fastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;\n\
             include {bundle}/nginx/registry-maps.conf;\n\
             server {{ listen {address}; set $halite_images {bundle}/images; include {bundle}/nginx/registry.conf; }} }}\n",
            dir = dir.display(),
            bundle = bundle.display(),
        );
        fs::write(&conf, text).unwrap();
        let server = Self { conf, address };
        server.nginx(&["-t"]);
        // It goes to the background when it listens.
        server.nginx(&[]);
        server
    }

    fn nginx(&self, args: &[&str]) {
        let nginx = if Path::new("/usr/sbin/nginx").exists() { "/usr/sbin/nginx" } else { "nginx" };
        let output = Command::new(nginx).arg("-c").arg(&self.conf).args(args).output();
        let output = output.expect("this test needs nginx: install the package nginx-light");
        assert!(output.status.success(), "nginx {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn ask(&self, method: &str, path: &str) -> Answer {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address)
            .unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        Answer { head: String::from_utf8_lossy(&bytes[..end]).into_owned(), body: bytes[end + 4..].to_vec() }
    }

    fn get(&self, path: &str) -> Answer {
        self.ask("GET", path)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.nginx(&["-s", "stop"]);
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
        headers.find(|(key, _)| key.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|e| panic!("{e}: {:?}", String::from_utf8_lossy(&self.body)))
    }
}

/// Pulls an image as containerd does; returns its layer.
fn pull(server: &Server, repository: &str, tag: &str, suffix: &str) -> Vec<u8> {
    let head = server.ask("HEAD", &format!("/v2/{repository}/manifests/{tag}{suffix}"));
    assert_eq!(head.status(), "200", "{}", head.head);
    assert!(head.body.is_empty());
    let digest = head.header("docker-content-digest");
    let answer = server.get(&format!("/v2/{repository}/manifests/{digest}{suffix}"));
    assert_eq!(answer.status(), "200", "{}", answer.head);
    assert_eq!(answer.header("content-type"), "application/vnd.oci.image.manifest.v1+json");
    assert_eq!(answer.header("content-length"), head.header("content-length"));
    assert_eq!(format!("sha256:{}", hex(&answer.body)), digest);
    let manifest = answer.json();
    let mut layer = Vec::new();
    for part in [&manifest["config"], &manifest["layers"][0]] {
        let digest = part["digest"].as_str().unwrap();
        let answer = server.get(&format!("/v2/{repository}/blobs/{digest}{suffix}"));
        assert_eq!(answer.status(), "200", "{}", answer.head);
        assert_eq!(answer.header("docker-content-digest"), digest);
        assert_eq!(answer.header("content-type"), "application/octet-stream");
        assert_eq!(format!("sha256:{}", hex(&answer.body)), digest);
        layer = answer.body;
    }
    layer
}

#[test]
fn images_are_pulled_and_everything_else_is_refused() {
    let site = Site::new();
    site.build("bundle").unwrap();
    let server = Server::start(&site, &site.path("bundle"));

    let ping = server.get("/v2/");
    assert_eq!((ping.status(), ping.header("docker-distribution-api-version")), ("200", "registry/2.0"));
    for (repository, tag, suffix) in [
        ("coredns/coredns", "v1.14.2", "?ns=registry.k8s.io"),
        ("flannel-io/flannel", "v0.28.4", "?ns=ghcr.io"),
        ("coredns/coredns", "v1.14.2", ""),
        ("registry.k8s.io/coredns/coredns", "v1.14.2", ""),
    ] {
        let component = repository.rsplit('/').next().unwrap();
        assert_eq!(pull(&server, repository, tag, suffix), component.as_bytes(), "{repository}");
    }
    let tags = server.get("/v2/etcd/tags/list?ns=registry.k8s.io");
    assert_eq!(tags.json(), json!({"name": "etcd", "tags": ["3.6.8-0"]}));

    for (path, code) in [
        ("/v2/etcd/manifests/3.6.9-0?ns=registry.k8s.io", "MANIFEST_UNKNOWN"),
        ("/v2/etcd/manifests/3.6.8-0?ns=docker.io", "MANIFEST_UNKNOWN"),
        (&format!("/v2/etcd/manifests/sha256:{}?ns=registry.k8s.io", "0".repeat(64)), "MANIFEST_UNKNOWN"),
        (&format!("/v2/etcd/blobs/sha256:{}?ns=registry.k8s.io", "0".repeat(64)), "BLOB_UNKNOWN"),
        ("/v2/other/tags/list", "NAME_UNKNOWN"),
        ("/v2/_catalog", "NAME_UNKNOWN"),
        ("/v2/etcd/blobs/sha256:../../index.json", "NAME_UNKNOWN"),
    ] {
        let answer = server.get(path);
        assert_eq!(answer.status(), "404", "{path}: {}", answer.head);
        assert_eq!(answer.header("content-type"), "application/json", "{path}");
        assert_eq!(answer.header("docker-content-digest"), "", "{path}");
        assert_eq!(answer.json()["errors"][0]["code"], code, "{path}");
    }
    for path in [
        "/v2/",
        "/v2/etcd/manifests/3.6.8-0",
        "/v2/etcd/blobs/uploads/",
        "/v2/etcd/tags/list",
        &format!("/v2/etcd/blobs/sha256:{}", hex(b"etcd")),
    ] {
        for method in ["POST", "PUT", "DELETE", "PATCH"] {
            let answer = server.ask(method, path);
            assert_eq!(answer.status(), "405", "{method} {path}: {}", answer.head);
            assert_eq!(answer.json()["errors"][0]["code"], "UNSUPPORTED", "{method} {path}");
        }
    }
    // What is internal cannot be asked for.
    assert_eq!(server.get(&format!("/.halite/manifest/oci/{}", hex(b"etcd"))).status(), "404");
}
