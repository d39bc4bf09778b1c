//! Keys that are stored in a trust directory.

use std::fs;
use std::path::Path;

use halite_errors::chain;
use halite_seal::keys::{PublicKey, SecretKey, Trust};
use halite_testkit::names;

use crate::image::{TestImage, complaints, key};

/// A public key that arrives at a site in a file of this name.
fn given(dir: &Path, key: &SecretKey, name: &str) -> PublicKey {
    let path = dir.join(name).join(format!("{name}.pub"));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, key.public().to_text()).unwrap();
    PublicKey::load(&path).unwrap()
}

#[test]
fn a_rotated_key_of_the_same_name_is_stored_beside_the_old_one() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (key(dir.path(), "old"), key(dir.path(), "new"));
    let kept = dir.path().join("trust");
    Trust::new(vec![given(dir.path(), &old, "builder")])
        .keep(&kept)
        .unwrap();
    for _ in 0..2 {
        Trust::new(vec![given(dir.path(), &new, "builder")])
            .keep(&kept)
            .unwrap();
        Trust::new(vec![given(dir.path(), &old, "builder")])
            .keep(&kept)
            .unwrap();
    }
    let beside = format!("builder-{}.pub", new.public().id());
    assert_eq!(names(&kept), [beside.clone(), "builder.pub".to_owned()]);
    assert_eq!(
        PublicKey::load(&kept.join("builder.pub")).unwrap().line(),
        old.public().line()
    );
    assert_eq!(
        PublicKey::load(&kept.join(beside)).unwrap().line(),
        new.public().line()
    );
    assert_eq!(Trust::load(&kept).unwrap().keys().len(), 2);
}

#[test]
fn a_key_is_kept_once_whatever_it_is_called() {
    let dir = tempfile::tempdir().unwrap();
    let key = key(dir.path(), "key");
    let kept = dir.path().join("trust");
    fs::create_dir(&kept).unwrap();
    let mine = format!(
        "untrusted comment: from the safe\n{}\n",
        key.public().line()
    );
    fs::write(kept.join("builder.pub"), &mine).unwrap();
    Trust::new(vec![given(dir.path(), &key, "acme")])
        .keep(&kept)
        .unwrap();
    assert_eq!(names(&kept), ["builder.pub"]);
    assert_eq!(
        fs::read_to_string(kept.join("builder.pub")).unwrap(),
        mine,
        "the existing file is not rewritten"
    );
    // An expiry is a change.
    let ending = format!(
        "untrusted comment: not-after=2030-01-01\n{}\n",
        key.public().line()
    );
    PublicKey::parse(&ending).unwrap().keep(&kept).unwrap();
    assert!(
        PublicKey::load(&kept.join("builder.pub"))
            .unwrap()
            .not_after()
            .is_some()
    );

    // A file without an expiry does not remove the stored one, which also applies to a key that is
    // passed by itself.
    let endless = Trust::new(vec![given(dir.path(), &key, "acme")]);
    endless.keep(&kept).unwrap();
    let end = PublicKey::load(&kept.join("builder.pub"))
        .unwrap()
        .not_after();
    assert!(end.is_some());
    assert_eq!(
        endless.no_more_than(&kept).unwrap().keys()[0].not_after(),
        end
    );

    // A key that the operator stored under two names is trusted once, until the earlier expiry.
    fs::write(kept.join("acme.pub"), &mine).unwrap();
    let trust = Trust::load(&kept).unwrap();
    assert_eq!(trust.keys().len(), 1);
    assert!(trust.keys()[0].not_after().is_some(), "{trust:?}");
}

#[test]
fn a_forged_key_of_the_same_id_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let kept = dir.path().join("trust");
    let public = key(dir.path(), "key").public().clone();
    public.keep(&kept).unwrap();
    let text = public.to_text();
    // 42 bytes are whole groups of three, so the last digit is part of the key.
    let other = if text.ends_with("A\n") { "B\n" } else { "A\n" };
    let forged = PublicKey::parse(&format!("{}{other}", &text[..text.len() - 2]));
    let error = forged
        .unwrap()
        .keep(&kept)
        .map_err(|error| chain(&error))
        .unwrap_err();
    assert!(error.contains("another key with the id"), "{error}");
    assert_eq!(names(&kept).len(), 1);
}

#[test]
fn a_revocation_is_kept_and_a_revoked_key_is_not() {
    let image = TestImage::small();
    let dir = image.dir.path();
    let (lost, good) = (key(dir, "lost"), key(dir, "good"));
    image.seal(std::slice::from_ref(&lost));
    let from = dir.join("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("lost.pub"), lost.public().to_text()).unwrap();
    fs::write(from.join("good.pub"), good.public().to_text()).unwrap();
    let id = lost.public().id();
    fs::write(
        from.join("revoked"),
        format!("{id} its laptop was stolen\n"),
    )
    .unwrap();

    let kept = dir.join("kept");
    fs::create_dir(&kept).unwrap();
    // The directory's own list, without a final newline, stays unchanged.
    let own = "# ours\n0123456789ABCDEF old";
    fs::write(kept.join("revoked"), own).unwrap();
    let trust = Trust::load(&from).unwrap();
    trust.keep(&kept).unwrap();
    trust.keep(&kept).unwrap();
    assert_eq!(names(&kept), ["good.pub", "revoked"]);
    let text = fs::read_to_string(kept.join("revoked")).unwrap();
    assert_eq!(text, format!("{own}\n{id} its laptop was stolen\n"));

    // The list also applies to a key that is passed by itself; such a key is not stored.
    let given = Trust::new(vec![lost.public().clone()]);
    assert_eq!(complaints(&image.iso, &given), [""; 0]);
    let given = given.no_more_than(&kept).unwrap();
    assert!(
        complaints(&image.iso, &given)
            .concat()
            .contains("is revoked: its laptop was stolen")
    );
    given.keep(&kept).unwrap();
    assert_eq!(names(&kept), ["good.pub", "revoked"]);
    let none = Trust::new(vec![lost.public().clone()])
        .no_more_than(&dir.join("nowhere"))
        .unwrap();
    assert_eq!(complaints(&image.iso, &none), [""; 0]);
}
