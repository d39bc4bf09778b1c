//! Two commands at the same time.

use std::fs;
use std::process::Command;

use halite_testkit::process::{caught, done, end, refused, signal, started};
use halite_testkit::{Site, names};
use rustix::process::Signal;

use crate::work::{build, ctl, site};

/// Stops `first` when `mark` appears, lets `second` be refused, and lets `first` end.
fn meet(site: &Site, mark: &str, first: impl Fn() -> Command, second: Command) -> String {
    let running = caught(first, || site.path(mark).exists());
    let said = refused(second);
    assert!(
        site.path(mark).exists(),
        "the second removed files that the first is writing: {said}"
    );
    signal(&running, Signal::CONT);
    let (good, first) = end(running);
    assert!(good, "{first}");
    said
}

#[test]
fn a_second_build_of_the_same_bundle_is_refused() {
    let site = site();
    for (out, mark) in [("bundle", ".bundle.new"), ("X.iso", ".X.iso.bundle.new")] {
        let mark = if out == "X.iso" {
            format!(".{mark}")
        } else {
            mark.to_owned()
        };
        let said = meet(&site, &mark, || build(&site, out), build(&site, out));
        assert!(
            said.contains(&format!("{out}: another ctl is writing it")),
            "{said}"
        );
        done(ctl(
            &site,
            &[
                "bundle",
                "verify",
                out,
                "--trust",
                "builder.pub",
                "--allow-unsigned",
            ],
        ));
    }
    let left: Vec<_> = names(site.dir.path())
        .into_iter()
        .filter(|name| name.starts_with('.'))
        .collect();
    assert_eq!(left, [".config"]);
}

/// Two builds that share a recipe and a cache wait for one another, and have the same result.
#[test]
fn two_builds_with_one_cache_do_not_mix() {
    let site = site();
    let all = ["one", "two", "three"].map(|out| (out, started(build(&site, out))));
    for (out, child) in all {
        let (good, said) = end(child);
        assert!(good, "{out}: {said}");
        done(ctl(
            &site,
            &[
                "bundle",
                "verify",
                out,
                "--trust",
                "builder.pub",
                "--allow-unsigned",
            ],
        ));
    }
    let manifest = |out: &str| fs::read(site.path(out).join("manifest.json")).unwrap();
    assert!(manifest("one") == manifest("two") && manifest("two") == manifest("three"));
    assert!(
        names(&site.path("cache"))
            .iter()
            .all(|name| !name.starts_with('.')),
        "{:?}",
        names(&site.path("cache"))
    );
}

#[test]
fn a_second_image_at_the_same_place_is_refused() {
    let mut site = site();
    site.enlarge(24 << 20);
    done(build(&site, "bundle"));
    site.recipe["version"] = "0.2.0".into();
    site.written();
    done(build(&site, "other"));
    let pack = |from| {
        ctl(
            &site,
            &[
                "bundle",
                "pack",
                from,
                "--out",
                "X.iso",
                "--key",
                "builder.key",
            ],
        )
    };
    let said = meet(&site, ".X.iso.new", || pack("bundle"), pack("other"));
    assert!(said.contains("X.iso: another ctl is writing it"), "{said}");
    let said = done(ctl(
        &site,
        &["bundle", "verify", "X.iso", "--trust", "builder.pub"],
    ));
    assert!(said.contains("0.1.0"), "{said}");
    assert!(
        !names(site.dir.path())
            .iter()
            .any(|name| name.starts_with(".X"))
    );
}
