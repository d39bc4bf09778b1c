//! Packages from an apt repository made by Debian's own tools.

use std::fs;
use std::path::Path;

use halite_builder::{Error, Options};
use halite_bundle::verify;
use halite_errors::chain;
use halite_testkit::{Server, Signer, Site, put, run};
use serde_json::json;

/// A site with its own repository. The signer ends before its directory is removed.
struct World {
    server: Server,
    signer: Signer,
    site: Site,
}

/// Package, version, and other fields.
const PACKAGES: &[(&str, &str, &str)] = &[
    ("nftables", "1.0-1", "Depends: libnft (>= 1), libc6"),
    ("nftables", "1.1-1", "Depends: libnft (>= 1.1), libc6"),
    ("libnft", "1:1.1-1", "Depends: libnl | libnl3"),
    ("libnl3", "3-1", ""),
    ("unneeded", "1", ""),
];

impl World {
    fn new() -> Self {
        let mut site = Site::new();
        let signer = Signer::new(site.path(""), "key.asc");
        fs::create_dir_all(site.path("repo/pool")).unwrap();
        for (name, version, fields) in PACKAGES {
            deb(site.dir.path(), name, version, fields);
        }
        site.base(&["mount", "runc", "util-linux", "libc6"]);
        let server = Server::directory(site.path(""));
        site.recipe["packages"]["apt"] = json!(["nftables"]);
        site.recipe["packages"]["repositories"] = json!([{"url": server.url("/repo"), "suite": "stable", "components": ["main"], "key": "key.asc"}]);
        site.recipe["no-proxy"] = json!("*");
        let world = Self {
            server,
            signer,
            site,
        };
        world.publish();
        world
    }

    /// Writes and signs the indexes.
    fn publish(&self) {
        let repo = self.site.path("repo");
        let dir = repo.join("dists/stable/main/binary-amd64");
        let _ = fs::remove_dir_all(repo.join("dists"));
        let index = run("apt-utils", &repo, "apt-ftparchive", &["packages", "pool"]);
        put(&dir.join("Packages"), &index);
        let options = [
            "-o",
            "APT::FTPArchive::Release::Suite=stable",
            "release",
            "dists/stable",
        ];
        let release = run("apt-utils", &repo, "apt-ftparchive", &options);
        let path = repo.join("dists/stable/Release");
        put(&path, &release);
        self.signer
            .clearsign(&path, &path.with_file_name("InRelease"));
    }
}

fn deb(dir: &Path, name: &str, version: &str, fields: &str) {
    let control = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: Test <test@halite.invalid>\n{fields}{}\
         Description: {name}\n",
        if fields.is_empty() { "" } else { "\n" }
    );
    put(&dir.join("tree/DEBIAN/control"), control.as_bytes());
    let to = format!("repo/pool/{name}_{}_amd64.deb", version.replace(':', "%3a"));
    run(
        "dpkg",
        dir,
        "dpkg-deb",
        &["--build", "--root-owner-group", "tree", &to],
    );
}

/// A second release, here with the same repository and another base.
#[test]
fn hosts_of_a_further_release_have_a_repository_of_their_own() {
    let mut world = World::new();
    let site = &mut world.site;
    let base =
        "Package: libnl3\nStatus: install ok installed\nVersion: 3-1\nArchitecture: amd64\n\n";
    let status = fs::read_to_string(site.path("status")).unwrap();
    put(
        &site.path("trixie-status"),
        format!("{status}\n{base}").as_bytes(),
    );
    let repositories = site.recipe["packages"]["repositories"].clone();
    site.recipe["packages"]["releases"] =
        json!({"trixie": {"base": "trixie-status", "repositories": repositories}});
    let error = site.build("bundle").unwrap_err();
    assert!(
        chain(&error).contains("the packages of packages.releases.trixie"),
        "{}",
        chain(&error)
    );
    let lock = site.lock().unwrap().lock;
    let newest = ["libnft_1.1-1_amd64.deb", "nftables_1.1-1_amd64.deb"];
    let packages = &lock.releases["trixie"].packages;
    assert_eq!(packages.keys().collect::<Vec<_>>(), newest);
    assert_eq!(lock.packages.len(), 3);

    let manifest = site.build("bundle").unwrap();
    let has = |path: &str| manifest.files.contains_key(path);
    for path in [
        "apt-trixie/halite.gpg",
        "apt-trixie/dists/stable/InRelease",
        "apt-trixie/pool/nftables_1.1-1_amd64.deb",
        "apt/pool/libnl3_3-1_amd64.deb",
    ] {
        assert!(has(path), "{path}");
    }
    assert!(
        !has("apt-trixie/pool/libnl3_3-1_amd64.deb"),
        "its base has it"
    );
    assert!(
        verify(&site.path("bundle"), &mut |_| ())
            .unwrap()
            .is_sound()
    );
}

#[test]
fn the_newest_come_with_what_a_bare_host_lacks_for_them() {
    let world = World::new();
    let site = &world.site;
    assert!(matches!(
        site.build("bundle"),
        Err(Error::Unrecorded { .. })
    ));
    let resolved = site.lock().unwrap();
    let packages: Vec<_> = resolved
        .lock
        .packages
        .iter()
        .map(|(name, item)| (name.as_str(), item.why.as_str()))
        .collect();
    let expected = [
        ("libnft_1.1-1_amd64.deb", "needed by nftables"),
        ("libnl3_3-1_amd64.deb", "needed by libnft"),
        ("nftables_1.1-1_amd64.deb", "asked for"),
    ];
    assert_eq!(packages, expected);
    let manifest = site.build("bundle").unwrap();
    assert_eq!(
        (
            manifest.packages["libnft"].as_str(),
            manifest.packages.contains_key("unneeded")
        ),
        ("1:1.1-1", false)
    );
    assert!(
        verify(&site.path("bundle"), &mut |_| ())
            .unwrap()
            .is_sound()
    );

    // A newer version is used only after it is recorded. By then, the server may no longer have the
    // older archive.
    deb(site.dir.path(), "libnft", "1:1.2-1", "Depends: libnl3");
    world.publish();
    assert!(site.lock().unwrap().changes.is_empty());
    assert_eq!(site.build("bundle").unwrap(), manifest);
    let changes = site.update(false).unwrap().changes;
    assert_eq!(
        (changes.len(), changes[0].name.as_str()),
        (1, "package libnft")
    );
    assert!(
        changes[0].old.as_ref().unwrap().starts_with("1.1-1 ")
            && changes[0].new.as_ref().unwrap().starts_with("1.2-1 ")
    );
    drop(world.server);
    let offline = Options {
        offline: true,
        ..Options::default()
    };
    assert_eq!(site.build_with("bundle", &offline).unwrap(), manifest);
}

#[test]
fn a_repository_that_nobody_trusted_signed_is_refused() {
    let world = World::new();
    let release = world.site.path("repo/dists/stable/InRelease");
    let text = fs::read_to_string(&release).unwrap();
    put(&release, text.replace("SHA256:", "SHA257:").as_bytes());
    let error = world
        .site
        .lock()
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("/repo/dists/stable/InRelease") && error.contains("it was changed"),
        "{error}"
    );
    assert!(!world.site.path("recipe.lock.yaml").exists());
}

#[test]
fn what_no_repository_has_is_told() {
    let mut world = World::new();
    fs::remove_file(world.site.path("repo/pool/libnl3_3-1_amd64.deb")).unwrap();
    world.publish();
    world.site.recipe["packages"]["apt"] = json!(["nftables", "none"]);
    let error = world
        .site
        .lock()
        .map_err(|error| chain(&error))
        .unwrap_err();
    for wanted in [
        "no repository has the package none",
        "libnft depends on libnl | libnl3, which neither",
    ] {
        assert!(error.contains(wanted), "{error}");
    }
}
