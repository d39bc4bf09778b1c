//! Taking a bundle out of its image where that comes to an end in the middle: no room, or killed.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use halite_bundle::{iso::read::Image, pack, site::Bundles, verify};
use halite_testkit::{Site, files, put};

/// The image and the directory of the process that is to be halted.
const WORK: &str = "HALITE_TEST_UNPACK";

#[test]
#[ignore = "the other tests here run it in a process of its own"]
fn unpacks() {
    let work = env::var(WORK).unwrap();
    let (iso, dir) = work.split_once(':').unwrap();
    if let Err(error) =
        Image::open(Path::new(iso)).and_then(|image| image.extract(Path::new(dir), &mut |_| ()))
    {
        panic!("{error}");
    }
}

/// The arguments with which this program runs [`unpacks`] alone.
const ALONE: [&str; 4] = ["--ignored", "--exact", "halts::unpacks", "--nocapture"];

/// A site with `X.iso` of some size.
fn site() -> Site {
    let site = Site::new();
    let noise: Vec<u8> = (0_u32..24 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    put(&site.path("states/large"), &noise);
    site.build("bundle").unwrap();
    pack(&site.path("bundle"), &site.path("X.iso"), &[], &mut |_| ()).unwrap();
    site
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn one_that_is_killed_is_no_bundle_and_the_next_one_is_whole() {
    let site = site();
    let out = site.path("bundles/0.1.0");
    for later in [0, 5, 20] {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(ALONE)
            .env(WORK, format!("{}:{}", site.path("X.iso").display(), out.display()))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        while !site.path("bundles/.0.1.0.new").exists() {
            assert!(start.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_micros(200));
        }
        std::thread::sleep(Duration::from_millis(later));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(names(&site.path("bundles")), [".0.1.0.new"], "it was not killed in the middle");
    }
    Bundles::new(site.path("bundles")).add_image(&site.path("X.iso"), &mut |_| ()).unwrap();
    assert_eq!(names(&site.path("bundles")), ["0.1.0"]);
    assert!(verify(&out, &mut |_| ()).unwrap().is_sound());
}

#[test]
fn one_without_room_leaves_nothing() {
    let site = site();
    let script = r#"
        cd "$SITE"
        mkdir disk && mount -t tmpfs -o size=40m none disk
        for left in 4096 65536 1000000 20000000; do
            free=$(df --output=avail --block-size=1 disk | tail -n 1)
            head -c $((free - left)) /dev/zero > disk/filler
            if "$@" > said 2>&1; then cat said; exit 1; fi
            grep -q 'cannot .* disk/.*: No space left on device' said || { cat said; exit 1; }
            test "$(ls -A disk)" = filler
            rm disk/filler
        done
        "$@"
        test "$(ls -A disk)" = 0.1.0
        cp -r disk/0.1.0 out
    "#;
    let how: &[&str] =
        if rustix::process::geteuid().is_root() { &["--mount"] } else { &["--mount", "--map-root-user"] };
    let output = Command::new("unshare")
        .args(how)
        .args(["sh", "-euc", script, "sh"])
        .arg(env::current_exe().unwrap())
        .args(ALONE)
        .env("SITE", site.dir.path())
        .env(WORK, "X.iso:disk/0.1.0")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&[output.stdout, output.stderr].concat()));
    assert_eq!(files(&site.path("out")), files(&site.path("bundle")));
}
