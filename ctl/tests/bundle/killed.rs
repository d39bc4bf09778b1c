//! Killed in the middle: what was there stays, and the next run clears up.

use std::{
    fs,
    time::{Duration, Instant},
};

use halite_testkit::{names, put};
use rustix::process::Signal;

use crate::work::{ctl, done, end, met, signal, site, started};

/// How often a build is killed, each time a bit later.
const KILLS: u32 = 12;

#[test]
fn a_build_that_is_killed_again_and_again_comes_to_the_same() {
    let mut site = site();
    // Nothing is kept: each run does all of it.
    site.recipe.as_object_mut().unwrap().remove("cache");
    site.written();
    let build = || {
        ctl(&site, &["bundle", "build", "--recipe", "recipe.yaml", "--out", "X.iso", "--key", "builder.key"])
    };
    let start = Instant::now();
    done(build());
    let whole = start.elapsed();
    let (before, there) = (fs::read(site.path("X.iso")).unwrap(), names(site.dir.path()));
    put(&site.path("states/host/init.sls"), b"# changed\n{}\n");
    for kill in 0..KILLS {
        let child = started(build());
        std::thread::sleep(whole * kill / KILLS);
        signal(&child, Signal::KILL);
        let (ended, _) = end(child);
        if ended {
            // It was done before its time.
            break;
        }
        assert!(before == fs::read(site.path("X.iso")).unwrap(), "after kill {kill} the image is another");
    }
    done(build());
    assert!(before != fs::read(site.path("X.iso")).unwrap());
    done(ctl(&site, &["bundle", "verify", "X.iso", "--trust", "builder.pub"]));
    assert_eq!(names(site.dir.path()), there, "something was left");
    // The programs that it had started may need a moment.
    let start = Instant::now();
    while !names(&site.path("tmp")).iter().all(|name| !name.starts_with("halite-")) {
        assert!(start.elapsed() < Duration::from_secs(10), "{:?}", names(&site.path("tmp")));
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn an_image_that_is_killed_leaves_the_one_that_was_there() {
    let site = site();
    put(&site.path("states/large"), &vec![b'x'; 24 << 20]);
    let build = |out| {
        ctl(&site, &["bundle", "build", "--recipe", "recipe.yaml", "--out", out, "--key", "builder.key"])
    };
    done(build("X.iso"));
    done(build("bundle"));
    let before = fs::read(site.path("X.iso")).unwrap();
    let there = names(site.dir.path());
    let pack = || ctl(&site, &["bundle", "pack", "bundle", "--out", "X.iso", "--key", "builder.key"]);
    for later in [0, 20, 60] {
        let mut child = started(pack());
        assert!(met(&mut child, &site.path(".X.iso.new")));
        std::thread::sleep(Duration::from_millis(later));
        signal(&child, Signal::KILL);
        end(child);
        assert!(before == fs::read(site.path("X.iso")).unwrap());
    }
    done(pack());
    // The same bundle and key, the same bytes.
    assert!(before == fs::read(site.path("X.iso")).unwrap());
    assert_eq!(names(site.dir.path()), there);
}
