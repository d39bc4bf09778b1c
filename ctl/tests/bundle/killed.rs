//! Killed in the middle: the previous files stay, and the next run removes the leftovers.

use std::fs;
use std::time::{Duration, Instant};

use halite_testkit::process::{caught, done, end, met, signal, started};
use halite_testkit::{names, put};
use rustix::process::Signal;

use crate::work::{build, ctl, site};

/// The files that a build of `X.iso` writes, in this order: it is killed once the first one exists,
/// then once the next one does.
const MARKS: &[&str] = &[
    ".X.iso.lock",
    "..X.iso.bundle.parts",
    "..X.iso.bundle.new/images",
    "..X.iso.bundle.new/apt",
    "..X.iso.bundle.new/bin/ctl",
    "..X.iso.bundle.new/states/large",
    "..X.iso.bundle.new/manifest.json",
    ".X.iso.bundle",
    ".X.iso.new",
];

#[test]
fn a_build_that_is_killed_again_and_again_comes_to_the_same() {
    let mut site = site();
    site.enlarge(24 << 20);
    // No cache: each run does all the work.
    site.recipe.as_object_mut().unwrap().remove("cache");
    site.written();
    done(build(&site, "X.iso"));
    let (before, there) = (
        fs::read(site.path("X.iso")).unwrap(),
        names(site.dir.path()),
    );
    put(&site.path("states/host/init.sls"), b"# changed\n{}\n");
    let mut killed = 0;
    for mark in MARKS {
        if site.path(mark).exists() {
            // The previous run had already come this far when it was killed.
            continue;
        }
        let mut child = started(build(&site, "X.iso"));
        let in_time = met(&mut child, &site.path(mark));
        signal(&child, Signal::KILL);
        let (ended, said) = end(child);
        if ended {
            // It ended before the first check.
            break;
        }
        assert!(in_time, "{mark} was never seen: {said}");
        assert!(
            before == fs::read(site.path("X.iso")).unwrap(),
            "after {mark} the image is another"
        );
        killed += 1;
    }
    assert!(killed > 2, "only {killed} were killed in time");
    done(build(&site, "X.iso"));
    assert!(before != fs::read(site.path("X.iso")).unwrap());
    done(ctl(
        &site,
        &["bundle", "verify", "X.iso", "--trust", "builder.pub"],
    ));
    assert_eq!(names(site.dir.path()), there, "something was left");
    // The programs that it had started have lost their parent: their leftover files show that they
    // have ended.
    let start = Instant::now();
    while !names(&site.path("tmp"))
        .iter()
        .all(|name| !name.starts_with("halite-"))
    {
        assert!(
            start.elapsed() < Duration::from_secs(300),
            "{:?}",
            names(&site.path("tmp"))
        );
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_image_that_is_killed_leaves_the_one_that_was_there() {
    let site = site();
    site.enlarge(24 << 20);
    done(build(&site, "X.iso"));
    done(build(&site, "bundle"));
    let before = fs::read(site.path("X.iso")).unwrap();
    let there = names(site.dir.path());
    let pack = || {
        ctl(
            &site,
            &[
                "bundle",
                "pack",
                "bundle",
                "--out",
                "X.iso",
                "--key",
                "builder.key",
            ],
        )
    };
    for size in [0, 8 << 20, 16 << 20] {
        // A leftover of the previous run must not count as a mark of this one.
        let _ = fs::remove_file(site.path(".X.iso.new"));
        let large = || fs::metadata(site.path(".X.iso.new")).is_ok_and(|facts| facts.len() >= size);
        let child = caught(pack, large);
        signal(&child, Signal::KILL);
        end(child);
        assert!(before == fs::read(site.path("X.iso")).unwrap());
    }
    done(pack());
    // The same bundle and key, the same bytes.
    assert!(before == fs::read(site.path("X.iso")).unwrap());
    assert_eq!(names(site.dir.path()), there);
}
