//! A bundle copied from other hosts of the same site, which serve it.

mod refused;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use halite_bundle::{Added, BundleStore, Copied, Origin};
use halite_errors::chain;
use halite_fetch::Settings;
use halite_testkit::{
    Authority, CannedAnswer, SeenRequest, Server, content, hex, names, put, version,
};
use serde_json::json;

/// The files of a server, by path.
type Files = BTreeMap<String, Vec<u8>>;

/// The files of a bundle on a server, and the SHA-256 of its manifest.
fn bundle(version: &str, layer: &[u8]) -> (Files, String) {
    let mut files: Files = [
        ("bin/ctl", b"#!/bin/sh\n".to_vec()),
        ("install", b"#!/bin/sh\nexec ctl\n".to_vec()),
        ("images/blobs/sha256/layer", layer.to_vec()),
        ("images/blobs/sha256/base", content(300_000, 1)),
        // The same content twice, and a name that an address must escape.
        ("images/blobs/sha256/base-again", content(300_000, 1)),
        ("apt/pool/libstdc++6_1%3a2~x_amd64.deb", b"deb".to_vec()),
    ]
    .into_iter()
    .map(|(path, content)| (path.to_owned(), content))
    .collect();
    for n in 0..40 {
        files.insert(format!("states/{n}.sls"), format!("# {n}\n").into_bytes());
    }
    let listed: serde_json::Map<_, _> = files
        .iter()
        .map(|(path, bytes)| {
            (
                path.clone(),
                json!({"sha256": hex(bytes), "size": bytes.len()}),
            )
        })
        .collect();
    let manifest = json!({"format": 1, "name": "halite", "version": version, "built": "2026-01-01T00:00:00Z",
        "kubernetes": "v1.36.3", "components": {}, "images": {}, "packages": {}, "files": listed});
    let manifest = serde_json::to_vec_pretty(&manifest).unwrap();
    let hash = hex(&manifest);
    files.insert("manifest.json".to_owned(), manifest);
    (files, hash)
}

/// Serves files below `/bundles/VERSION/`.
fn answer(files: &Files, seen: &SeenRequest) -> CannedAnswer {
    let path = seen.path.splitn(4, '/').nth(3).unwrap_or_default();
    let path = path.replace("%25", "%");
    match files.get(&path) {
        Some(bytes) => CannedAnswer::file(seen, bytes, &format!("\"{}\"", hex(bytes))),
        None => CannedAnswer::new(404),
    }
}

struct Host {
    dir: tempfile::TempDir,
    bundles: BundleStore,
    authority: Authority,
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let bundles = BundleStore::new(dir.path().join("bundles"));
        let authority = Authority::new(dir.path());
        Self {
            dir,
            bundles,
            authority,
        }
    }

    fn copy(&self, version: &str, hash: &str, servers: &[String]) -> Result<Copied, String> {
        self.copy_up_to(None, version, hash, servers)
    }

    fn copy_up_to(
        &self,
        largest: Option<u64>,
        version: &str,
        hash: &str,
        servers: &[String],
    ) -> Result<Copied, String> {
        let settings = Settings {
            largest,
            authorities: vec![self.authority.path.clone()],
            system_authorities: false,
            proxy: Some(String::new()),
            // No server of these tests is silent, but a busy machine may be slow.
            connect: Duration::from_secs(300),
            stall: Duration::from_secs(300),
            retries: 1,
            sleep: Arc::new(|_| ()),
            ..Settings::default()
        };
        let servers = servers
            .iter()
            .map(|server| format!("{server}/bundles/{version}"))
            .collect();
        let origin = Origin { servers, settings };
        self.bundles
            .copy(&self::version(version), hash, &origin, &mut |_| ())
            .map_err(|error| chain(&error))
    }

    fn place(&self, version: &str) -> PathBuf {
        self.dir.path().join("bundles").join(version)
    }

    /// All names in the directory, including those of work in progress.
    fn names(&self) -> Vec<String> {
        let mut names = names(&self.dir.path().join("bundles"));
        // The lock file stays.
        names.retain(|name| name != ".lock");
        names
    }
}

fn same(place: &Path, files: &Files) {
    for (path, bytes) in files {
        assert_eq!(&fs::read(place.join(path)).unwrap(), bytes, "{path}");
        let mode = fs::metadata(place.join(path)).unwrap().permissions().mode() & 0o777;
        let wanted = if path == "install" || path.starts_with("bin/") {
            0o755
        } else {
            0o644
        };
        assert_eq!(mode, wanted, "{path}");
    }
    let checksum = fs::read_to_string(place.join("manifest.json.sha256")).unwrap();
    assert!(
        checksum.starts_with(&hex(&files["manifest.json"])),
        "{checksum}"
    );
}

#[test]
fn a_bundle_is_copied_once_and_repaired_where_it_is_damaged() {
    let host = Host::new();
    let (files, hash) = bundle("0.1.0", b"layer");
    let served = files.clone();
    let server = Server::tls(&host.authority, move |seen| answer(&served, seen));
    let from = [server.url("").trim_end_matches('/').to_owned()];
    assert!(host.bundles.holds(&version("0.1.0"), &hash).is_err());
    let copied = host.copy("0.1.0", &hash, &from).unwrap();
    assert_eq!((copied.added, copied.reused), (Added::New, 0));
    same(&host.place("0.1.0"), &files);
    assert_eq!(host.names(), ["0.1.0"]);
    host.bundles.holds(&version("0.1.0"), &hash).unwrap();
    // Each content crosses the network once.
    assert_eq!(server.seen().len(), files.len() - 1);

    // Nothing is requested that is already there.
    let asked = server.seen().len();
    assert_eq!(
        host.copy("0.1.0", &hash, &from).unwrap().added,
        Added::There
    );
    assert_eq!(server.seen().len(), asked);

    // A missing file and a truncated one are repaired; nothing else is fetched except the manifest.
    fs::remove_file(host.place("0.1.0").join("states/7.sls")).unwrap();
    fs::write(host.place("0.1.0").join("bin/ctl"), "#").unwrap();
    fs::write(host.place("0.1.0").join("left-over"), "x").unwrap();
    assert!(host.bundles.holds(&version("0.1.0"), &hash).is_err());
    let copied = host.copy("0.1.0", &hash, &from).unwrap();
    assert_eq!((copied.added, copied.fetched), (Added::Replaced, 10 + 4));
    same(&host.place("0.1.0"), &files);
    assert!(!host.place("0.1.0").join("left-over").exists());
    assert_eq!(server.seen().len(), asked + 3);
}

#[test]
fn the_server_can_read_the_bundles() {
    let host = Host::new();
    let (files, hash) = bundle("0.1.0", b"layer");
    let server = Server::tls(&host.authority, move |seen| answer(&files, seen));
    let root = host.dir.path().join("bundles");
    let from = [server.url("").trim_end_matches('/').to_owned()];
    host.copy("0.1.0", &hash, &from).unwrap();
    for path in [
        root.clone(),
        host.place("0.1.0"),
        host.place("0.1.0").join("states"),
    ] {
        assert_eq!(
            fs::metadata(&path).unwrap().mode() & 0o777,
            0o755,
            "{}",
            path.display()
        );
    }
    // A directory that existed before belongs to another user, like /tmp, and keeps its mode.
    for mode in [0o1777, 0o700] {
        fs::remove_dir_all(&root).unwrap();
        fs::create_dir(&root).unwrap();
        fs::set_permissions(&root, fs::Permissions::from_mode(mode)).unwrap();
        host.copy("0.1.0", &hash, &from).unwrap();
        assert_eq!(fs::metadata(&root).unwrap().mode() & 0o7777, mode);
    }
}

#[test]
fn what_another_bundle_has_is_neither_fetched_nor_stored_again() {
    let host = Host::new();
    let (old, old_hash) = bundle("0.1.0", b"layer");
    let (new, new_hash) = bundle("0.2.0", b"another layer");
    let both = [old.clone(), new.clone()];
    let server = Server::tls(&host.authority, move |seen| {
        answer(
            &both[usize::from(seen.path.starts_with("/bundles/0.2.0/"))],
            seen,
        )
    });
    let from = [server.url("").trim_end_matches('/').to_owned()];
    host.copy("0.1.0", &old_hash, &from).unwrap();
    let copied = host.copy("0.2.0", &new_hash, &from).unwrap();
    assert_eq!(copied.fetched, b"another layer".len() as u64);
    same(&host.place("0.1.0"), &old);
    same(&host.place("0.2.0"), &new);
    let inode = |version: &str| {
        fs::metadata(host.place(version).join("images/blobs/sha256/base"))
            .unwrap()
            .ino()
    };
    assert_eq!(inode("0.1.0"), inode("0.2.0"));
}

/// A linked directory belongs to another user, who may write to it and sets its modes.
#[test]
fn of_a_linked_directory_files_are_copied_and_nothing_is_changed() {
    let host = Host::new();
    let (files, hash) = bundle("0.1.0", b"layer");
    let theirs = host.dir.path().join("theirs");
    for (path, bytes) in &files {
        put(&theirs.join(path), bytes);
        fs::set_permissions(theirs.join(path), fs::Permissions::from_mode(0o640)).unwrap();
    }
    fs::remove_file(theirs.join("states/7.sls")).unwrap();
    fs::create_dir(host.dir.path().join("bundles")).unwrap();
    std::os::unix::fs::symlink(&theirs, host.place("0.1.0")).unwrap();
    let served = files.clone();
    let server = Server::tls(&host.authority, move |seen| answer(&served, seen));
    let from = [server.url("").trim_end_matches('/').to_owned()];
    let copied = host.copy("0.1.0", &hash, &from).unwrap();
    assert_eq!((copied.added, copied.fetched), (Added::Replaced, 4));
    same(&host.place("0.1.0"), &files);
    for path in files.keys().filter(|path| *path != "states/7.sls") {
        let (own, foreign) = (
            fs::metadata(host.place("0.1.0").join(path)).unwrap(),
            fs::metadata(theirs.join(path)).unwrap(),
        );
        assert_ne!(own.ino(), foreign.ino(), "{path}");
        assert_eq!(foreign.mode() & 0o777, 0o640, "{path}");
    }
}

/// One content is executable in one bundle and a plain file in another.
#[test]
fn a_mode_is_that_of_its_bundle_alone() {
    let host = Host::new();
    let (old, old_hash) = bundle("0.1.0", b"layer");
    let (new, new_hash) = bundle("0.2.0", b"#!/bin/sh\n");
    let both = [old.clone(), new.clone()];
    let server = Server::tls(&host.authority, move |seen| {
        answer(
            &both[usize::from(seen.path.starts_with("/bundles/0.2.0/"))],
            seen,
        )
    });
    let from = [server.url("").trim_end_matches('/').to_owned()];
    for versions in [
        [("0.1.0", &old_hash), ("0.2.0", &new_hash)],
        [("0.2.0", &new_hash), ("0.1.0", &old_hash)],
    ] {
        for (version, hash) in versions {
            host.copy(version, hash, &from).unwrap();
        }
        same(&host.place("0.1.0"), &old);
        same(&host.place("0.2.0"), &new);
        fs::remove_dir_all(host.dir.path().join("bundles")).unwrap();
    }
}

#[test]
fn a_server_that_dies_is_left_for_the_next_one_and_what_came_is_kept() {
    let host = Host::new();
    let layer = content(2_000_000, 2);
    let (files, hash) = bundle("0.1.0", &layer);
    let (served, answers) = (files.clone(), AtomicUsize::new(0));
    // Serves the manifest and half of the layer, and then fails.
    let dying = Server::tls(&host.authority, move |seen| {
        if seen.path.ends_with("/manifest.json") && answers.load(Ordering::SeqCst) == 0 {
            answer(&served, seen)
        } else if seen.path.ends_with("/layer") && answers.fetch_add(1, Ordering::SeqCst) == 0 {
            answer(&served, seen).cut(1_000_000)
        } else {
            CannedAnswer::new(503)
        }
    });
    let dead = "https://127.0.0.1:1".to_owned();
    let one = dying.url("").trim_end_matches('/').to_owned();
    let error = host
        .copy("0.1.0", &hash, &[dead.clone(), one.clone()])
        .unwrap_err();
    assert!(
        error.contains("503") && error.contains("127.0.0.1:1"),
        "{error}"
    );
    assert_eq!(host.names(), [".0.1.0.copy"]);
    assert!(host.bundles.holds(&version("0.1.0"), &hash).is_err());

    let (served, sent) = (files.clone(), Arc::new(Mutex::new(Vec::new())));
    let noted = Arc::clone(&sent);
    let second = Server::tls(&host.authority, move |seen| {
        if seen.path.ends_with("/layer") {
            noted
                .lock()
                .unwrap()
                .push(seen.header("Range").map(str::to_owned));
        }
        answer(&served, seen)
    });
    let other = second.url("").trim_end_matches('/').to_owned();
    host.copy("0.1.0", &hash, &[dead, one, other]).unwrap();
    same(&host.place("0.1.0"), &files);
    assert_eq!(host.names(), ["0.1.0"]);
    // The second server sent only the rest.
    let ranges = sent.lock().unwrap().clone();
    assert!(
        matches!(&ranges[..], [Some(range)] if range.starts_with("bytes=") && range != "bytes=0-"),
        "{ranges:?}"
    );
}

#[test]
fn what_came_earlier_and_is_damaged_since_comes_again() {
    let host = Host::new();
    let (files, hash) = bundle("0.1.0", b"layer");
    let (served, whole) = (files.clone(), Arc::new(AtomicUsize::new(0)));
    let on = Arc::clone(&whole);
    let server = Server::tls(&host.authority, move |seen| {
        let lacks = seen.path.ends_with("/layer") && on.load(Ordering::SeqCst) == 0;
        if lacks {
            CannedAnswer::new(404)
        } else {
            answer(&served, seen)
        }
    });
    let from = [server.url("").trim_end_matches('/').to_owned()];
    host.copy("0.1.0", &hash, &from).unwrap_err();
    let came = walk(&host.place(".0.1.0.copy"));
    let program = came
        .iter()
        .find(|path| path.ends_with(hex(&files["bin/ctl"])))
        .unwrap();
    let mut bytes = fs::read(program).unwrap();
    bytes[0] ^= 1;
    fs::write(program, bytes).unwrap();
    whole.store(1, Ordering::SeqCst);
    host.copy("0.1.0", &hash, &from).unwrap();
    same(&host.place("0.1.0"), &files);
}

/// Every file below a directory.
fn walk(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            if path.is_dir() {
                walk(&path)
            } else {
                vec![path]
            }
        })
        .collect()
}
