//! A whole site at its real paths, in a separate mount namespace: bundles are added, selected and
//! removed.

use halite_testkit::process::done;
use halite_testkit::{SharedSite, SiteCopy, put};

use crate::work::{build, script, site};

const CLUSTER: &str = "apiVersion: halite/v1\nkind: Cluster\nmetadata: {name: prod}\n\
    networks: {controlPlane: {cidrs: [10.0.0.0/24]}}\nkubernetes: {version: \"1.36\"}\n\
    resolved:\n  kubernetes: v1.36.3\n  bundle: \"0.1.0\"\n";
const NODE: &str = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: a}\n\
    roles: [bootstrap, registry, etcd, control-plane]\naddress: 10.0.0.11\n";

/// The start of every script: an empty site whose cluster uses 0.1.0, and functions to inspect it.
const PRELUDE: &str = r##"
    mount -t tmpfs none /etc
    mount -t tmpfs none /var/lib
    mount -t tmpfs none /srv
    chmod 755 /srv
    mkdir -p /etc/halite
    cp -r etc/. /etc/halite/
    bundles=/var/lib/halite/bundles
    # All entries, including hidden ones; the lock file stays.
    there() { ls -A "$bundles" | grep -vx '\.lock' | tr '\n' ' '; }
    bundle() { "$CTL" bundle "$@" > said 2>&1 || { cat said; return 1; }; cat said; }
    refused() {
        wanted=$1; shift
        if "$CTL" "$@" > said 2>&1; then cat said; echo "it was not refused"; exit 1; fi
        cat said
        grep -q "$wanted" said
    }
"##;

/// A site with 0.1.0 and 0.2.0 as ISOs.
fn two() -> SiteCopy {
    static TWO: SharedSite = SharedSite::new();
    TWO.copy(|| {
        let mut site = site();
        put(&site.path("etc/cluster.yaml"), CLUSTER.as_bytes());
        put(&site.path("etc/nodes/a.yaml"), NODE.as_bytes());
        site.enlarge(16 << 20);
        for (version, built) in [
            ("0.1.0", "2026-01-01T00:00:00Z"),
            ("0.2.0", "2026-02-01T00:00:00Z"),
        ] {
            site.recipe["version"] = version.into();
            put(
                &site.path("states/host/init.sls"),
                format!("# {version}\n{{}}\n").as_bytes(),
            );
            site.record(built);
            done(build(&site, &format!("{version}.iso")));
        }
        site
    })
}

/// Runs a script at such a site.
fn on_a_site(text: &str) {
    done(script(&two(), &format!("{PRELUDE}{text}")));
}

#[test]
fn a_bundle_comes_is_used_and_the_old_one_goes() {
    on_a_site(
        r##"
            bundle add 0.1.0.iso --trust builder.pub
            rm -r .config
            # The key was kept.
            bundle add 0.2.0.iso
            test "$(there)" = "0.1.0 0.2.0 "
            bundle list
            grep -q '0\.1\.0 .* yes ' said
            bundle use 0.2.0 --test
            grep -q 'host/init.sls' said
            cmp etc/cluster.yaml /etc/halite/cluster.yaml
            bundle use 0.2.0
            grep -q 'ctl highstate' said
            sed 's/"0.1.0"/"0.2.0"/' etc/cluster.yaml > wanted
            grep -v '^#' /etc/halite/cluster.yaml | cmp wanted
            refused 'is in use' bundle remove 0.2.0
            refused 'before the one in use (0.2.0' bundle use 0.1.0
            # No master runs here, so it is unknown which hosts have it.
            refused 'cannot find out which hosts' bundle remove 0.1.0
            bundle remove 0.1.0 --force
            test "$(there)" = "0.2.0 "
            bundle show 0.2.0
            grep -q 'bundle 0.2.0' said
            bundle verify "$bundles/0.2.0"
        "##,
    );
}

#[test]
fn a_directory_stays_where_it_is_and_may_be_taken_out() {
    on_a_site(
        r##"
            bundle add 0.1.0.iso --trust builder.pub
            xorriso -osirrox on -indev 0.2.0.iso -extract / /srv/medium > said 2>&1
            # It is not read: damage that leaves the sizes unchanged only shows when it is used.
            chmod -R u+w /srv/medium
            printf '#' | dd of=/srv/medium/states/large conv=notrunc bs=1 seek=99 2>> said
            bundle add /srv/medium --trust builder.pub
            test "$(readlink $bundles/0.2.0)" = /srv/medium
            refused 'states/large: changed' bundle use 0.2.0
            xorriso -osirrox on -indev 0.2.0.iso -extract /states/large /srv/large > said 2>&1
            cat /srv/large > /srv/medium/states/large
            bundle use 0.2.0

            mv /srv/medium /srv/away
            bundle list
            grep -q 'mount the disk or ISO there again' said
            grep -q ' yes ' said
            refused 'mount the disk or ISO there again' bundle use 0.2.0
            refused 'allow-downgrade' bundle use 0.1.0
            mv /srv/away /srv/medium
            bundle use 0.2.0

            # Its ISO replaces the link.
            bundle add 0.2.0.iso --trust builder.pub
            test ! -L "$bundles/0.2.0"
            test -d /srv/medium
            test "$(there)" = "0.1.0 0.2.0 "
        "##,
    );
}

#[test]
fn what_is_mounted_at_a_place_of_a_bundle_is_named() {
    on_a_site(
        r##"
            bundle add 0.1.0.iso --trust builder.pub
            mkdir "$bundles/0.2.0"
            xorriso -osirrox on -indev 0.2.0.iso -extract / /srv/medium > said 2>&1
            mount --bind /srv/medium "$bundles/0.2.0"
            bundle list
            grep -q '^0\.2\.0' said
            refused "a file system is mounted there; unmount it first (.umount $bundles/0.2.0." \
                bundle remove 0.2.0 --force
            test -e /srv/medium/manifest.json
            umount "$bundles/0.2.0"
            bundle remove 0.2.0 --force
            test "$(there)" = "0.1.0 "
            test -e /srv/medium/manifest.json
        "##,
    );
}

#[test]
fn a_delta_and_the_old_bundle_make_the_new_one() {
    on_a_site(
        r##"
            bundle export --since 0.1.0.iso 0.2.0.iso --out delta.iso --key builder.key --trust builder.pub
            test $(($(stat -c %s delta.iso) * 10)) -lt "$(stat -c %s 0.2.0.iso)"
            bundle verify delta.iso --trust builder.pub
            grep -q 'it is a delta: only a site that has the bundle 0.1.0' said
            refused 'is a delta from the bundle 0.1.0 to 0.2.0' bootstrap --bundle delta.iso --trust builder.pub
            refused 'needs the bundle 0.1.0' bundle add delta.iso --trust builder.pub
            test "$(there)" = ""
            bundle add 0.1.0.iso --trust builder.pub
            bundle add delta.iso
            xorriso -osirrox on -indev 0.2.0.iso -extract / /srv/whole > said 2>&1
            diff -r /srv/whole "$bundles/0.2.0"
            test "$(there)" = "0.1.0 0.2.0 "
        "##,
    );
}

#[test]
fn an_interrupted_copy_is_repeated() {
    on_a_site(
        r##"
            bundle add 0.1.0.iso --trust builder.pub
            # At arbitrary moments; the tests of `ctl bundle add` kill at chosen ones.
            for later in 0.02 0.04 0.06 0.08 0.1 0.15 0.2 0.3; do
                timeout -s KILL $later "$CTL" bundle add 0.2.0.iso || true
                if "$CTL" bundle list | grep '^0\.2\.0'; then
                    # A run that was not killed has finished.
                    "$CTL" bundle use 0.2.0
                    "$CTL" bundle use 0.1.0 --allow-downgrade
                    timeout -s KILL $later "$CTL" bundle remove 0.2.0 --force || true
                fi
            done
            bundle add 0.2.0.iso
            test "$(there)" = "0.1.0 0.2.0 "
            bundle use 0.2.0
            timeout -s KILL 0.02 "$CTL" bundle remove 0.1.0 --force || true
            bundle remove 0.1.0 --force || grep -q 'there is no bundle' said
            bundle add 0.2.0.iso
            test "$(there | sed 's/\.0\.1\.0\.removed //')" = "0.2.0 "
        "##,
    );
}

#[test]
fn what_finds_no_room_is_told_before_it_is_begun() {
    on_a_site(
        r##"
            mkdir -p "$bundles"
            mount -t tmpfs -o size=8m none "$bundles"
            refused 'needs 1[67] MiB and only . MiB are free on this file system' bundle add 0.1.0.iso --trust builder.pub
            test "$(there)" = ""
            test ! -e /etc/halite/trust
            umount "$bundles"
            mount -t tmpfs -o size=64m,nr_inodes=20 none "$bundles"
            refused 'files and this file system has room for' bundle add 0.1.0.iso --trust builder.pub
            test "$(there)" = ""
            test -e 0.1.0.iso
        "##,
    );
}
