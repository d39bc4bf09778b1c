//! The real dnf, on a root with the packages of a minimal host: it installs from a bundle that
//! nginx serves over TLS, and refuses everything that differs from what the builder signed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use halite_builder::rpm::{Base, database};
use halite_builder::signer::{KeyKind, Signer};
use halite_testkit::{Authority, Nginx, Site, put, run};
use serde_json::json;

use crate::rsa_key;

const BASE: &str = "P bash 0:5.1-1 x86_64\np bash = 0:5.1-1\np /bin/sh\nP util-linux 0:2.37-1 x86_64\n\
                    p util-linux = 2.37-1\nP runc 0:1.1-1 x86_64\np runc = 1.1-1\n";

/// A site with a bundle, the server of a copy of it, and the authority that the hosts trust.
struct World {
    /// Declared before `site`, so that it ends before its configuration is removed.
    server: Nginx,
    site: Site,
}

impl World {
    fn new() -> Self {
        let mut site = Site::new();
        put(&site.path("rpm-base"), BASE.as_bytes());
        site.recipe["packages"]["rpm"] = json!({"base": "rpm-base"});
        rsa_key::give(&site);
        site.build("bundle")
            .unwrap_or_else(|error| panic!("{error}"));
        let authority = Authority::new(site.dir.path());
        let server = Nginx::tls(&site.path("nginx"), &site.path("served"), &authority);
        Self { server, site }
    }

    /// Serves a changed copy of the bundle's repository, and lets dnf install kubectl from it on a
    /// fresh host. Returns dnf's output, and `true` if the program is installed.
    fn install(&self, ca: &Path, change: impl FnOnce(&Path)) -> (String, bool) {
        let repository = self.site.path("served/bundles/0.1.0/rpm");
        let _ = fs::remove_dir_all(self.site.path("served"));
        let _ = fs::remove_dir_all(self.site.path("host"));
        let _ = fs::remove_dir_all(self.site.path("dnf"));
        fs::create_dir_all(repository.parent().unwrap()).unwrap();
        let from = self.site.path("bundle/rpm");
        run(
            "coreutils",
            self.site.dir.path(),
            "cp",
            &["-r", from.to_str().unwrap(), repository.to_str().unwrap()],
        );
        change(&repository);
        let host = self.site.path("host");
        database(&Base::parse(BASE).unwrap(), &host).unwrap();
        put(
            &self.site.path("dnf/.rpmmacros"),
            b"%_dbpath /var/lib/rpm\n",
        );
        // The repository's configuration is the one written by `pkgrepo.managed`.
        let text = format!(
            "[main]\nplugins=0\nskip_if_unavailable=0\ncachedir={0}/cache\nlogdir={0}/log\npersistdir={0}/state\n\
             reposdir={0}/none\nvarsdir={0}/none\n\
             [halite]\nname=Halite bundle\nbaseurl=https://127.0.0.1:{1}/bundles/0.1.0/rpm\nenabled=1\ngpgcheck=1\n\
             gpgkey=file://{2}\nrepo_gpgcheck=1\nsslcacert={3}\nproxy=_none_\n",
            self.site.path("dnf").display(),
            self.server.port,
            self.site.path("bundle/rpm/halite.asc").display(),
            ca.display(),
        );
        put(&self.site.path("dnf/dnf.conf"), text.as_bytes());
        let mut dnf = Command::new("dnf");
        dnf.env("HOME", self.site.path("dnf"))
            .env("LC_ALL", "C.UTF-8")
            .arg("-c")
            .arg(self.site.path("dnf/dnf.conf"));
        dnf.arg("--installroot")
            .arg(&host)
            .args(["--releasever=9", "--forcearch=x86_64", "-y"]);
        let output = dnf
            .args(["install", "kubectl"])
            .output()
            .expect("dnf runs; install the Debian package dnf");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        let there = host.join("usr/bin/kubectl").exists();
        assert_eq!(there, output.status.success(), "{said}");
        (said, there)
    }

    fn ca(&self) -> PathBuf {
        self.site.path("authority.pem")
    }

    fn refused(&self, why: &str, change: impl FnOnce(&Path)) {
        let (said, there) = self.install(&self.ca(), change);
        assert!(!there && said.contains(why), "{why}: {said}");
    }

    /// Indexes a repository again, with the builder's signature if `signed`.
    fn index(&self, repository: &Path, signed: bool) {
        let dir = repository.to_str().unwrap();
        let args = ["--quiet", "--no-database", "--simple-md-filenames", dir];
        run("createrepo-c", self.site.dir.path(), "createrepo_c", &args);
        if signed {
            let signer = Signer::open(&self.site.path("signing-key.asc"), KeyKind::Rsa).unwrap();
            let repomd = repository.join("repodata/repomd.xml");
            let _ = fs::remove_file(repository.join("repodata/repomd.xml.asc"));
            signer
                .detach(
                    &repomd,
                    &repository.join("repodata/repomd.xml.asc"),
                    jiff::Timestamp::now(),
                )
                .unwrap();
        }
    }
}

const KUBECTL: &str = "packages/kubectl-1.2.3-1.x86_64.rpm";

fn flip(path: &Path, at: impl FnOnce(usize) -> usize) {
    let mut bytes = fs::read(path).unwrap();
    let at = at(bytes.len());
    bytes[at] ^= 1;
    put(path, &bytes);
}

#[test]
fn dnf_installs_what_the_builder_signed_and_nothing_else() {
    let world = World::new();
    let (said, there) = world.install(&world.ca(), |_| ());
    assert!(there, "{said}");
    let program = world.site.path("host/usr/bin/kubectl");
    assert_eq!(
        fs::read(program).unwrap(),
        fs::read(world.site.path("bin/kubectl")).unwrap()
    );

    world.refused("GPG", |repository| {
        flip(&repository.join("repodata/repomd.xml"), |size| size / 2)
    });
    world.refused("404", |repository| {
        fs::remove_file(repository.join("repodata/repomd.xml.asc")).unwrap()
    });
    world.refused("checksum", |repository| {
        flip(&repository.join(KUBECTL), |size| size - 9)
    });
    // An attacker who can write to the server but has no key.
    world.refused("GPG", |repository| {
        flip(&repository.join(KUBECTL), |size| size - 9);
        world.index(repository, false);
    });
    // An unsigned package in a repository that the builder signed.
    world.refused("not signed", |repository| {
        let package = repository.join(KUBECTL);
        run(
            "rpm",
            world.site.dir.path(),
            "rpmsign",
            &["--delsign", package.to_str().unwrap()],
        );
        world.index(repository, true);
    });
    // A server with another certificate authority.
    fs::create_dir(world.site.path("other")).unwrap();
    Authority::new(&world.site.path("other"));
    let (said, there) = world.install(&world.site.path("other/authority.pem"), |_| ());
    assert!(!there && said.contains("SSL"), "{said}");
}
