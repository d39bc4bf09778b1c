//! The signature of a bundle in a directory, and of one on a disc.

use std::fs;
use std::path::Path;

use halite_testkit::process::{done, refused};
use halite_testkit::{SharedSite, Site, SiteCopy, hex, put};

use crate::work::{build, ctl, script, site};

/// A site with a bundle as `X.iso`, and its content in `out`, extracted by another program.
fn extracted() -> SiteCopy {
    static EXTRACTED: SharedSite = SharedSite::new();
    EXTRACTED.copy(|| {
        let site = site();
        done(build(&site, "X.iso"));
        done(script(
            &site,
            "xorriso -osirrox on -indev X.iso -extract / out 2>&1; chmod -R u+w out",
        ));
        site
    })
}

/// Replaces a program, and its digest in the manifest and in the checksum, consistently.
fn forge(dir: &Path) {
    let program = b"#!/bin/sh\necho evil\n";
    let text = fs::read(dir.join("manifest.json")).unwrap();
    let mut manifest: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let old = manifest["files"]["bin/ctl"]["sha256"]
        .as_str()
        .unwrap()
        .to_owned();
    manifest["files"]["bin/ctl"] =
        serde_json::json!({"sha256": hex(program), "size": program.len()});
    put(&dir.join("bin/ctl"), program);
    // The SBOM has the digest, too.
    let list = fs::read_to_string(dir.join("sbom.spdx.json"))
        .unwrap()
        .replace(&old, &hex(program));
    manifest["files"]["sbom.spdx.json"] =
        serde_json::json!({"sha256": hex(list.as_bytes()), "size": list.len()});
    put(&dir.join("sbom.spdx.json"), list.as_bytes());
    let text = serde_json::to_vec_pretty(&manifest).unwrap();
    put(&dir.join("manifest.json"), &text);
    put(
        &dir.join("manifest.json.sha256"),
        format!("{}  manifest.json\n", hex(&text)).as_bytes(),
    );
}

#[test]
fn a_forged_directory_is_not_what_a_trusted_key_signed() {
    let site = extracted();
    let verify = |more: &[&str]| ctl(&site, &[&["bundle", "verify", "out"], more].concat());
    let export = |more: &[&str]| {
        let args = [
            "bundle",
            "export",
            "--since",
            "old",
            "out",
            "--out",
            "delta.iso",
            "--key",
            "builder.key",
        ];
        ctl(&site, &[&args, more].concat())
    };
    let stranger = |more: &[&str]| {
        let mut command = verify(more);
        command.env("HOME", site.path("stranger"));
        command
    };
    assert!(done(verify(&["--trust", "builder.pub"])).contains("; signed by builder ("));
    // The user who made the key trusts it.
    assert!(done(verify(&[])).contains("; signed by builder ("));
    let said = done(stranger(&[]));
    assert!(
        said.contains("its signature was not checked: name a key with --trust"),
        "{said}"
    );

    forge(&site.path("out"));
    for command in [
        verify(&["--trust", "builder.pub"]),
        verify(&[]),
        export(&["--trust", "builder.pub"]),
    ] {
        let said = refused(command);
        assert!(
            said.contains("does not match its statement")
                && said.contains("no trusted key signed this directory"),
            "{said}"
        );
    }
    for entry in fs::read_dir(site.path("out"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
    {
        if entry.extension().is_some_and(|suffix| suffix == "minisig") {
            fs::remove_file(entry).unwrap();
        }
    }
    for command in [
        verify(&["--trust", "builder.pub"]),
        verify(&[]),
        export(&[]),
    ] {
        let said = refused(command);
        assert!(
            said.contains("it is not signed") && said.contains("--allow-unsigned"),
            "{said}"
        );
    }
    let said = done(verify(&["--allow-unsigned"]));
    assert!(said.contains("; signed by no trusted key"), "{said}");
    let mut stranger_export = export(&[]);
    stranger_export.env("HOME", site.path("stranger"));
    assert!(refused(stranger_export).contains("no key is trusted here yet"));

    // Only with the option is an unsigned bundle exported.
    site_of("old", &site);
    done(export(&["--allow-unsigned"]));
}

/// A disc or a USB stick is not a file and has no size in its metadata. Needs loop devices on this
/// machine.
#[test]
fn a_disc_is_read_as_its_image_is() {
    let site = extracted();
    let said = done(script(
        &site,
        r##"
            if ! device=$(losetup --find --show --read-only X.iso); then echo 'no loop devices here'; exit 0; fi
            trap 'losetup --detach "$device"' EXIT
            test -b "$device"
            "$CTL" bundle verify "$device" --trust builder.pub
            "$CTL" bundle show "$device"
            "$CTL" bundle diff "$device" X.iso
            sed -i 's/"0\.1\.0"/"0.2.0"/' recipe.yaml
            "$CTL" bundle build --recipe recipe.yaml --out new.iso --key builder.key
            "$CTL" bundle export --since "$device" new.iso --out delta.iso --key builder.key --trust builder.pub
        "##,
    ));
    assert!(
        said.contains("signed by builder") || said.contains("no loop devices here"),
        "{said}"
    );
}

/// An older bundle of the same site.
fn site_of(version: &str, site: &Site) {
    let text = fs::read_to_string(site.path("recipe.yaml")).unwrap();
    put(
        &site.path("recipe.yaml"),
        text.replace("\"0.1.0\"", "\"0.0.9\"").as_bytes(),
    );
    done(ctl(
        site,
        &[
            "bundle",
            "build",
            "--recipe",
            "recipe.yaml",
            "--out",
            version,
        ],
    ));
}
