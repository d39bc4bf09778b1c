use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};

use super::*;

fn digest(text: &str) -> String {
    halite_durable::digest::sha256(text.as_bytes())
}

/// Writes a link as the registry does: beside its place, then renamed.
fn put(root: &Path, path: &str, named: &str) {
    let dir = root.join(path);
    fs::create_dir_all(&dir).unwrap();
    let new = dir.join("link.6f1c.tmp");
    fs::write(&new, format!("sha256:{}", digest(named))).unwrap();
    fs::rename(new, dir.join("link")).unwrap();
}

fn revision(root: &Path, repository: &str, named: &str) {
    put(
        root,
        &format!("{repository}/_manifests/revisions/sha256/{}", digest(named)),
        named,
    );
}

fn tag(root: &Path, repository: &str, tag: &str, named: &str) {
    put(
        root,
        &format!(
            "{repository}/_manifests/tags/{tag}/index/sha256/{}",
            digest(named)
        ),
        named,
    );
    put(
        root,
        &format!("{repository}/_manifests/tags/{tag}/current"),
        named,
    );
}

fn read_all(root: &Path) -> Tree {
    scan(&Folder::open(root).unwrap(), true)
}

#[test]
fn every_kind_of_link_is_found_in_nested_repositories() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    put(
        root,
        &format!("app/_layers/sha256/{}", digest("layer")),
        "layer",
    );
    put(
        root,
        &format!("app/web/_layers/sha512/{}", "0".repeat(128)),
        "canonical",
    );
    for named in ["old", "new"] {
        revision(root, "app/web", named);
        tag(root, "app/web", "1", named);
    }
    fs::create_dir_all(root.join("app/_uploads/id")).unwrap();
    fs::write(root.join("app/_uploads/id/data"), "half").unwrap();
    fs::create_dir_all(root.join("empty/_manifests/tags")).unwrap();
    let tree = read_all(root);
    assert_eq!(tree.unexpected, BTreeMap::new());
    assert_eq!(tree.counts(), (2, 1));
    let needs: Vec<String> = tree.needs().keys().map(ToString::to_string).collect();
    let mut wanted: Vec<String> = ["layer", "canonical", "old", "new"]
        .map(|named| format!("sha256:{}", digest(named)))
        .to_vec();
    wanted.sort();
    assert_eq!(needs, wanted);
    let new = &tree.links["app/web/_manifests/tags/1/current/link"];
    assert_eq!(
        (new.kind, new.repository.as_str()),
        (LinkKind::Tag, "app/web")
    );
    assert_eq!(new.digest.to_string(), format!("sha256:{}", digest("new")));
    assert_eq!(tree.repositories_of(&new.digest), ["app/web"]);
    assert!(
        tree.folders.contains("empty/_manifests/tags") && !tree.folders.contains("app/_uploads")
    );
    // A second scan is equal, and a change is seen.
    let before = tree.sha256();
    assert_eq!(read_all(root).sha256(), before);
    tag(root, "app/web", "1", "old");
    assert_ne!(read_all(root).sha256(), before);
}

#[test]
fn unexpected_files_are_named_and_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("repositories");
    let outside = dir.path().join("outside");
    revision(&outside, "secret", "secret");
    revision(&root, "app", "good");
    symlink(outside.join("secret"), root.join("linked")).unwrap();
    symlink(outside.join("secret/_manifests"), root.join("app/_layers")).unwrap();
    let revisions = root.join("app/_manifests/revisions/sha256");
    let place = |name: &str| {
        let place = revisions.join(digest(name));
        fs::create_dir_all(&place).unwrap();
        place.join("link")
    };
    symlink(outside.join("x"), place("link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        place("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    fs::write(place("empty"), "").unwrap();
    fs::write(place("path"), "sha256:../../../../etc/passwd").unwrap();
    fs::write(place("binary"), [0xff; 300]).unwrap();
    fs::write(root.join("app/_manifests/notes"), "").unwrap();
    fs::create_dir(root.join("app/_other")).unwrap();
    fs::create_dir(root.join("white space")).unwrap();
    fs::write(root.join("plain"), "").unwrap();
    let tree = read_all(&root);
    assert_eq!(tree.links.len(), 1, "{:?}", tree.links);
    let why = |path: &str| {
        tree.unexpected
            .get(path)
            .unwrap_or_else(|| panic!("{path}: {:#?}", tree.unexpected))
    };
    let link = |name: &str| {
        why(&format!(
            "app/_manifests/revisions/sha256/{}/link",
            digest(name)
        ))
        .as_str()
    };
    for (said, wanted) in [
        (why("linked").as_str(), "symbolic link"),
        (why("app/_layers"), "symbolic link"),
        (link("link"), "symbolic link"),
        (link("pipe"), "not a regular file"),
        (link("empty"), "\"\" is not a digest"),
        (link("path"), "is not a digest"),
        (link("binary"), "cannot be read"),
        (why("app/_manifests/notes"), "not part of a registry"),
        (why("app/_other"), "not part of a registry"),
        (why("white space"), "name that no registry gives"),
        (why("plain"), "not a directory"),
    ] {
        assert!(said.contains(wanted), "{said:?} instead of {wanted:?}");
    }
    assert_eq!(tree.unexpected.len(), 11, "{:#?}", tree.unexpected);
}

#[test]
fn a_tag_without_a_manifest_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    tag(dir.path(), "app", "1", "one");
    tag(dir.path(), "app", "2", "one");
    fs::remove_dir_all(dir.path().join("app/_manifests/tags/1/current")).unwrap();
    let mut tree = read_all(dir.path());
    assert!(
        tree.links.keys().all(|path| path.contains("/tags/2/")),
        "{:?}",
        tree.links
    );
    assert_eq!((tree.links.len(), tree.unexpected.len()), (2, 0));
    tree.drop_link("app/_manifests/tags/2/current/link");
    assert!(tree.links.is_empty());
}

/// Each link in a tree has the links that it needs, in every interleaving with a thread that pushes
/// in the order of the registry: a part, the manifest that names it, the tag.
#[test]
fn a_tree_that_is_read_during_pushes_is_complete() {
    /// The pushes after which the writer waits for a scan.
    const STRETCH: usize = 30;
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    fs::create_dir_all(root.join("app")).unwrap();
    let pushes: Vec<[String; 3]> = (0..300)
        .map(|i| ["layer", "part", "whole"].map(|kind| format!("{kind} {i}")))
        .collect();
    let named: Vec<[String; 3]> = pushes
        .iter()
        .map(|push| {
            push.each_ref()
                .map(|named| format!("sha256:{}", digest(named)))
        })
        .collect();
    let done = AtomicBool::new(false);
    // Its holder stops the writer at any point of a push.
    let writes = Mutex::new(());
    std::thread::scope(|scope| {
        let (scanned, scans) = mpsc::channel();
        let (pushes, done, writes) = (&pushes, &done, &writes);
        scope.spawn(move || {
            let step = |write: &dyn Fn()| {
                let _turn = writes.lock();
                write();
            };
            for (i, [layer, part, whole]) in pushes.iter().enumerate() {
                step(&|| {
                    put(
                        root,
                        &format!("app/_layers/sha256/{}", digest(layer)),
                        layer,
                    )
                });
                step(&|| revision(root, "app", part));
                step(&|| revision(root, "app", whole));
                step(&|| tag(root, "app", &format!("{}", i % 97), whole));
                if i % STRETCH == 0 {
                    while scans.try_recv().is_ok() {}
                    // An error means that the scanning thread has failed.
                    let _ = scans.recv();
                }
            }
            done.store(true, Ordering::SeqCst);
        });
        let mut seen = Vec::new();
        while !done.load(Ordering::SeqCst) {
            let mut tree = read_all(root);
            if tree.unexpected.contains_key("app") {
                // The writer was too fast on this machine, and the scan reported that.
                let _turn = writes.lock();
                tree = read_all(root);
            }
            // The writer may already have ended.
            let _ = scanned.send(());
            assert_eq!(tree.unexpected, BTreeMap::new());
            let of = |kind: LinkKind| -> BTreeSet<String> {
                let links = tree.links.values().filter(|link| link.kind == kind);
                links.map(|link| link.digest.to_string()).collect()
            };
            let (layers, revisions, tags) = (
                of(LinkKind::Layer),
                of(LinkKind::Revision),
                of(LinkKind::Tag),
            );
            for [layer, part, whole] in &named {
                let there = revisions.contains(whole);
                assert!(there || !tags.contains(whole), "a tag without its manifest");
                assert!(
                    !there || revisions.contains(part),
                    "a whole without its part"
                );
                assert!(
                    !there || layers.contains(layer),
                    "a manifest without its layer"
                );
            }
            seen.push(tree.links.len());
        }
        seen.dedup();
        assert!(
            seen.len() > 2,
            "nothing was pushed during the scans: {seen:?}"
        );
    });
}
