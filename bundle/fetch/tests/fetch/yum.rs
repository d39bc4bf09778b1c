//! A yum repository made with rpmbuild and createrepo_c.

use std::path::PathBuf;

use halite_durable::Digest;
use halite_errors::chain;
use halite_fetch::{Error, Keyring, yum};
use halite_testkit::{Server, Signer, run};

use crate::fixture::Fixture;

/// A repository with `hello` in two versions and `hello-libs` for another architecture.
struct Made {
    /// Declared before its directory, so that it ends first.
    signer: Signer,
    fixture: Fixture,
}

impl Made {
    fn new() -> Self {
        let fixture = Fixture::new();
        std::fs::create_dir_all(fixture.path("repo/p")).unwrap();
        let signer = Signer::new(fixture.path(""), "key.asc");
        let made = Self { signer, fixture };
        made.package("hello", "1.9", "x86_64");
        made.package("hello", "1.10", "x86_64");
        made.package("hello-data", "1.10", "noarch");
        made.package("hello-libs", "1.10", "aarch64");
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fixture.path(name)
    }

    fn package(&self, name: &str, version: &str, architecture: &str) {
        let all = if architecture == "noarch" {
            "BuildArch: noarch\n"
        } else {
            ""
        };
        let spec = format!(
            r"Name: {name}
Epoch: 1
Version: {version}
Release: 2.el9
Summary: says hello
License: MIT
{all}Requires: /bin/sh, libhello(x) >= 1:1.2-3
Provides: greeting = {version}
AutoReqProv: no

%description
Hello & good bye.

%install
mkdir -p %{{buildroot}}/usr/bin
echo hello > %{{buildroot}}/usr/bin/{name}

%files
/usr/bin/{name}
"
        );
        std::fs::write(self.path("hello.spec"), spec).unwrap();
        let top = format!("_topdir {}", self.path("build").display());
        let out = format!("_rpmdir {}", self.path("repo/p").display());
        let target = format!("{architecture}-linux");
        let args = [
            "-bb",
            "--quiet",
            "--nodeps",
            "--target",
            &target,
            "--define",
            &top,
            "--define",
            &out,
            "hello.spec",
        ];
        run("rpm", &self.path(""), "rpmbuild", &args);
    }

    /// Makes the indexes and signs them.
    fn index(&self, options: &[&str]) {
        run(
            "createrepo-c",
            &self.path(""),
            "createrepo_c",
            &[options, &["--quiet", "repo"]].concat(),
        );
        let repomd = self.path("repo/repodata/repomd.xml");
        self.signer
            .detach(&repomd, &repomd.with_file_name("repomd.xml.asc"));
    }

    /// Compresses the index of packages with Zstandard, as newer versions of createrepo_c do by
    /// default.
    fn repack(&self) {
        self.index(&["--general-compress-type=gz"]);
        let repodata = self.path("repo/repodata");
        let packed = self.primary();
        let xml = run(
            "gzip",
            &repodata,
            "gzip",
            &["-dc", packed.to_str().unwrap()],
        );
        std::fs::write(self.path("primary.xml"), &xml).unwrap();
        let packed = run("zstd", &self.path(""), "zstd", &["-qc", "primary.xml"]);
        std::fs::write(repodata.join("primary.xml.zst"), &packed).unwrap();
        let repomd = format!(
            r#"<?xml version="1.0" encoding="UTF-8"?>
            <repomd xmlns="http://linux.duke.edu/metadata/repo"><data type="primary">
            <checksum type="sha256">{}</checksum><location href="repodata/primary.xml.zst"/>
            <size>{}</size><open-size>{}</open-size></data></repomd>"#,
            Digest::of(&packed),
            packed.len(),
            xml.len(),
        );
        std::fs::write(repodata.join("repomd.xml"), repomd).unwrap();
        self.signer.detach(
            &repodata.join("repomd.xml"),
            &repodata.join("repomd.xml.asc"),
        );
    }

    /// The index of packages.
    fn primary(&self) -> PathBuf {
        let mut entries = std::fs::read_dir(self.path("repo/repodata"))
            .unwrap()
            .map(|entry| entry.unwrap().path());
        entries
            .find(|path| path.to_string_lossy().contains("-primary.xml"))
            .unwrap()
    }

    fn open(&self, server: &Server) -> Result<yum::Repository, Error> {
        let keyring = Keyring::open(&self.path("key.asc")).unwrap();
        let source = yum::YumSource {
            url: server.url("/repo/"),
            keyring,
            signed: true,
        };
        yum::Repository::open(&self.fixture.fetcher(), &source, &["x86_64"])
    }

    fn failure(&self, server: &Server) -> String {
        self.open(server)
            .map_err(|error| chain(&error))
            .unwrap_err()
    }
}

#[test]
fn packages_are_found_and_fetched_however_indexes_are_compressed() {
    let made = Made::new();
    let server = Server::directory(made.path(""));
    for kind in ["gz", "xz", "zstd"] {
        match kind {
            "zstd" => made.repack(),
            kind => made.index(&[
                &format!("--general-compress-type={kind}"),
                "--compress-type",
                kind,
            ]),
        }
        let repository = made.open(&server).unwrap();
        let names: Vec<_> = repository
            .packages()
            .iter()
            .map(|package| package.name.as_str())
            .collect();
        assert_eq!(
            (names.len(), names.contains(&"hello-libs")),
            (3, false),
            "{kind}"
        );
        let newest = repository.find("hello", None, "x86_64").unwrap();
        assert_eq!(
            (newest.version.to_string().as_str(), newest.licence.as_str()),
            ("1:1.10-2.el9", "MIT")
        );
        assert_eq!(
            repository
                .find("hello", Some("1.9"), "x86_64")
                .unwrap()
                .version
                .version,
            "1.9"
        );
        assert_eq!(
            repository
                .find("hello-data", None, "x86_64")
                .unwrap()
                .architecture,
            "noarch"
        );
        let entry = made
            .fixture
            .fetcher()
            .files(&[newest.artifact()])
            .unwrap()
            .remove(0);
        assert_eq!(
            Digest::of(&std::fs::read(entry.path).unwrap()),
            newest.digest
        );
        // The metadata that a closure needs.
        let need = newest
            .requires
            .iter()
            .find(|need| need.name == "libhello(x)")
            .unwrap();
        let (flag, version) = need.version.as_ref().unwrap();
        assert_eq!(
            (*flag, version.to_string().as_str()),
            (yum::Flag::Ge, "1:1.2-3")
        );
        assert!(
            newest
                .requires
                .iter()
                .any(|need| need.name == "/bin/sh" && need.version.is_none())
        );
        assert!(newest.provides.iter().any(|need| need.name == "greeting"));
        assert_eq!(newest.files, ["/usr/bin/hello"]);
    }
    let error = made
        .open(&server)
        .unwrap()
        .find("hello", Some("3"), "x86_64")
        .map_err(|error| chain(&error))
        .unwrap_err();
    let there =
        "there is no hello 3 for x86_64; there is 1:1.10-2.el9 (x86_64), 1:1.9-2.el9 (x86_64)";
    assert!(error.ends_with(there), "{error}");
}

#[test]
fn only_what_a_trusted_key_signed_counts() {
    let made = Made::new();
    made.index(&[]);
    let server = Server::directory(made.path(""));
    made.open(&server).unwrap();
    let repodata = made.path("repo/repodata");
    let primary = made.primary();
    let whole = std::fs::read(&primary).unwrap();
    std::fs::write(&primary, [&whole[..whole.len() - 1], b"x"].concat()).unwrap();
    // Blobs in the cache are not requested again, so this fixture has an empty cache.
    let fixture = Fixture::new();
    let keyring = || Keyring::open(&made.path("key.asc")).unwrap();
    let source = yum::YumSource {
        url: server.url("/repo"),
        keyring: keyring(),
        signed: true,
    };
    let error = yum::Repository::open(&fixture.fetcher(), &source, &["x86_64"])
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("expected SHA-256") && fixture.kept().0.is_empty(),
        "{error}"
    );

    let repomd = repodata.join("repomd.xml");
    let text = std::fs::read_to_string(&repomd).unwrap();
    std::fs::write(&repomd, text.replace("primary", "Primary")).unwrap();
    let changed = made.failure(&server);
    assert!(
        changed.contains("repomd.xml: the signature by key") && changed.contains("it was changed"),
        "{changed}"
    );
    std::fs::write(&repomd, &text).unwrap();
    let other = Signer::new(made.path("other"), "key.gpg");
    other.detach(&repomd, &repodata.join("repomd.xml.asc"));
    assert!(
        made.failure(&server)
            .contains("is by a key that is not trusted")
    );
    std::fs::remove_file(repodata.join("repomd.xml.asc")).unwrap();
    assert!(
        made.failure(&server)
            .contains("it is not signed (no repomd.xml.asc)")
    );
}

#[test]
fn weak_checksums_are_refused() {
    let made = Made::new();
    made.index(&["--checksum", "sha1"]);
    let server = Server::directory(made.path(""));
    let error = made.failure(&server);
    assert!(error.contains("only sha256 is accepted"), "{error}");
}
