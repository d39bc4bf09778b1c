//! `ctl bundle add` on a full disk, killed in the middle, and twice concurrently: on a host of its
//! own, as far as files are concerned.

use halite_testkit::process::done;
use halite_testkit::{SharedSite, SiteCopy};

use crate::work::{build, script, site};

/// Makes this a host with a cluster whose bundles are on a disk of that size. `/etc` and `/var/lib`
/// are the machine's, with writes redirected to a file system in memory.
const HOST: &str = r#"
mkdir top && mount -t tmpfs none top
for place in etc var/lib; do
    mkdir -p "top/$place/upper" "top/$place/work"
    mount -t overlay -o "lowerdir=/$place,upperdir=top/$place/upper,workdir=top/$place/work" none "/$place"
done
mkdir -p /etc/halite /var/lib/halite/bundles
echo '{}' > /etc/halite/cluster.yaml
disk() {
    umount /var/lib/halite/bundles 2>/dev/null || true
    mount -t tmpfs -o "size=$1" none /var/lib/halite/bundles
}
add() { exec "$CTL" bundle add X.iso --trust builder.pub; }
# Starts one and stops it in the middle of its work: once that part of the bundle exists. One that ended before the first
# check is started again.
begin() {
    wanted=/var/lib/halite/bundles/.0.1.0.new/$1
    for try in 1 2 3 4 5 6 7 8 9 10; do
        add & first=$!
        set +x
        until test -e "$wanted" || ! kill -0 $first; do :; done
        set -x
        if stop $first && test -e "$wanted"; then return; fi
        resume $first || true
        wait $first
        rm -r /var/lib/halite/bundles/0.1.0
    done
    exit 1
}
there() { ls -A /var/lib/halite/bundles | grep -v lock || true; }
"#;

/// A site with `X.iso`.
fn large() -> SiteCopy {
    static LARGE: SharedSite = SharedSite::new();
    LARGE.copy(|| {
        let site = site();
        site.enlarge(24 << 20);
        done(build(&site, "X.iso"));
        site
    })
}

fn on_a_host(text: &str) -> String {
    done(script(&large(), &format!("{HOST}{text}")))
}

#[test]
fn without_room_nothing_is_written() {
    let said = on_a_host(
        r#"
        disk 10m
        ! (add)
        test -z "$(there)"
        "#,
    );
    assert!(
        said.contains("MiB are free on this file system; nothing was written"),
        "{said}"
    );
}

/// Another program fills the disk.
#[test]
fn when_the_room_goes_meanwhile_nothing_is_left() {
    let said = on_a_host(
        r#"
        disk 100m
        ln -s /var/lib/halite/bundles disk
        for left in 0 65536 1000000; do
            begin .
            fill $left
            resume $first
            ! wait $first
            test "$(there)" = filler
            rm disk/filler
        done
        (add)
        test "$(there)" = 0.1.0
        "$CTL" bundle verify /var/lib/halite/bundles/0.1.0
        "#,
    );
    assert_eq!(said.matches("No space left on device").count(), 3, "{said}");
}

#[test]
fn one_that_is_killed_is_added_by_the_next() {
    on_a_host(
        r#"
        disk 100m
        for part in . bin/ctl states/large; do
            rm -rf /var/lib/halite/bundles/.0.1.0.new
            begin $part
            trap - EXIT
            kill -9 $first
            ! wait $first
            test "$(there)" = .0.1.0.new
        done
        (add)
        test "$(there)" = 0.1.0
        "$CTL" bundle verify /var/lib/halite/bundles/0.1.0
        "#,
    );
}

#[test]
fn a_second_one_meanwhile_is_refused() {
    let said = on_a_host(
        r#"
        disk 100m
        begin .
        ! (add)
        test "$(there)" = .0.1.0.new
        resume $first
        wait $first
        test "$(there)" = 0.1.0
        "$CTL" bundle verify /var/lib/halite/bundles/0.1.0
        "#,
    );
    assert!(
        said.contains("another process is adding or removing a bundle here"),
        "{said}"
    );
}
