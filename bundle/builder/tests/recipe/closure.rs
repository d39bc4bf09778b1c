//! The closure of packages, compared with the packages that the real dnf installs on the same host
//! from the same repositories.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;

use halite_builder::rpm;
use halite_builder::rpm::{Base, Closure};
use halite_fetch::{Cache, Client, Fetcher, Keyring, Settings, yum};
use halite_testkit::{Server, Signer, run};

/// A directory with a cache in it.
struct Fixture {
    dir: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn fetcher(&self) -> Fetcher {
        let settings = Settings {
            system_authorities: false,
            proxy: Some(String::new()),
            ..Settings::default()
        };
        let cache = Cache::open(&self.path("cache")).unwrap();
        Fetcher::new(cache, Client::new(settings).unwrap())
    }
}

/// A host with a base, and repositories made by rpmbuild and createrepo_c; all are written in the
/// form of a base's list.
struct Site {
    /// Declared before `fixture`, so that it ends before its directory is removed.
    signer: Signer,
    fixture: Fixture,
    base: Base,
    server: Server,
    repositories: Vec<yum::Repository>,
}

impl Site {
    fn new(base: &str, repositories: &[&str]) -> Self {
        let fixture = Fixture::new();
        let signer = Signer::new(fixture.path(""), "key.asc");
        rpm::database(&Base::parse(base).unwrap(), &fixture.path("root")).unwrap();
        let server = Server::directory(fixture.path(""));
        let mut site = Self {
            base: Base::default(),
            signer,
            fixture,
            server,
            repositories: Vec::new(),
        };
        site.base = site.installed();
        for (number, packages) in repositories.iter().enumerate() {
            let repository = site.repository(number, packages);
            site.repositories.push(repository);
        }
        site
    }

    /// The packages of the host, listed with the command from the guide.
    fn installed(&self) -> Base {
        let root = self.fixture.path("root");
        let database = "_dbpath /var/lib/rpm";
        let args = [
            "--root",
            root.to_str().unwrap(),
            "--define",
            database,
            "-qa",
            "--qf",
            rpm::FORMAT,
        ];
        let listed = run("rpm", &self.fixture.path(""), "rpm", &args);
        Base::parse(std::str::from_utf8(&listed).unwrap()).unwrap()
    }

    fn path(&self, number: usize) -> PathBuf {
        self.fixture.path(&format!("repository-{number}"))
    }

    fn repository(&self, number: usize, packages: &str) -> yum::Repository {
        let dir = self.path(number);
        std::fs::create_dir_all(&dir).unwrap();
        rpm::stubs(&Base::parse(packages).unwrap().packages, &dir).unwrap();
        run("createrepo-c", &dir, "createrepo_c", &["--quiet", "."]);
        let repomd = dir.join("repodata/repomd.xml");
        self.signer
            .detach(&repomd, &repomd.with_file_name("repomd.xml.asc"));
        let keyring = Keyring::open(&self.fixture.path("key.asc")).unwrap();
        let source = yum::YumSource {
            url: self.server.url(&format!("/repository-{number}")),
            keyring,
            signed: true,
        };
        yum::Repository::open(&self.fixture.fetcher(), &source, &["x86_64"]).unwrap()
    }

    fn closure(&self, names: &[&str]) -> Closure<'_> {
        let packages = self.repositories.iter().flat_map(yum::Repository::packages);
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        rpm::closure(&self.base, packages, &names)
    }

    /// The packages that dnf would install, or its error.
    fn dnf(&self, names: &[&str]) -> Result<BTreeSet<String>, String> {
        let path = |name: &str| self.fixture.path(name).display().to_string();
        let mut text = format!(
            "[main]\ngpgcheck=0\nbest=1\nobsoletes=1\ninstall_weak_deps=0\nplugins=0\nproxy=\ncachedir={}\nlogdir={}\n\
             persistdir={}\nreposdir={3}\nvarsdir={3}\nskip_if_unavailable=0\n",
            path("dnf/cache"),
            path("dnf/log"),
            path("dnf/state"),
            path("dnf/none")
        );
        for number in 0..self.repositories.len() {
            let url = self.server.url(&format!("/repository-{number}"));
            text.push_str(&format!("[r{number}]\nname=r{number}\nbaseurl={url}\n"));
        }
        std::fs::write(self.fixture.path("dnf.conf"), text).unwrap();
        std::fs::write(self.fixture.path(".rpmmacros"), "%_dbpath /var/lib/rpm\n").unwrap();
        let out = self.fixture.path("downloaded");
        let _ = std::fs::remove_dir_all(&out);
        std::fs::create_dir(&out).unwrap();
        let mut dnf = Command::new("dnf");
        dnf.env("HOME", self.fixture.path(""))
            .env("LC_ALL", "C.UTF-8")
            .args(["-c", &path("dnf.conf")]);
        dnf.args([
            "--installroot",
            &path("root"),
            "--releasever=9",
            "--forcearch=x86_64",
            "-y",
            "install",
        ]);
        dnf.args([
            "--downloadonly",
            &format!("--downloaddir={}", out.display()),
        ]);
        // dnf separates the version with `-`.
        dnf.args(names.iter().map(|name| name.replace('=', "-")));
        let output = dnf
            .output()
            .expect("dnf runs; install the Debian package dnf");
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            return Err(String::from_utf8_lossy(&said).into_owned());
        }
        let files = std::fs::read_dir(out)
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        Ok(files
            .map(|name| {
                name.into_string()
                    .unwrap()
                    .trim_end_matches(".rpm")
                    .to_owned()
            })
            .collect())
    }

    /// Asserts that our closure and dnf's are `expected`.
    fn both(&self, names: &[&str], expected: &[&str]) {
        let ours = self.closure(names);
        assert!(ours.lacks.is_empty(), "{names:?}: {:?}", ours.lacks);
        let ours: BTreeSet<String> = ours
            .packages
            .iter()
            .map(|(package, _)| {
                format!(
                    "{}-{}-{}.{}",
                    package.name,
                    package.version.version,
                    package.version.release,
                    package.architecture
                )
            })
            .collect();
        let theirs = self
            .dnf(names)
            .unwrap_or_else(|said| panic!("{names:?}: {said}"));
        assert_eq!(ours, theirs, "{names:?}: ours, and dnf's");
        let named: BTreeSet<_> = ours
            .iter()
            .map(|label| label.split("-1.el9").next().unwrap())
            .collect();
        assert_eq!(named, expected.iter().copied().collect(), "{names:?}");
    }

    /// Asserts that both find the installation impossible.
    fn neither(&self, names: &[&str], expected: &str) {
        let lacks = self.closure(names).lacks;
        let lacks: Vec<_> = lacks
            .iter()
            .map(|lack| format!("{} needs {}: {}", lack.user, lack.need, lack.why))
            .collect();
        assert_eq!(lacks, [expected], "{names:?}");
        let theirs = self.dnf(names).expect_err("dnf finds no way either");
        assert!(theirs.contains("Error:"), "{names:?}: {theirs}");
    }
}

/// Converts packages from the short form of the tests: `name version`, then `r …`, `p …`, `c …`, `o
/// …`, separated by `;`.
fn list(packages: &[&str]) -> String {
    let mut text = String::new();
    for package in packages {
        let mut parts = package.split(';').map(str::trim);
        let (name, version) = parts.next().unwrap().split_once(' ').unwrap();
        text.push_str(&format!("P {name} {version}-1.el9 x86_64\n"));
        parts.for_each(|part| text.push_str(&format!("{part}\n")));
    }
    text
}

const BASE: &[&str] = &[
    "bash 0:5.1;p /bin/sh;f /usr/bin/bash",
    "glibc 0:2.34;p libc.so.6(GLIBC_2.34)(64bit)",
    "openssl-libs 1:3.0;p libssl.so.3()(64bit)",
    "openssl 1:3.0;r openssl-libs = 1:3.0-1.el9",
    "systemd 0:252;c old-init < 3;p init",
    "halfway 0:1;r what-is-missing",
];

#[test]
fn what_dnf_installs_is_what_the_closure_has() {
    let one = list(&[
        "kubelet 0:1.36;r conntrack-tools;r /bin/sh;r libc.so.6(GLIBC_2.34)(64bit);r rpmlib(X) <= 1",
        "conntrack-tools 0:1.4;r libmnl.so.0()(64bit);r libnfct >= 1.2",
        "libmnl 0:1.0;p libmnl.so.0()(64bit);r conntrack-tools",
        "libnfct 0:1.1",
        "libnfct 0:1.3",
        "file-user 0:1;r /usr/bin/tool;r /usr/bin/bash",
        "tool 0:1;f /usr/bin/tool",
        "newer-ssl 0:1;r openssl-libs >= 1:3.2",
        "openssl-libs 1:3.2;p libssl.so.3()(64bit)",
        "openssl 1:3.2;r openssl-libs = 1:3.2-1.el9",
        "either 0:1;r (tool or libnfct)",
        "both 0:1;r (tool and libnfct < 1.3)",
        "met 0:1;r (tool if systemd)",
        "unmet 0:1;r (tool if selinux-policy)",
        "otherwise 0:1;r (tool if selinux-policy else libnfct)",
        "late 0:1;r (tool if libnfct);r libnfct",
        "with 0:1;r (libnfct with libnfct < 1.2)",
        "without 0:1;r (libnfct without libnfct > 1.2)",
        "wants-new-name 0:1;r renamed-old",
        "renamed-old 0:1",
        "renamed-new 0:2;p renamed-old = 2;o renamed-old < 2",
        "pair 0:1;r libnfct;r libnfct = 1.1",
        "broken 0:1;r nothing-has-this >= 3",
        "chain 0:1;r broken",
        "fallback 0:1;r (chain or tool)",
        "old-init 0:2",
        "sides-a 0:1;c sides-b",
        "sides-b 0:1",
        "modern 0:1;c openssl < 1:3.2",
        "drops 0:1;o halfway",
        "pinned 0:1",
        "pinned 0:2",
    ]);
    let two = list(&["second 0:1;r first", "libnfct 0:1.2"]);
    let three = list(&["first 0:1;r tool"]);
    let site = Site::new(&list(BASE), &[&one, &two, &three]);
    for (names, expected) in [
        (
            &["kubelet"][..],
            &[
                "conntrack-tools-1.4",
                "kubelet-1.36",
                "libmnl-1.0",
                "libnfct-1.3",
            ][..],
        ),
        (&["file-user"], &["file-user-1", "tool-1"]),
        (
            &["newer-ssl"],
            &["newer-ssl-1", "openssl-3.2", "openssl-libs-3.2"],
        ),
        (&["both"], &["both-1", "libnfct-1.2", "tool-1"]),
        (&["met"], &["met-1", "tool-1"]),
        (&["unmet"], &["unmet-1"]),
        (&["otherwise"], &["libnfct-1.3", "otherwise-1"]),
        (&["late"], &["late-1", "libnfct-1.3", "tool-1"]),
        (&["with"], &["with-1", "libnfct-1.1"]),
        (&["without"], &["without-1", "libnfct-1.2"]),
        (&["wants-new-name"], &["renamed-new-2", "wants-new-name-1"]),
        (&["renamed-old"], &["renamed-new-2"]),
        (&["pair"], &["libnfct-1.1", "pair-1"]),
        (&["fallback"], &["fallback-1", "tool-1"]),
        (
            &["modern"],
            &["modern-1", "openssl-3.2", "openssl-libs-3.2"],
        ),
        (&["drops"], &["drops-1"]),
        (&["pinned"], &["pinned-2"]),
        (&["pinned=1"], &["pinned-1"]),
        (&["second"], &["first-1", "second-1", "tool-1"]),
        (&["bash"], &[]),
        (&["either", "tool"], &["either-1", "tool-1"]),
    ] {
        site.both(names, expected);
    }
    let none = "neither the base nor any repository has it";
    for (names, expected) in [
        (&["chain"][..], format!("broken-1-1.el9.x86_64 needs nothing-has-this >= 3: {none}")),
        (&["no-such"], format!("the recipe needs no-such: {none}")),
        (&["pinned=3"], format!("the recipe needs pinned=3: {none}")),
        (
            &["old-init"],
            "systemd-252-1.el9.x86_64 needs the absence of old-init < 3: old-init-2-1.el9.x86_64 is present"
                .into(),
        ),
        (
            &["sides-a", "sides-b"],
            "sides-a-1-1.el9.x86_64 needs the absence of sides-b: sides-b-1-1.el9.x86_64 is present".into(),
        ),
    ] {
        site.neither(names, &expected);
    }
    // Packages for a host with more than the base.
    let closure = site.closure(&["unmet"]);
    let incidental: Vec<_> = closure
        .incidental
        .iter()
        .map(|(package, why)| (package.name.as_str(), why.as_str()))
        .collect();
    assert_eq!(
        incidental,
        [("tool", "unmet needs (tool if selinux-policy)")]
    );
    assert_eq!(
        site.closure(&["drops"]).replaced,
        ["halfway-1-1.el9.x86_64"]
    );
}
