use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};

use super::*;

fn digest(text: &str) -> String {
    halite_durable::digest::sha256(text.as_bytes())
}

/// Writes a link as the registry does: beside its place, and then there.
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
    Tree::read(&Folder::open(root).unwrap(), true)
}

#[test]
fn every_kind_of_link_is_found_in_repositories_within_one_another() {
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
    assert_eq!(tree.strange, BTreeMap::new());
    assert_eq!(tree.counts(), (2, 1));
    let needs: Vec<String> = tree.needs().keys().map(ToString::to_string).collect();
    let mut wanted: Vec<String> = ["layer", "canonical", "old", "new"]
        .map(|named| format!("sha256:{}", digest(named)))
        .to_vec();
    wanted.sort();
    assert_eq!(needs, wanted);
    let new = &tree.links["app/web/_manifests/tags/1/current/link"];
    assert_eq!((new.kind, new.repository.as_str()), (Kind::Tag, "app/web"));
    assert_eq!(new.digest.to_string(), format!("sha256:{}", digest("new")));
    assert_eq!(tree.repositories_of(&new.digest), ["app/web"]);
    assert!(
        tree.folders.contains("empty/_manifests/tags") && !tree.folders.contains("app/_uploads")
    );
    // What is read again is the same, and a change is seen.
    let before = tree.sha256();
    assert_eq!(read_all(root).sha256(), before);
    tag(root, "app/web", "1", "old");
    assert_ne!(read_all(root).sha256(), before);
}

#[test]
fn what_no_registry_makes_is_named_and_not_followed() {
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
        tree.strange
            .get(path)
            .unwrap_or_else(|| panic!("{path}: {:#?}", tree.strange))
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
        (link("pipe"), "no plain file"),
        (link("empty"), "\"\" is no digest"),
        (link("path"), "is no digest"),
        (link("binary"), "cannot be read"),
        (why("app/_manifests/notes"), "nothing that a registry has"),
        (why("app/_other"), "nothing that a registry has"),
        (why("white space"), "name that no registry gives"),
        (why("plain"), "no directory"),
    ] {
        assert!(said.contains(wanted), "{said:?} instead of {wanted:?}");
    }
    assert_eq!(tree.strange.len(), 11, "{:#?}", tree.strange);
}

#[test]
fn a_tag_without_a_manifest_is_coming_or_going() {
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
    assert_eq!((tree.links.len(), tree.strange.len()), (2, 0));
    tree.drop_link("app/_manifests/tags/2/current/link");
    assert!(tree.links.is_empty());
}

/// Whatever is in a tree has what it needs, however it is interleaved with somebody who pushes in
/// the order of the registry: a part, the whole that names it, the tag.
#[test]
fn a_tree_that_is_read_while_somebody_pushes_is_closed() {
    /// After so many pushes, somebody has to have read once.
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
    // Whoever holds it keeps the other from writing, at whatever point of a push that is.
    let writes = Mutex::new(());
    std::thread::scope(|scope| {
        let (tell, told) = mpsc::channel();
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
                    while told.try_recv().is_ok() {}
                    // Whoever reads has failed otherwise.
                    let _ = told.recv();
                }
            }
            done.store(true, Ordering::SeqCst);
        });
        let mut seen = Vec::new();
        while !done.load(Ordering::SeqCst) {
            let mut tree = read_all(root);
            if tree.strange.contains_key("app") {
                // The other was too fast on this machine, and that was told.
                let _turn = writes.lock();
                tree = read_all(root);
            }
            // Nobody waits for it at the end.
            let _ = tell.send(());
            assert_eq!(tree.strange, BTreeMap::new());
            let of = |kind: Kind| -> BTreeSet<String> {
                let links = tree.links.values().filter(|link| link.kind == kind);
                links.map(|link| link.digest.to_string()).collect()
            };
            let (layers, revisions, tags) = (of(Kind::Layer), of(Kind::Revision), of(Kind::Tag));
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
        assert!(seen.len() > 2, "nothing was pushed meanwhile: {seen:?}");
    });
}
