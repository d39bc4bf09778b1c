//! The yum repository of a bundle, checked by rpm itself.

use std::fs;
use std::path::Path;
use std::process::Command;

use halite_errors::chain;
use halite_manifest::Manifest;
use halite_testkit::{Site, files, put};
use serde_json::json;

/// A minimal host of an RPM distribution.
const BASE: &str = "P bash 0:5.1-1 x86_64\np bash = 0:5.1-1\np /bin/sh\nP util-linux 0:2.37-1 x86_64\n\
                    p util-linux = 2.37-1\nP runc 0:1.1-1 x86_64\np runc = 1.1-1\n";

fn site() -> Site {
    let mut site = Site::new();
    put(&site.path("rpm-base"), BASE.as_bytes());
    site.recipe["packages"]["rpm"] = json!({"base": "rpm-base"});
    site
}

fn build(site: &Site, out: &str) -> Manifest {
    site.build(out).unwrap_or_else(|error| panic!("{error}"))
}

fn query(package: &Path, format: &str) -> String {
    let output = Command::new("rpm")
        .args(["-qp", "--nosignature", "--qf", format])
        .arg(package)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn what_the_recipe_makes_is_made_for_rpm_too() {
    let site = site();
    let made = build(&site, "bundle");
    assert_eq!(made.rpms["kubelet"], "1.2.3-1");
    assert_eq!(made.rpms.len(), 5);
    for path in [
        "rpm/repodata/repomd.xml",
        "rpm/repodata/repomd.xml.asc",
        "rpm/halite.asc",
        "base/rpm-packages",
    ] {
        assert!(
            made.sha256(path).is_some(),
            "{path} is missing: {:?}",
            made.files.keys()
        );
    }
    let kubelet = site.path("bundle/rpm/packages/kubelet-1.2.3-1.x86_64.rpm");
    let needs = query(&kubelet, "[%{REQUIRENEVRS}\n]");
    for need in ["kubernetes-cni >= 1.2.0", "util-linux", "/bin/sh"] {
        assert!(needs.lines().any(|line| line == need), "{needs}");
    }
    let held = query(
        &kubelet,
        "[%{FILEMODES:perms} %{FILEUSERNAME} %{FILENAMES} %{FILEFLAGS:fflags}\n]",
    );
    for line in [
        "-rwxr-xr-x root /usr/bin/kubelet ",
        "-rw-r--r-- root /usr/lib/systemd/system/kubelet.service ",
        "-rw-r--r-- root /etc/default/kubelet cn",
        "drwxr-xr-x root /var/lib/kubelet ",
        "-rw-r--r-- root /usr/share/licenses/kubelet/LICENSE l",
    ] {
        assert!(held.lines().any(|held| held == line), "{line}: {held}");
    }
    assert!(query(&kubelet, "%{POSTIN}%{POSTUN}").contains("systemctl daemon-reload"));
    assert_eq!(
        query(&kubelet, "%{BUILDHOST} %{BUILDTIME} %{LICENSE}"),
        "halite 315532800 Apache-2.0"
    );
    // A host checks the packages with the key of the bundle.
    let home = site.path("home");
    let keys = |args: &[&str], files: &[&Path]| {
        let mut rpmkeys = Command::new("rpmkeys");
        rpmkeys.args([
            "--define",
            &format!("_dbpath {}", home.display()),
            "--define",
            "_pkgverify_level all",
        ]);
        rpmkeys.args(args).args(files).output().unwrap()
    };
    assert!(!keys(&["--checksig"], &[&kubelet]).status.success());
    assert!(
        keys(&["--import"], &[&site.path("bundle/rpm/halite.asc")])
            .status
            .success()
    );
    let said = keys(&["--checksig", "-v"], &[&kubelet]);
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(
        said.contains("RSA/SHA512 Signature") && !said.contains("NOKEY"),
        "{said}"
    );
    let mut changed = fs::read(&kubelet).unwrap();
    let last = changed.len() - 20;
    changed[last] ^= 1;
    put(&site.path("changed.rpm"), &changed);
    assert!(
        !keys(&["--checksig"], &[&site.path("changed.rpm")])
            .status
            .success()
    );
}

#[test]
fn a_key_that_not_every_rpm_can_check_is_refused() {
    let mut site = site();
    let rpm = site.recipe["packages"]
        .as_object_mut()
        .unwrap()
        .remove("rpm")
        .unwrap();
    site.build("before").unwrap();
    site.recipe["packages"]["rpm"] = rpm;
    site.update(true).unwrap();
    let error = site
        .build("after")
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("signing-key.asc: is not an RSA key"),
        "{error}"
    );
}

#[test]
fn the_same_recipe_and_key_make_the_same_repository() {
    let mut site = site();
    site.recipe["cache"] = json!("cache-1");
    build(&site, "one");
    site.recipe["cache"] = json!("cache-2");
    build(&site, "two");
    let (one, two) = (site.path("one/rpm"), site.path("two/rpm"));
    assert_eq!(files(&one), files(&two));
    for file in files(&one) {
        assert!(
            fs::read(one.join(&file)).unwrap() == fs::read(two.join(&file)).unwrap(),
            "{file} differs"
        );
    }
}

#[test]
fn a_package_that_a_minimal_host_could_not_install_is_found_by_dnf() {
    let site = site();
    put(
        &site.path("rpm-base"),
        BASE.replace("runc", "other").as_bytes(),
    );
    let error = site
        .build("bundle")
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("dnf cannot install") && error.contains("nothing provides runc"),
        "{error}"
    );
    put(&site.path("rpm-base"), b"Package: bash\n");
    let error = site
        .build("bundle")
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(
        error.contains("rpm-base: it is not a list of packages") && error.contains("line 1"),
        "{error}"
    );
}
