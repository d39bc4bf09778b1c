//! File names: those that a bundle may contain, and their extraction by every program.

use std::fs;
use std::path::Path;
use std::process::Command;

use halite_builder::Error;
use halite_bundle::{pack, verify};
use halite_errors::chain;
use halite_iso9660::read::IsoImage;
use halite_testkit::{Site, files, put};

use crate::shared::built;

fn run(program: &str, args: &[&str]) {
    let output = Command::new(program)
        .args(args)
        .output()
        .unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {args:?}: {}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn a_name_that_an_image_would_change_is_refused_by_the_build() {
    let site = Site::new();
    let long = format!("states/custom/{}.sls", "x".repeat(61));
    for name in [
        "states/custom/a:b.sls",
        "states/Host/more.sls",
        &long,
        "states/custom/what?",
        "states/custom/dot.",
    ] {
        put(&site.path(name), b"{}\n");
    }
    let error = site.build("bundle").unwrap_err();
    let Error::Names(names) = &error else {
        panic!("{error}")
    };
    assert_eq!(names.len(), 5, "{names:#?}");
    let text = chain(&error);
    for wanted in [
        "states/custom/a:b.sls: Joliet allows no ':'",
        "states/host: states/Host exists too, and Joliet ignores case",
        "the name has 65 characters, and Joliet allows 64",
        "states/custom/what?: ",
        "states/custom/dot.: Windows and 7z",
    ] {
        assert!(text.contains(wanted), "{wanted}: {text}");
    }
    assert!(!site.path("bundle").exists() && !site.path("recipe.lock.yaml").exists());
}

/// Names of the maximum length, and a package whose own name is longer.
#[test]
fn every_program_takes_the_same_names_out() {
    let mut site = Site::new();
    let version = format!("1.2.3+git{}-1", "0".repeat(60));
    site.recipe["packages"]["made"][2]["version"] = version.as_str().into();
    for name in [
        &format!("{}.sls", "x".repeat(60)),
        &"é".repeat(64),
        "a b",
        "~1",
        "-rf",
        "日本語.yaml",
        "%2f",
        "nul.txt",
    ] {
        put(
            &site.path(&format!("states/custom/{name}")),
            name.as_bytes(),
        );
    }
    let made = site.build("bundle").unwrap();
    assert_eq!(made.packages["kubectl"], version);
    let pool: Vec<_> = made
        .files
        .keys()
        .filter(|path| path.starts_with("apt/pool/kubectl_"))
        .collect();
    assert!(
        pool.len() == 1 && pool[0].len() - "apt/pool/".len() <= 64,
        "{pool:?}"
    );
    let (iso, expected) = (site.path("X.iso"), files(&site.path("bundle")));
    pack(&site.path("bundle"), &iso, &[], &mut |_| ()).unwrap();
    let iso = iso.to_str().unwrap();
    for (name, program, args) in [
        ("7z", "7z", &["x", "-bd", "-oOUT", iso][..]),
        (
            "rock",
            "xorriso",
            &["-indev", iso, "-osirrox", "on", "-extract", "/", "OUT"],
        ),
        (
            "joliet",
            "xorriso",
            &[
                "-read_fs", "norock", "-indev", iso, "-osirrox", "on", "-extract", "/", "OUT",
            ],
        ),
    ] {
        let out = site.path(name);
        let args: Vec<String> = args
            .iter()
            .map(|arg| arg.replace("OUT", out.to_str().unwrap()))
            .collect();
        run(
            program,
            &args.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        assert_eq!(files(&out), expected, "{name}");
        assert!(verify(&out, &mut |_| ()).unwrap().is_sound(), "{name}");
    }
    IsoImage::open(Path::new(iso))
        .unwrap()
        .extract(&site.path("own"), &mut |_| ())
        .unwrap();
    assert_eq!(files(&site.path("own")), expected);
}

/// A seal on changed content would make it look verified.
#[test]
fn a_bundle_that_is_not_what_its_manifest_says_is_not_sealed() {
    let site = built();
    put(&site.path("bundle/bin/ctl"), b"another");
    put(&site.path("bundle/states/more.sls"), b"{}\n");
    fs::remove_file(site.path("bundle/install")).unwrap();
    let error = pack(&site.path("bundle"), &site.path("X.iso"), &[], &mut |_| ()).unwrap_err();
    assert!(
        matches!(&error, halite_bundle::Error::Unsound { problems, .. } if problems.len() == 3),
        "{error}"
    );
    let text = chain(&error);
    for wanted in [
        "is not sealed",
        "bin/ctl: changed",
        "install: missing",
        "states/more.sls: exists, but is not",
    ] {
        assert!(text.contains(wanted), "{text}");
    }
    assert_eq!(
        files(site.dir.path())
            .iter()
            .filter(|name| name.contains("iso"))
            .count(),
        0
    );
}
