//! The cache: two processes at once, a full disk, damage.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use halite_durable::Digest;
use halite_errors::chain;
use halite_fetch::{Cache, Fetcher};
use halite_testkit::{CannedAnswer, Server, content};

use crate::fixture::{Fixture, artifact};

/// The parameters of [`worker`] in the environment: the directory of the cache, the URL, and the
/// seed and size of the content.
const DIR: &str = "HALITE_TEST_CACHE";
const URL: &str = "HALITE_TEST_URL";
const SIZE: &str = "HALITE_TEST_SIZE";

/// The command that runs `test` of this program again as a process that fetches; see [`worker`].
fn worker_of(test: &str, cache: &Path, url: &str, size: usize, wrapper: &[&str]) -> Command {
    let program = std::env::current_exe().unwrap();
    let mut command = Command::new(
        wrapper
            .first()
            .map_or(program.as_os_str(), |first| first.as_ref()),
    );
    command.args(wrapper.iter().skip(1));
    if !wrapper.is_empty() {
        command.arg(program);
    }
    command.args(["--exact", &format!("cache::{test}"), "--nocapture"]);
    command
        .env(DIR, cache)
        .env(URL, url)
        .env(SIZE, size.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// Returns whether this is the child process of a test; then it has done its work.
fn worker() -> bool {
    if std::env::var_os(DIR).is_none() {
        return false;
    }
    let setting = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let file = content(setting(SIZE).parse().unwrap(), 30);
    let fixture = Fixture::new();
    let cache = Cache::open(Path::new(&setting(DIR))).unwrap();
    let client = halite_fetch::Client::new(fixture.settings()).unwrap();
    let fetcher = halite_fetch::Fetcher::new(cache, client);
    let entry = fetcher
        .files(&[artifact("shared", setting(URL), &file)])
        .unwrap_or_else(|error| panic!("FAILED {}", halite_errors::chain(&error)));
    assert_eq!(std::fs::read(&entry[0].path).unwrap(), file);
    true
}

fn finish(child: Child) -> (bool, String) {
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

#[test]
fn several_processes_fetch_a_content_once() {
    if worker() {
        return;
    }
    let (fixture, file) = (Fixture::new(), content(3_000_000, 30));
    let server = Server::start(move |seen| CannedAnswer::file(seen, &file, "\"1\""));
    let cache = fixture.path("cache");
    let test = "several_processes_fetch_a_content_once";
    let start = |_| {
        worker_of(test, &cache, &server.url("/shared"), 3_000_000, &[])
            .spawn()
            .unwrap()
    };
    for child in (0..4).map(start).collect::<Vec<_>>() {
        let (success, text) = finish(child);
        assert!(success, "{text}");
    }
    assert_eq!(server.seen().len(), 1);
    assert_eq!(fixture.kept().1, Vec::<String>::new());
}

#[test]
fn a_process_that_dies_leaves_a_beginning_and_no_lock() {
    if worker() {
        return;
    }
    let test = "a_process_that_dies_leaves_a_beginning_and_no_lock";
    let (fixture, file) = (Fixture::new(), content(600_000, 30));
    let served = file.clone();
    // The first request is left waiting in the middle of the file.
    let first = std::sync::atomic::AtomicBool::new(true);
    let server = Server::start(move |seen| {
        let answer = CannedAnswer::file(seen, &served, "\"1\"");
        if first.swap(false, std::sync::atomic::Ordering::SeqCst) {
            answer.stall(400_000)
        } else {
            answer
        }
    });
    let (cache, url) = (fixture.path("cache"), server.url("/shared"));
    let mut dying = worker_of(test, &cache, &url, 600_000, &[]).spawn().unwrap();
    let part = cache
        .join("partial")
        .join(format!("{}.part", Digest::of(&file)));
    while std::fs::metadata(&part).map_or(0, |status| status.len()) < 400_000 {
        assert!(dying.try_wait().unwrap().is_none(), "it ended too soon");
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let waiting = worker_of(test, &cache, &url, 600_000, &[]).spawn().unwrap();
    dying.kill().unwrap();
    dying.wait().unwrap();
    let (success, text) = finish(waiting);
    assert!(success, "{text}");
    assert_eq!(server.seen()[1].header("Range"), Some("bytes=400000-"));
}

#[test]
fn a_full_disk_is_said_and_keeps_what_was_there() {
    if worker() {
        return;
    }
    let test = "a_full_disk_is_said_and_keeps_what_was_there";
    let (fixture, file) = (Fixture::new(), content(3_000_000, 30));
    let server = Server::start(move |seen| CannedAnswer::file(seen, &file, "\"1\""));
    // A file system of a megabyte in its own mount namespace, which ends with the process.
    let mount = fixture.path("small");
    std::fs::create_dir(&mount).unwrap();
    let kept = fixture.path("kept");
    let script = format!(
        "mount -t tmpfs -o size=1m none {mount} || exit 77; mkdir -p {mount}/cache/sha256; echo old > \
         {mount}/cache/sha256/old; \"$@\"; result=$?; cat {mount}/cache/sha256/* > {kept}; ls \
             {mount}/cache/partial >> {kept}; exit $result",
        mount = mount.display(),
        kept = kept.display(),
    );
    let wrapper = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "sh",
        "-c",
        &script,
        "sh",
    ];
    let child = worker_of(
        test,
        &mount.join("cache"),
        &server.url("/shared"),
        3_000_000,
        &wrapper,
    )
    .spawn()
    .unwrap();
    let (success, text) = finish(child);
    assert!(
        !text.contains("unshare failed") && !text.contains("mount:"),
        "this test needs user name spaces: {text}"
    );
    assert!(
        !success && text.contains("No space left on device") && text.contains(".part"),
        "{text}"
    );
    let kept = std::fs::read_to_string(kept).unwrap();
    assert!(
        kept.starts_with("old\n") && kept.contains(".part\n"),
        "{kept}"
    );
    // A retry would not help.
    assert_eq!(server.seen().len(), 1);
}

#[test]
fn a_damaged_content_is_fetched_again() {
    let (fixture, file) = (Fixture::new(), content(1_000, 31));
    let served = file.clone();
    let server = Server::start(move |seen| CannedAnswer::file(seen, &served, "\"1\""));
    let wanted = [artifact("a", server.url("/a"), &file)];
    let fetch = || fixture.fetcher().files(&wanted).unwrap().remove(0);
    let damage = |entry: &halite_fetch::cache::CachedContent| {
        std::fs::write(&entry.path, content(1_000, 32)).unwrap();
    };
    damage(&fetch());
    let entry = fetch();
    assert_eq!(
        (std::fs::read(&entry.path).unwrap(), server.seen().len()),
        (file.clone(), 2)
    );
    // A stored blob is intact, whatever existed before.
    damage(&entry);
    assert_eq!(
        std::fs::read(fixture.cache().put(&file).unwrap().path).unwrap(),
        file
    );
    damage(&entry);
    let error = Fetcher::offline(fixture.cache())
        .files(&wanted)
        .map_err(|error| chain(&error))
        .unwrap_err();
    let name = format!("a ({}), which was damaged in the cache", entry.digest.oci());
    assert!(error.contains(&name), "{error}");
}

#[test]
fn damage_is_found() {
    let fixture = Fixture::new();
    let cache = fixture.cache();
    let (good, bad) = (cache.put(b"good").unwrap(), cache.put(b"bad").unwrap());
    assert_eq!(cache.put(b"good").unwrap(), good);
    std::fs::write(&bad.path, "bda").unwrap();
    assert_eq!(
        (
            cache.read(&good.digest).unwrap().unwrap(),
            cache.read(&bad.digest).unwrap()
        ),
        (b"good".to_vec(), None)
    );
    assert_eq!(cache.find(&good.digest, Some(3)), None);
    assert_eq!(
        (
            cache.sound(&good.digest, Some(4)).unwrap(),
            cache.sound(&bad.digest, None).unwrap()
        ),
        (Some(good), None)
    );
    // It stays, so that no process removes a blob that another process has just stored, and is
    // replaced by an intact one.
    assert!(bad.path.exists());
    assert_eq!(cache.put(b"bad").unwrap(), bad);
    assert_eq!(cache.read(&bad.digest).unwrap().unwrap(), b"bad");
}
