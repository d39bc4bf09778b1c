//! Packages for RPM distributions from yum repositories, recorded in the lock.

use std::collections::BTreeMap;
use std::fs;

use halite_builder::package::{File, Package, Relations, Scripts};
use halite_builder::rpm::{Base, stubs};
use halite_builder::{Options, package};
use halite_bundle::verify;
use halite_errors::chain;
use halite_testkit::{Server, Signer, Site, put, run};
use serde_json::json;

use crate::rsa_key;

const BASE: &str = "P bash 0:5.1-1 x86_64\np bash = 0:5.1-1\np /bin/sh\nP util-linux 0:2.37-1 x86_64\n\
                    p util-linux = 2.37-1\n";

/// A site with one signed repository; its packages are signed too.
struct World {
    /// Declared before `site`, so that it ends before its directory is removed.
    signer: Signer,
    site: Site,
    server: Server,
}

impl World {
    fn new() -> Self {
        let mut site = Site::new();
        let signer = Signer::new(site.path("distribution"), "key.asc");
        let server = Server::directory(site.path("distribution"));
        put(&site.path("rpm-base"), BASE.as_bytes());
        site.recipe["packages"]["rpm"] = json!({
            "base": "rpm-base",
            "repositories": [{"name": "os", "url": server.url("/os"), "key": "distribution/key.asc"}],
            "names": ["nginx"],
        });
        site.recipe["no-proxy"] = json!("*");
        rsa_key::give(&site);
        let world = Self {
            signer,
            site,
            server,
        };
        world.publish(
            "P nginx 2:1.20-1 x86_64\nr /usr/share/mime.types\nr /bin/sh\nP runc 0:1.1-1 x86_64\nr (container-selinux if selinux-policy)\nP container-selinux 0:2-1 noarch\n",
        );
        world
    }

    fn publish(&self, packages: &str) {
        let dir = self.site.path("distribution/os");
        let _ = fs::remove_dir_all(&dir);
        fs::create_dir_all(&dir).unwrap();
        let mut files = stubs(&Base::parse(packages).unwrap().packages, &dir).unwrap();
        files.push(package::rpm::write(&mailcap(), &dir).unwrap());
        let home = self.site.path("distribution");
        let names: Vec<_> = files.iter().map(|file| file.to_str().unwrap()).collect();
        let sign = [
            "--define",
            "_gpg_name test@halite.invalid",
            "--define",
            "__gpg /usr/bin/gpg",
            "--addsign",
        ];
        run("rpm", &home, "rpmsign", &[&sign[..], &names].concat());
        run("createrepo-c", &home, "createrepo_c", &["--quiet", "os"]);
        let repomd = dir.join("repodata/repomd.xml");
        self.signer
            .detach(&repomd, &repomd.with_file_name("repomd.xml.asc"));
    }

    fn recorded(&self) -> BTreeMap<String, String> {
        let rpms = self.site.lock().unwrap().lock.rpms.unwrap();
        rpms.packages
            .into_iter()
            .map(|(name, item)| (name, item.why))
            .collect()
    }
}

/// A package with a file that only the index of all files lists.
fn mailcap() -> Package {
    Package {
        name: "mailcap".into(),
        version: "2".into(),
        revision: "1".into(),
        summary: "types of files".into(),
        description: Vec::new(),
        homepage: "https://halite.invalid".into(),
        holder: "test".into(),
        licence: "MIT".into(),
        licence_text: "MIT".into(),
        needs: Relations::default(),
        recommends: Relations::default(),
        files: BTreeMap::from([("usr/share/mime.types".into(), File::with("text/plain\n"))]),
        directories: BTreeMap::new(),
        scripts: Scripts::default(),
    }
}

#[test]
fn packages_and_all_that_they_need_come_from_the_repositories() {
    let mut world = World::new();
    world.site.recipe["packages"]["rpm"]["names"] = json!(["nginx", "runc"]);
    let recorded = world.recorded();
    let why = |text: &str| text.to_owned();
    assert_eq!(
        recorded,
        BTreeMap::from([
            (
                why("container-selinux-2-1.noarch.rpm"),
                why("runc needs (container-selinux if selinux-policy)")
            ),
            (
                why("mailcap-2-1.x86_64.rpm"),
                why("nginx needs /usr/share/mime.types")
            ),
            (why("nginx-1.20-1.x86_64.rpm"), why("asked for")),
            (why("runc-1.1-1.x86_64.rpm"), why("asked for")),
        ])
    );
    let made = world
        .site
        .build("bundle")
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(
        (made.rpms["nginx"].as_str(), made.rpms.len()),
        ("2:1.20-1", 9)
    );
    assert!(
        verify(&world.site.path("bundle"), &mut |_| ())
            .unwrap()
            .is_sound()
    );
    // The lock decides; the repository is not contacted.
    drop(world.server);
    let offline = Options {
        offline: true,
        ..Options::default()
    };
    world.site.build_with("again", &offline).unwrap();
    let same =
        |name: &str| fs::read(world.site.path(name).join("rpm/repodata/repomd.xml")).unwrap();
    assert_eq!(same("bundle"), same("again"));
}

#[test]
fn what_no_repository_has_is_named() {
    let mut world = World::new();
    world.publish("P nginx 0:1-1 x86_64\nr libpcre >= 2\nr /usr/share/nowhere\nr bash\n");
    world.site.recipe["packages"]["rpm"]["names"] = json!(["nginx", "no-such"]);
    let error = world
        .site
        .lock()
        .map_err(|error| chain(&error))
        .unwrap_err();
    for wanted in [
        "nginx-1-1.x86_64 needs libpcre >= 2: neither the base nor any repository has it",
        "nginx-1-1.x86_64 needs /usr/share/nowhere: neither",
        "the recipe needs no-such: neither",
    ] {
        assert!(error.contains(wanted), "{error}");
    }
    assert!(!world.site.path("recipe.lock.yaml").exists());
}

#[test]
fn packages_that_are_not_signed_with_the_key_do_not_get_in() {
    let mut world = World::new();
    let rpm = &mut world.site.recipe["packages"]["rpm"];
    rpm["names"] = json!(["runc"]);
    // An unsigned index is used only if the recipe allows it; the signatures of packages are still
    // checked.
    fs::remove_file(world.site.path("distribution/os/repodata/repomd.xml.asc")).unwrap();
    let error = world
        .site
        .lock()
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(error.contains("it is not signed"), "{error}");
    world.site.recipe["packages"]["rpm"]["repositories"][0]["signed-index"] = json!(false);
    world.site.lock().unwrap();
    world.site.build("bundle").unwrap();
    let other = Signer::new(world.site.path("other"), "key.asc");
    world.site.recipe["packages"]["rpm"]["repositories"][0]["key"] = json!("other/key.asc");
    world.site.lock().unwrap();
    let error = world
        .site
        .build("bundle")
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("checking the signatures of packages") && error.contains("runc-1.1-1"),
        "{error}"
    );
    drop(other);
}

#[test]
fn a_recipe_says_all_that_is_wrong_with_it() {
    let mut world = World::new();
    world.site.recipe["packages"]["rpm"] = json!({
        "repositories": [
            {"name": "os", "url": "ftp://x", "signed-index": 1},
            {"name": "a", "url": "http://mirror.example.org/os", "signed-index": false, "key": "status"},
            {"name": "b", "url": "http://mirror.example.org/os", "key": "status"},
            {"name": "c", "url": "https://me:secret@mirror.example.org/os", "key": "status"},
        ],
        "names": ["a b"],
        "x": 1,
    });
    let error = world
        .site
        .lock()
        .map_err(|error| chain(&error))
        .unwrap_err();
    for wanted in [
        "packages.rpm.x: unknown key `x`",
        "packages.rpm.base: ",
        "packages.rpm.repositories[0].url: ftp://x: ftp: is not supported, only https and http",
        "packages.rpm.repositories[1].url: is not protected by TLS",
        "packages.rpm.repositories[3].url: mirror.example.org/os: an address must not contain a login",
        "packages.rpm.repositories[0].key: ",
        "packages.rpm.repositories[0].signed-index: must be a boolean",
        "packages.rpm.names[0]: `a b` is not a package",
    ] {
        assert!(error.contains(wanted), "{wanted}: {error}");
    }
    assert!(
        !error.contains("repositories[2]") && !error.contains("secret"),
        "{error}"
    );
}
