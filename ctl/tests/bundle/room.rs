//! Full and read-only disks: small file systems in a separate mount namespace.

use halite_testkit::process::{done, refused};

use crate::work::{build, script, site};

/// A build writes everything to a disk that fills up, each time at a later moment.
#[test]
fn a_build_without_room_leaves_what_was_there_and_nothing_else() {
    let site = site();
    done(script(
        &site,
        r##"
            mkdir disk && mount -t tmpfs -o size=48m none disk
            for part in recipe.yaml status images bin states; do cp -r "$part" disk/; done
            build() { TMPDIR=$PWD/disk/tmp "$CTL" bundle build --recipe disk/recipe.yaml --out disk/bundle; }
            mkdir disk/tmp
            build
            cp disk/bundle/manifest.json before
            "$CTL" bundle verify disk/bundle --allow-unsigned
            failures=0
            for left in 0 30000 60000 120000 200000 300000 400000; do
                # The cache is not used, and the key is created again.
                rm -rf disk/cache disk/signing-key.asc
                echo "# $left" >> disk/states/host/init.sls
                fill "$left"
                if ! build > said 2>&1; then
                    cat said
                    grep -q 'No space left on device\|cannot write' said
                    failures=$((failures + 1))
                    cmp before disk/bundle/manifest.json
                    "$CTL" bundle verify disk/bundle --allow-unsigned
                    test "$(ls -A disk disk/tmp | grep -c '\.new$\|\.lock$\|halite-\|\.parts$')" = 0
                else
                    cp disk/bundle/manifest.json before
                fi
                rm -f disk/filler
            done
            test "$failures" -gt 2
            build
            "$CTL" bundle verify disk/bundle --allow-unsigned
            test "$(ls -A disk disk/tmp disk/cache | grep -c '\.new$\|\.lock$\|halite-\|\.parts$')" = 0
        "##,
    ));
}

#[test]
fn an_image_without_room_leaves_the_one_that_was_there() {
    let site = site();
    done(build(&site, "bundle"));
    let said = done(script(
        &site,
        r##"
            mkdir disk && mount -t tmpfs -o size=24m none disk
            pack() { "$CTL" bundle pack bundle --out disk/X.iso --key builder.key; }
            pack
            size=$(stat -c %s disk/X.iso)
            sha256sum disk/X.iso > before
            # No room at all, not for the first file, not for the seal, not for the last sector.
            for left in 0 20000 $((size / 2)) $((size - 8192)) $((size - 4096)); do
                fill "$left"
                full pack
                rm disk/filler
                sha256sum -c before
                test "$(ls -A disk)" = X.iso
            done
            pack
            sha256sum -c before
            test "$(ls -A disk)" = X.iso
        "##,
    ));
    assert!(said.contains("cannot write disk/"), "{said}");
}

/// A check needs no disk space.
#[test]
fn a_check_needs_no_room() {
    let site = site();
    done(build(&site, "X.iso"));
    done(script(
        &site,
        r##"
            mkdir disk && mount -t tmpfs -o size=24m none disk
            cp X.iso disk/
            mkdir disk/bundle && xorriso -osirrox on -indev X.iso -extract / disk/bundle
            fill 0
            export TMPDIR=$PWD/disk
            "$CTL" bundle verify disk/X.iso --trust builder.pub
            "$CTL" bundle verify disk/bundle
            mount -o remount,ro disk
            "$CTL" bundle verify disk/X.iso --trust builder.pub
            "$CTL" bundle verify disk/bundle
        "##,
    ));
}

#[test]
fn a_place_that_cannot_be_written_is_named_before_the_work() {
    let site = site();
    let refusal = |out: &str| refused(build(&site, out));
    std::fs::create_dir_all(site.path("there.iso/mine")).unwrap();
    assert!(refusal("there.iso").contains("there.iso is a directory: name a file for the image"));
    assert!(refusal("there.iso/mine").contains("exists and is not a bundle"));
    assert!(refusal("recipe.yaml/X.iso").contains("cannot make recipe.yaml: "));
    let said = refused(script(
        &site,
        r#"
        mkdir disk && mount -t tmpfs -o size=1m,ro none disk
        ! "$CTL" bundle build --recipe recipe.yaml --out disk/X.iso --key builder.key
        exec "$CTL" bundle pack . --out disk/X.iso --key builder.key
        "#,
    ));
    assert_eq!(
        said.matches("cannot write disk/.X.iso.lock: Read-only file system")
            .count(),
        2,
        "{said}"
    );
    // The build has not even started.
    assert!(!site.path("cache").exists() && !site.path("signing-key.asc").exists());
}
