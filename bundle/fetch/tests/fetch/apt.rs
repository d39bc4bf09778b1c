//! An apt repository made with Debian's own tools.

use std::path::PathBuf;

use halite_durable::Digest;
use halite_errors::chain;
use halite_fetch::{Error, Fetcher, Keyring, apt};
use halite_testkit::{Server, Signer, run};
use jiff::{Timestamp, ToSpan as _};

use crate::fixture::Fixture;

/// A repository with `hello` in two versions, signed.
struct Made {
    /// Declared before its directory, so that it ends first.
    signer: Signer,
    fixture: Fixture,
}

const PACKAGES: &str = "dists/stable/main/binary-amd64/Packages";

impl Made {
    fn new() -> Self {
        let fixture = Fixture::new();
        std::fs::create_dir_all(fixture.path("repo/pool")).unwrap();
        std::fs::create_dir_all(fixture.path("repo/dists/stable/main/binary-amd64")).unwrap();
        let signer = Signer::new(fixture.path(""), "key.gpg");
        let made = Self { signer, fixture };
        for (version, architecture) in [
            ("1:1.9-1", "amd64"),
            ("1:1.10-1", "amd64"),
            ("1:1.10~rc1-1", "all"),
        ] {
            made.package(version, architecture);
        }
        let index = run(
            "apt-utils",
            &made.path("repo"),
            "apt-ftparchive",
            &["packages", "pool"],
        );
        std::fs::write(made.path(&format!("repo/{PACKAGES}")), index).unwrap();
        made
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fixture.path(name)
    }

    fn package(&self, version: &str, architecture: &str) {
        let dir = self.path("tree/DEBIAN");
        std::fs::create_dir_all(&dir).unwrap();
        let control = format!(
            "Package: hello\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: Test \
             <test@halite.invalid>\nDepends: libc6 (>= 2)\nDescription: says hello\n"
        );
        std::fs::write(dir.join("control"), control).unwrap();
        let name = format!(
            "repo/pool/hello_{}_{architecture}.deb",
            version.replace(':', "%3a")
        );
        run(
            "dpkg",
            &self.path(""),
            "dpkg-deb",
            &["--build", "--root-owner-group", "tree", &name],
        );
    }

    /// Compresses the index with a program, and writes and signs the release.
    fn release(&self, program: &str, end: &str, options: &[&str]) {
        let index = self.path(&format!("repo/{PACKAGES}"));
        let packed = run(
            "xz-utils, zstd or gzip",
            &self.path(""),
            program,
            &["-c", index.to_str().unwrap()],
        );
        let dir = self.path("repo/dists/stable/main/binary-amd64");
        for entry in std::fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path != index && path.is_file() {
                std::fs::remove_file(path).unwrap();
            }
        }
        std::fs::write(format!("{}.{end}", index.display()), &packed).unwrap();
        std::fs::create_dir_all(dir.join("by-hash/SHA256")).unwrap();
        std::fs::write(
            dir.join("by-hash/SHA256").join(Digest::of(&packed).hex()),
            &packed,
        )
        .unwrap();
        let always = [
            "-o",
            "APT::FTPArchive::Release::Suite=stable",
            "-o",
            "APT::FTPArchive::Release::Codename=bookworm",
        ];
        let args = [&always, options, &["release", "dists/stable"]].concat();
        // The tool would list an existing release.
        for name in ["Release", "InRelease", "Release.gpg"] {
            let _ = std::fs::remove_file(self.path("repo/dists/stable").join(name));
        }
        let release = run("apt-utils", &self.path("repo"), "apt-ftparchive", &args);
        // The release lists the uncompressed index, which the repository does not serve: the file
        // exists only for its size and digest.
        let path = self.path("repo/dists/stable/Release");
        std::fs::write(&path, release).unwrap();
        self.signer
            .clearsign(&path, &path.with_file_name("InRelease"));
    }

    fn source(&self, server: &Server, suite: &str) -> apt::AptSource {
        apt::AptSource {
            url: server.url("/repo"),
            suite: suite.into(),
            components: vec!["main".into()],
            architectures: vec!["amd64".into()],
            keyring: Keyring::open(&self.path("key.gpg")).unwrap(),
        }
    }

    fn open(&self, server: &Server, suite: &str) -> Result<apt::Repository, Error> {
        apt::Repository::open(
            &self.fixture.fetcher(),
            &self.source(server, suite),
            Timestamp::now(),
        )
    }

    fn failure(&self, server: &Server) -> String {
        self.open(server, "stable")
            .map_err(|error| chain(&error))
            .unwrap_err()
    }
}

#[test]
fn packages_are_found_and_fetched_however_indexes_are_compressed() {
    let made = Made::new();
    let server = Server::directory(made.path(""));
    let by_hash: &[&str] = &["-o", "APT::FTPArchive::Release::Acquire-By-Hash=yes"];
    for (program, end, options) in [
        ("xz", "xz", by_hash),
        ("zstd", "zst", &[]),
        ("gzip", "gz", by_hash),
    ] {
        made.release(program, end, options);
        let repository = made.open(&server, "stable").unwrap();
        assert_eq!(repository.packages().len(), 3, "{end}");
        let newest = repository.find("hello", None, "amd64").unwrap();
        assert_eq!(
            (newest.version.as_str(), newest.field("Depends")),
            ("1:1.10-1", "libc6 (>= 2)")
        );
        let old = repository.find("hello", Some("1:1.9-1"), "amd64").unwrap();
        let entry = made
            .fixture
            .fetcher()
            .files(&[newest.artifact(), old.artifact()])
            .unwrap()
            .remove(0);
        let file = std::fs::read(made.path("repo/pool/hello_1%3a1.10-1_amd64.deb"));
        assert_eq!(
            (std::fs::read(entry.path).unwrap(), entry.digest),
            (file.unwrap(), newest.digest.clone())
        );
        let index = server
            .seen()
            .into_iter()
            .rev()
            .find(|seen| seen.path.contains("binary-amd64"))
            .unwrap()
            .path;
        assert_eq!(
            index.contains("/by-hash/SHA256/"),
            !options.is_empty(),
            "{index}"
        );
    }
    let repository = made
        .open(&server, "bookworm")
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(repository.contains("/dists/bookworm/"), "{repository}");
    let repository = made.open(&server, "stable").unwrap();
    let error = repository
        .find("hello", Some("3"), "amd64")
        .map_err(|error| chain(&error))
        .unwrap_err();
    let there = "there is no hello 3 for amd64; there is 1:1.10-1 (amd64), 1:1.10~rc1-1 (all), 1:1.9-1 (amd64)";
    assert!(error.ends_with(there), "{error}");
    // A repository is read again each time, so there is none offline.
    let offline = Fetcher::offline(made.fixture.cache());
    let error = apt::Repository::open(&offline, &made.source(&server, "stable"), Timestamp::now())
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("InRelease (a repository is read again"),
        "{error}"
    );
}

#[test]
fn only_what_a_trusted_key_signed_counts() {
    let made = Made::new();
    made.release("xz", "xz", &[]);
    let server = Server::directory(made.path(""));
    let dir = made.path("repo/dists/stable");
    let signed = std::fs::read_to_string(dir.join("InRelease")).unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
    let digest = signed
        .lines()
        .find(|line| line.ends_with("Packages.xz"))
        .unwrap()
        .to_owned();

    // A changed message, an unsigned one, and one with text before its signed part, which is not
    // signed.
    write(
        "InRelease",
        &signed.replace("Codename: bookworm", "Codename: bookworn"),
    );
    assert!(made.failure(&server).contains("it was changed"));
    write(
        "InRelease",
        &std::fs::read_to_string(dir.join("Release")).unwrap(),
    );
    assert!(
        made.failure(&server).contains("InRelease: "),
        "{}",
        made.failure(&server)
    );
    write(
        "InRelease",
        &format!(
            "SHA256:\n {} 1 evil/binary-amd64/Packages\n\n{signed}",
            Digest::of(b"evil")
        ),
    );
    let mut evil = made.source(&server, "stable");
    evil.components = vec!["evil".into()];
    assert!(apt::Repository::open(&made.fixture.fetcher(), &evil, Timestamp::now()).is_err());

    // Another key, armoured as many repositories publish theirs.
    write("InRelease", &signed);
    made.open(&server, "stable").unwrap();
    let _other = Signer::new(made.path("other"), "key.asc");
    let mut source = made.source(&server, "stable");
    source.keyring = Keyring::open(&made.path("other/key.asc")).unwrap();
    let error = apt::Repository::open(&made.fixture.fetcher(), &source, Timestamp::now())
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("is by a key that is not trusted; trusted are the keys in"),
        "{error}"
    );
    assert!(
        Keyring::open(&dir.join("InRelease"))
            .map_err(|error| chain(&error))
            .unwrap_err()
            .contains("no OpenPGP public key")
    );

    // Without InRelease, the signature beside Release counts; without either, the repository is
    // refused.
    std::fs::remove_file(dir.join("InRelease")).unwrap();
    assert!(
        made.failure(&server)
            .contains("it is not signed (no InRelease, no Release.gpg)")
    );
    made.signer
        .detach(&dir.join("Release"), &dir.join("Release.gpg"));
    made.open(&server, "stable").unwrap();
    let release = std::fs::read_to_string(dir.join("Release")).unwrap();
    write(
        "Release",
        &release.replace(&digest, &digest.replace("Packages.xz", "Packages.gz")),
    );
    assert!(made.failure(&server).contains("it was changed"));
}

#[test]
fn expired_keys_and_weak_signatures_do_not_count() {
    let made = Made::new();
    made.release("xz", "xz", &[]);
    let server = Server::directory(made.path(""));
    let dir = made.path("repo/dists/stable");
    let open = |key: &str| {
        let source = apt::AptSource {
            keyring: Keyring::open(&made.path(key)).unwrap(),
            ..made.source(&server, "stable")
        };
        apt::Repository::open(&made.fixture.fetcher(), &source, Timestamp::now())
    };
    let sign = |signer: &Signer, options: &[&str]| {
        let (release, out) = (dir.join("Release"), dir.join("InRelease"));
        let args = [
            "--clearsign",
            "--output",
            out.to_str().unwrap(),
            release.to_str().unwrap(),
        ];
        signer.gpg(&[options, &args].concat());
    };
    let past: &[&str] = &["--faked-system-time", "20200101T000000"];
    let expired = Signer::with(made.path("expired"), "key.gpg", "ed25519", past);
    sign(&expired, past);
    let error = open("expired/key.gpg")
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(error.contains("is by a key that has expired"), "{error}");

    let weak = Signer::with(made.path("weak"), "key.gpg", "rsa2048", &[]);
    sign(&weak, &["--digest-algo", "SHA256"]);
    open("weak/key.gpg").unwrap();
    sign(&weak, &["--digest-algo", "SHA1"]);
    let error = open("weak/key.gpg")
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("cannot be checked, or is of a kind that is too weak"),
        "{error}"
    );
}

#[test]
fn old_states_other_suites_and_changed_indexes_are_refused() {
    let made = Made::new();
    let server = Server::directory(made.path(""));
    let date = |days: i64| {
        let at = Timestamp::now() + (days * 24).hours();
        at.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string()
    };
    let until = format!("APT::FTPArchive::Release::ValidTime={}", 3600);
    made.release("xz", "xz", &["-o", &until]);
    made.open(&server, "stable").unwrap();
    let source = made.source(&server, "stable");
    let later = Timestamp::now() + 48.hours();
    let error = apt::Repository::open(&made.fixture.fetcher(), &source, later)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("/repo/dists/stable/Release: it was valid until")
            && error.contains("an old state"),
        "{error}"
    );

    made.release(
        "xz",
        "xz",
        &["-o", &format!("APT::FTPArchive::Release::Date={}", date(3))],
    );
    let said = std::fs::read_to_string(made.path("repo/dists/stable/Release")).unwrap();
    let earlier = Timestamp::now() - 96.hours();
    let error = apt::Repository::open(&made.fixture.fetcher(), &source, earlier)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(error.contains("is this clock wrong?"), "{error}\n{said}");

    // Another suite of the same owner in place of this one.
    made.release("xz", "xz", &[]);
    std::fs::rename(
        made.path("repo/dists/stable"),
        made.path("repo/dists/trixie"),
    )
    .unwrap();
    let error = made
        .open(&server, "trixie")
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.ends_with("it is the release of stable or bookworm, not of trixie"),
        "{error}"
    );
    std::fs::rename(
        made.path("repo/dists/trixie"),
        made.path("repo/dists/stable"),
    )
    .unwrap();

    // The error lists everything that the release does not list.
    let mut source = made.source(&server, "stable");
    source.architectures.push("riscv64".into());
    source.components.push("contrib".into());
    let error = apt::Repository::open(&made.fixture.fetcher(), &source, Timestamp::now())
        .map_err(|error| chain(&error))
        .unwrap_err();
    for name in [
        "main/binary-riscv64",
        "contrib/binary-amd64",
        "contrib/binary-riscv64",
    ] {
        assert!(
            error.contains(&format!("it lists no {name}/Packages that is compressed")),
            "{error}"
        );
    }

    let index = made.path(&format!("repo/{PACKAGES}.xz"));
    let mut bytes = std::fs::read(&index).unwrap();
    bytes[20] ^= 1;
    std::fs::write(index, bytes).unwrap();
    let fixture = Fixture::new();
    let error = apt::Repository::open(
        &fixture.fetcher(),
        &made.source(&server, "stable"),
        Timestamp::now(),
    );
    let error = error.map_err(|error| chain(&error)).unwrap_err();
    assert!(
        error.contains("Packages.xz: expected SHA-256") && fixture.kept().0.is_empty(),
        "{error}"
    );
}
