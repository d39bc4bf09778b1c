use std::os::unix::fs::symlink;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use super::*;

fn hex(text: &str) -> String {
    digest::sha256(text.as_bytes())
}

/// Writes a link as the registry does: beside its place, then renamed.
fn put(v2: &Path, dir: &str, named: &str) {
    let dir = v2.join(REPOSITORIES).join(dir);
    fs::create_dir_all(&dir).unwrap();
    let new = dir.join("link.6f1c.tmp");
    fs::write(&new, format!("sha256:{}", hex(named))).unwrap();
    fs::rename(new, dir.join("link")).unwrap();
}

fn layer(v2: &Path, repository: &str, named: &str) {
    put(
        v2,
        &format!("{repository}/_layers/sha256/{}", hex(named)),
        named,
    );
}

fn manifest(v2: &Path, repository: &str, named: &str) {
    let dir = format!("{repository}/_manifests/revisions/sha256/{}", hex(named));
    put(v2, &dir, named);
}

fn tag(v2: &Path, repository: &str, tag: &str, named: &str) {
    let tag = format!("{repository}/_manifests/tags/{tag}");
    put(v2, &format!("{tag}/index/sha256/{}", hex(named)), named);
    put(v2, &format!("{tag}/current"), named);
}

#[test]
fn every_link_in_nested_repositories_is_read_and_written_again() {
    let dir = tempfile::tempdir().unwrap();
    let v2 = dir.path().join("v2");
    layer(&v2, "app", "layer");
    // Another name of a blob, which the registry stores under its SHA-256.
    let other = format!("app/web/_layers/sha512/{}", "0".repeat(128));
    put(&v2, &other, "canonical");
    for named in ["old", "new"] {
        manifest(&v2, "app/web", named);
        tag(&v2, "app/web", "1", named);
    }
    // The history of a tag, a tag without a manifest, an upload, and temporary files.
    tag(&v2, "app/web", "1", "deleted");
    tag(&v2, "app/web", "1", "new");
    tag(&v2, "app/web", "2", "new");
    let root = v2.join(REPOSITORIES);
    fs::remove_dir_all(root.join("app/web/_manifests/tags/2/current")).unwrap();
    put(&v2, "app/_uploads/id", "upload");
    fs::write(root.join("app/link.6f1c.tmp"), "").unwrap();
    let links = Links::read(&v2).unwrap();
    assert_eq!(links.tags(), 1);
    let blobs = links.blobs();
    let named = ["layer", "canonical", "old", "new"].map(|named| Digest::of(named.as_bytes()));
    assert_eq!(
        blobs.keys().copied().collect::<BTreeSet<_>>(),
        named.iter().collect()
    );
    let current = &links.0["app/web/_manifests/tags/1/current/link"];
    assert_eq!(current, &named[3]);
    assert_eq!(blobs[current], BTreeSet::from(["app/web"]));
    let copy = dir.path().join("copy");
    links.write(&copy).unwrap();
    assert_eq!(Links::read(&copy).unwrap(), links);
    assert!(copy.join("repositories/app/_manifests/tags").is_dir());
    // A change is noticed.
    tag(&copy, "app/web", "1", "old");
    assert_ne!(Links::read(&copy).unwrap().sha256(), links.sha256());
    assert!(Links::read(&dir.path().join("missing")).unwrap().len() == 0);
}

#[test]
fn links_that_are_damaged_or_lead_elsewhere_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (v2, outside) = (dir.path().join("v2"), dir.path().join("outside"));
    manifest(&v2, "app", "good");
    manifest(&outside, "secret", "secret");
    let root = v2.join(REPOSITORIES);
    let secret = outside.join(REPOSITORIES).join("secret");
    let place = root.join("app/_manifests/revisions/sha256/x");
    let link = place.join("link");
    let cases: [(&dyn Fn(), &str, &str); 6] = [
        (
            &|| symlink(&secret, root.join("linked")).unwrap(),
            "repositories/linked",
            "it is a symbolic link",
        ),
        (
            &|| symlink(secret.join("_manifests"), root.join("app/_layers")).unwrap(),
            "app/_layers",
            "",
        ),
        (
            &|| symlink(secret.join("link"), &link).unwrap(),
            "x/link",
            "",
        ),
        (
            &|| {
                let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR);
                rustix::fs::mknodat(rustix::fs::CWD, &link, kind, mode, 0).unwrap();
            },
            "x/link",
            "not a regular file",
        ),
        (&|| fs::write(&link, "").unwrap(), "x/link", ""),
        (
            &|| fs::write(&link, [0xff; 300]).unwrap(),
            "cannot read",
            "x/link",
        ),
    ];
    for (spoil, path, why) in cases {
        fs::create_dir_all(&place).unwrap();
        spoil();
        let error = Links::read(&v2).unwrap_err().to_string();
        assert!(error.contains(path) && error.contains(why), "{error}");
        for path in [root.join("linked"), root.join("app/_layers"), place.clone()] {
            files::remove_any(&path).unwrap();
        }
    }
    assert_eq!(Links::read(&v2).unwrap().len(), 1);
}

/// A tag has its manifests and their layers, in every interleaving with a thread that pushes in the
/// order of the registry: a layer, a manifest that names it, an index that names that, the tag.
#[test]
fn links_that_are_read_during_pushes_are_complete() {
    /// The pushes after which the writer waits for the reader.
    const STRETCH: usize = 30;
    let dir = tempfile::tempdir().unwrap();
    let v2 = dir.path();
    let pushes: Vec<[String; 3]> = (0..300)
        .map(|push| ["layer", "manifest", "index"].map(|kind| format!("{kind} {push}")))
        .collect();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (read, reads) = mpsc::channel();
        let (pushes, done) = (&pushes, &done);
        scope.spawn(move || {
            for (number, push) in pushes.iter().enumerate() {
                layer(v2, "app", &push[0]);
                manifest(v2, "app", &push[1]);
                manifest(v2, "app", &push[2]);
                tag(v2, "app", &format!("{}", number % 97), &push[2]);
                if number % STRETCH == 0 {
                    while reads.try_recv().is_ok() {}
                    // An error means that the reader has failed.
                    let _ = reads.recv();
                }
            }
            done.store(true, Ordering::SeqCst);
        });
        let mut seen = BTreeSet::new();
        while !done.load(Ordering::SeqCst) {
            let links = Links::read(v2).unwrap();
            // The writer may already have ended.
            let _ = read.send(());
            let of = |kind: &str| -> BTreeSet<&str> {
                let links = links.0.iter().filter(|(path, _)| path.contains(kind));
                links.map(|(_, digest)| digest.hex()).collect()
            };
            let (layers, manifests, tags) = (of("/_layers/"), of("/revisions/"), of("/tags/"));
            for push in pushes {
                let [layer, manifest, index] = push.each_ref().map(|named| hex(named));
                let has = |all: &BTreeSet<&str>, hex: &String| all.contains(hex.as_str());
                let tagged = has(&tags, &index);
                assert!(
                    !tagged || has(&manifests, &index),
                    "a tag without its index"
                );
                assert!(
                    !tagged || has(&manifests, &manifest),
                    "a tag without its manifest"
                );
                let complete = !has(&manifests, &manifest) || has(&layers, &layer);
                assert!(complete, "a manifest without its layer");
            }
            seen.insert(links.len());
        }
        assert!(
            seen.len() > 2,
            "nothing was pushed during the reads: {seen:?}"
        );
    });
}
