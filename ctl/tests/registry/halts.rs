//! Interrupted commands, concurrent commands, and full disks.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use halite_testkit::process::{done, end, signal, started};
use halite_testkit::registry::Content;
use halite_testkit::{names, put};
use rustix::process::Signal;

use crate::world::{BACKUP, PARTIAL, RESTORE, World, all_of, image, largest, place};

/// The number of kills, each a bit later than the previous one.
const KILLS: u32 = 10;

/// Shell functions: check that a command fails, and print the output of a started one.
const REFUSED: &str = r#"
refuse() {
    if "$@" > said 2>&1; then cat said; echo "it was not refused"; exit 1; fi
    cat said
}
waited() {
    code=0
    wait "$ctl" || code=$?
    cat error
    return "$code"
}
# Stops `work` once a mark exists, not before or after. If it ended before the first check, `undo` resets it.
catch() {
    for try in $(seq 200); do
        work 2> error & ctl=$!
        until ls $1 > found 2> /dev/null || ! kill -0 "$ctl" 2> /dev/null; do :; done
        if stop "$ctl" 2> /dev/null && ls $1 > found 2> /dev/null; then return 0; fi
        trap - EXIT
        kill -CONT "$ctl" 2> /dev/null || true
        wait "$ctl"
        undo
    done
    echo "it always ended before the first check"
    exit 1
}
"#;

/// A registry that takes a while to copy.
fn large() -> (World, Content) {
    let world = World::new();
    let all = image("app", "1", &[12 << 20, 6 << 20, 50], 1);
    world.push("app", &all);
    (world, all)
}

/// Kills the command once `there` is true. Returns true if that was before the command ended.
fn killed_at(world: &World, args: &[&str], there: impl Fn() -> bool) -> bool {
    let mut child = started(world.command(args));
    let mut seen = false;
    while !seen && child.try_wait().unwrap().is_none() {
        seen = there();
        std::thread::yield_now();
    }
    signal(&child, Signal::KILL);
    let (ended, _) = end(child);
    seen && !ended
}

/// Retries until something happens, and resets the world before each try. Returns false if it never
/// happens.
fn again(undo: impl Fn(), mut comes_about: impl FnMut() -> bool) -> bool {
    (0..200).any(|_| {
        let done = comes_about();
        if !done {
            undo();
        }
        done
    })
}

/// Kills the command at increasing times by the clock, to include moments that no file marks. The
/// checks afterwards hold for any moment.
fn killed_everywhere(world: &World, args: &[&str], whole: Duration, mut after: impl FnMut()) {
    for kill in 0..KILLS {
        let child = started(world.command(args));
        std::thread::sleep(whole * kill / KILLS);
        signal(&child, Signal::KILL);
        end(child);
        after();
    }
}

#[test]
fn a_backup_that_is_killed_leaves_none_that_is_not_whole() {
    let (world, all) = large();
    let first = world.backup().name();
    let blob = place(&largest(&all));
    // Makes the next backup copy everything again.
    fs::rename(world.path("backups").join(&first), world.path("away")).unwrap();
    let reset = || {
        for name in world.backups() {
            fs::remove_dir_all(world.path("backups").join(name)).unwrap();
        }
    };
    assert!(again(reset, || killed_at(&world, &BACKUP, || world.is_partial())));
    assert!(again(reset, || {
        let copied = world.kept(PARTIAL, &blob);
        killed_at(&world, &BACKUP, || copied.exists()) && world.is_partial()
    }));
    let start = Instant::now();
    let kept = world.done(&["backup", "--data", "storage", "--out", "timed"]);
    killed_everywhere(
        &world,
        &["backup", "--data", "storage", "--out", "backups"],
        start.elapsed(),
        || {
            for backup in world.backups() {
                world.done(&["verify", &format!("backups/{backup}")]);
            }
        },
    );
    let last = world.backup();
    assert_eq!(last.number("size"), kept.number("size"));
    world.done(&["verify", "backups"]);
    assert_eq!(names(&world.path("backups")), world.backups());
    assert!(world.path("away").exists());
}

#[test]
fn a_partly_removed_backup_is_not_listed() {
    let (world, _) = large();
    let more = || {
        for _ in 0..6 {
            world.backup();
        }
    };
    let prune = [&BACKUP[..], &["--keep", "1"]].concat();
    more();
    // The moment after the first one has lost its name, before the others do.
    assert!(again(more, || {
        let first = world.path("backups").join(&world.backups()[0]);
        killed_at(&world, &prune, || !first.exists()) && world.backups().len() > 1
    }));
    for backup in world.backups() {
        world.done(&["verify", &format!("backups/{backup}")]);
    }
    let last = world.done(&prune).name();
    assert_eq!(names(&world.path("backups")), [last]);
}

#[test]
fn a_restore_that_is_killed_again_and_again_comes_to_the_same() {
    let (world, all) = large();
    world.backup();
    let lose = || {
        fs::remove_dir_all(world.path("storage/docker")).unwrap();
        put(
            &world.live("repositories/other/_manifests/tags/x/current/link"),
            b"",
        );
    };
    let there = |name: &str| world.live(name).exists();
    lose();
    // The new tree appears complete. Each run removes the leftovers of the previous one.
    let blob = format!("../.v2.new/{}", place(&largest(&all)));
    for (mark, old) in [
        ("../.v2.new", true),
        (blob.as_str(), true),
        ("../.v2.new/repositories/app", true),
        ("repositories/app", false),
    ] {
        let killed = again(lose, || {
            if there(mark) {
                lose();
            }
            killed_at(&world, &RESTORE, || there(mark))
                && there("repositories/other") == old
                && there("repositories/app") != old
        });
        assert!(killed, "it was never killed where {mark} is there");
    }
    let start = Instant::now();
    lose();
    world.done(&RESTORE);
    let whole = start.elapsed();
    lose();
    killed_everywhere(&world, &RESTORE, whole, || {
        // Exactly one of them exists.
        assert!(there("repositories/other") != there("repositories/app"));
        if there("repositories/app") {
            world.serves("app", &all);
            lose();
        }
    });
    world.done(&RESTORE);
    world.serves("app", &all);
    assert_eq!(names(&world.live("..")), ["v2"]);
}

#[test]
fn a_second_one_is_refused_and_harms_nothing() {
    let (world, all) = large();
    let busy = "storage/docker: another ctl is writing it";
    let older = world.backup().name();
    world.push("late", &image("late", "1", &[8 << 20], 40));
    fs::rename(world.path("backups"), world.path("older")).unwrap();
    let copying = || world.kept(PARTIAL, "blobs").exists();
    let child = world.stopped(&BACKUP, copying, || {
        fs::remove_dir_all(world.path("backups")).unwrap()
    });
    let restore = ["restore", "older", "--data", "storage"];
    for args in [&BACKUP[..], &restore] {
        let said = world.refused(args);
        assert!(said.text.contains(busy), "{}", said.text);
    }
    // Another registry with the same directory of backups.
    fs::create_dir(world.path("other")).unwrap();
    let said = world.refused(&["backup", "--data", "other", "--out", "backups"]);
    assert!(said.text.contains("backup: another ctl"), "{}", said.text);
    assert!(world.is_partial());
    signal(&child, Signal::CONT);
    let (good, text) = end(child);
    assert!(good, "{text}");
    world.done(&["verify", "backups"]);

    let lose = || fs::remove_dir_all(world.path("storage/docker")).unwrap();
    lose();
    let staged = world.path("storage/docker/registry/.v2.new");
    let older = format!("older/{older}");
    let restore = ["restore", &older, "--data", "storage"];
    let child = world.stopped(&restore, || staged.exists(), lose);
    for args in [&BACKUP[..], &RESTORE] {
        let said = world.refused(args);
        assert!(said.text.contains(busy), "{}", said.text);
    }
    assert!(staged.exists());
    signal(&child, Signal::CONT);
    let (good, text) = end(child);
    assert!(good, "{text}");
    world.serves("app", &all);
    assert!(!world.has("late", "1"));
}

#[test]
fn a_backup_without_room_leaves_what_was_there() {
    let (world, all) = large();
    done(world.script(&format!(
        "{REFUSED}{}",
        r##"
            mkdir disk && mount -t tmpfs -o size=64m none disk
            backup() { "$CTL" registry backup --data storage --out disk/backups; }
            left() { ls -A disk/backups | grep -v '^[0-9]*T[0-9]*Z' || true; }
            mkdir disk/empty
            # Refused beforehand, with no space left and with too little.
            for left in 0 100000 9000000; do
                fill "$left"
                refuse backup
                grep "the registry's data needs 1[89] MiB and only [0-9]* MiB are free" said
                grep 'nothing was changed' said
                test -z "$(ls -A disk/backups)"
                rm disk/filler
            done
            # Not foreseen: another program fills the disk.
            work() { exec "$CTL" registry backup --data storage --out disk/backups; }
            undo() { rm -r disk/backups/2*; }
            catch 'disk/backups/.partial/docker/registry/v2/blobs/sha256/*/*/data'
            fill 0
            resume "$ctl"
            full waited
            test -z "$(ls -A disk/backups)"
            rm disk/filler
            backup
            test -z "$(left)"
            "$CTL" registry verify disk/backups
            # Existing content only needs room for its links.
            fill 2000000
            backup
            test "$(ls disk/backups | wc -l)" = 2
            rm disk/filler
            fill 0
            refuse backup
            grep "the registry's data needs 1 MiB and only 0 MiB are free" said
            test "$(ls disk/backups | wc -l)" = 2
            test -z "$(left)"
            "$CTL" registry verify disk/backups
        "##
    )));
    world.serves("app", &all);
}

#[test]
fn a_backup_is_told_though_an_older_one_cannot_be_removed() {
    let world = World::new();
    world.push("app", &image("app", "1", &[3000], 1));
    let older: Vec<String> = (0..3).map(|_| world.backup().name()).collect();
    // A mount point cannot be renamed.
    done(world.script(&format!(
        r##"{REFUSED}
            mount --bind "backups/{second}" "backups/{second}"
            refuse "$CTL" registry backup --data storage --out backups --keep 1
            grep '^✓ backup backups/' said
            grep 'older ones could not be removed: cannot remove backups/{second}: ' said
            refuse "$CTL" registry backup --data storage --out backups --keep 1 -o json --report report.json
            grep '"problem": *"the backup .* could not be removed: cannot remove backups/{second}: ' said
            grep '"failure": "the backup .* was made, but older ones could not be removed: ' report.json
        "##,
        second = older[1]
    )));
    let left = names(&world.path("backups"));
    assert_eq!((left.len(), &left[..2]), (4, &older[1..]), "{left:?}");
    let last = world.done(&[&BACKUP[..], &["--keep", "1"]].concat());
    assert_eq!(last.answer["removed"], serde_json::json!(left));
    assert_eq!(
        (names(&world.path("backups")), &last.answer["problem"]),
        (vec![last.name()], &serde_json::Value::Null)
    );
}

#[test]
fn a_restore_without_room_changes_nothing() {
    let (world, _) = large();
    let blob = place(&largest(&image("app", "1", &[12 << 20], 1)));
    done(world.script(&format!(
        r##"{REFUSED}
            mkdir disk && mount -t tmpfs -o size=64m none disk
            "$CTL" registry backup --data storage --out backups
            mkdir disk/data
            cp -r storage/docker disk/data/
            v2=disk/data/docker/registry/v2
            rm -r "$v2/{blob}" "$v2/repositories/app/_manifests/tags"
            list() {{ (cd disk && find data | sort); }}
            list > before
            restore() {{ "$CTL" registry restore backups --yes --data disk/data; }}
            fill 9000000
            refuse restore
            grep "the registry's data needs 1[23] MiB and only 8 MiB are free" said
            list | cmp - before
            rm disk/filler
            work() {{ exec "$CTL" registry restore backups --yes --data disk/data; }}
            # A restore that ended too early has put everything in place, except uploads, which no backup has.
            undo() {{ rm -r "$v2/{blob}" "$v2/repositories/app/_manifests/tags"; list > before; }}
            catch "disk/data/docker/registry/.v2.new/{blob}"
            fill 0
            resume "$ctl"
            full waited
            list | grep -v filler | cmp - before
            rm disk/filler
            restore
            # From a read-only file system.
            mkdir ro && mount -t tmpfs none ro && cp -a backups/. ro/ && mount -o remount,ro ro
            rm -r disk/data/docker
            "$CTL" registry restore ro --yes --data disk/data
            diff -r storage/docker disk/data/docker | grep -v -e _uploads -e 'tags/1: index' > differs || true
            test ! -s differs
        "##
    )));
    assert!(Path::new(&world.live("repositories/app")).exists());
    assert!(!all_of(&world.path("storage")).is_empty());
}
