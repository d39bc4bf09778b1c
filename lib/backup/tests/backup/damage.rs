//! Damage to any single byte, any truncation, and other kinds of files.

use std::fs;

use halite_backup::{AgeError, BackupFile, Directory, Error, Identity, SNAPSHOT};
use halite_errors::chain;
use halite_testkit::empty_etcd_snapshot;
use proptest::prelude::*;

use crate::support::{contents, files, header, make};

#[test]
fn what_was_written_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let key = Identity::generate().unwrap();
    for keys in [&[][..], std::slice::from_ref(&key)] {
        let recipients = keys.iter().map(Identity::recipient).collect();
        let path = make(dir.path(), header("a", 0, recipients)).unwrap();
        let (manifest, read) = contents(&path, keys).unwrap();
        assert_eq!(manifest.header, *BackupFile::open(&path).unwrap().header());
        let written = files();
        assert_eq!(read.len(), written.len());
        for (name, mode, content) in written {
            assert_eq!(read[name], (mode, content), "{name}");
            assert_eq!(manifest.files[name].mode, mode);
        }
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}

#[test]
fn no_secret_is_in_an_encrypted_backup() {
    let dir = tempfile::tempdir().unwrap();
    let key = Identity::generate().unwrap();
    let path = make(dir.path(), header("a", 0, vec![key.recipient()])).unwrap();
    let bytes = fs::read(&path).unwrap();
    for text in [&b"kind: Cluster"[..], &[7; 32], b"ca/etcd.key"] {
        assert!(!bytes.windows(text.len()).any(|window| window == text));
    }
    let other = Identity::generate().unwrap();
    let error = contents(&path, &[other]).unwrap_err();
    assert!(
        matches!(
            error,
            Error::Decrypt {
                source: AgeError::NoMatch,
                ..
            }
        ),
        "{error:?}"
    );
}

/// Every truncation is refused, and reported as one: without the last line there is no digest.
#[test]
fn a_backup_that_is_cut_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = make(dir.path(), header("a", 0, vec![])).unwrap();
    let whole = fs::read(&path).unwrap();
    let cut = dir.path().join("cut");
    for length in (1..200)
        .chain((200..whole.len()).step_by(97))
        .chain([whole.len() - 1])
    {
        fs::write(&cut, &whole[..length]).unwrap();
        let error = chain(&contents(&cut, &[]).unwrap_err());
        assert!(error.contains("it is cut short"), "{length}: {error}");
    }
}

#[test]
fn other_files_are_refused_with_their_reason() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other");
    for (text, reason) in [
        ("", "it is not a backup"),
        ("PK\u{3}\u{4}", "it is not a backup"),
        ("halite-backup 2\n{}\n", "the format \"2\""),
        ("halite-back", "it is cut short"),
    ] {
        fs::write(&path, text).unwrap();
        let error = chain(&BackupFile::open(&path).unwrap_err());
        assert!(error.contains(reason), "{text:?}: {error}");
    }
}

#[test]
fn a_damaged_snapshot_does_not_get_into_a_backup() {
    let dir = tempfile::tempdir().unwrap();
    let good = empty_etcd_snapshot();
    let mut changed = good.clone();
    changed[100] ^= 1;
    for (bad, reason) in [
        (changed, "its hash does not"),
        (good[..40].to_vec(), "its hash does not"),
    ] {
        let mut pending = Directory::new(dir.path())
            .begin(header("a", 0, vec![]))
            .unwrap();
        let added = pending
            .writer
            .file(SNAPSHOT, 0o600, bad.len() as u64, &mut bad.as_slice());
        let error = chain(&added.unwrap_err());
        assert!(
            error.contains("etcd/snapshot.db") && error.contains(reason),
            "{error}"
        );
    }
    let pending = Directory::new(dir.path())
        .begin(header("a", 0, vec![]))
        .unwrap();
    let error = chain(&pending.finish().unwrap_err());
    assert!(error.contains("it has no snapshot"), "{error}");
    assert!(Directory::new(dir.path()).list().unwrap().is_empty());
}

/// A file that grows or shrinks while it is read is refused.
#[test]
fn a_file_of_another_size_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    for size in [3, 5] {
        let mut pending = Directory::new(dir.path())
            .begin(header("a", 0, vec![]))
            .unwrap();
        let error = pending
            .writer
            .file("state/x", 0o600, size, &mut &b"text"[..]);
        assert!(
            chain(&error.unwrap_err()).contains("bytes instead of"),
            "{size}"
        );
    }
}

/// The header of an encrypted backup is also inside the encryption: one with another time or of
/// another cluster is refused even if the digest matches.
#[test]
fn a_replaced_header_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let key = Identity::generate().unwrap();
    let path = make(dir.path(), header("a", 0, vec![key.recipient()])).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    bytes.truncate(bytes.len() - 65);
    let old = b"\"epoch\":3";
    let at = bytes
        .windows(old.len())
        .position(|window| window == old)
        .unwrap();
    bytes[at + old.len() - 1] = b'4';
    let digest = halite_durable::digest::sha256(&bytes);
    bytes.extend(format!("{digest}\n").bytes());
    fs::write(&path, &bytes).unwrap();
    let error = chain(&contents(&path, &[key]).unwrap_err());
    assert!(error.contains("its header was replaced"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_backup_with_one_changed_byte_is_refused(place in 0.0..1.0_f64, bit in 0_u8..8, sealed: bool) {
        let dir = tempfile::tempdir().unwrap();
        let key = Identity::generate().unwrap();
        let keys = if sealed { vec![key] } else { vec![] };
        let recipients = keys.iter().map(Identity::recipient).collect();
        let path = make(dir.path(), header("a", 0, recipients)).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in a small file")]
        let place = (place * bytes.len() as f64) as usize;
        bytes[place] ^= 1 << bit;
        fs::write(&path, &bytes).unwrap();
        prop_assert!(contents(&path, &keys).is_err(), "byte {place}");
    }

    /// Even if an attacker recomputes the digest, the encryption reveals the change.
    #[test]
    fn encrypted_content_cannot_be_changed(place in 0.0..1.0_f64, bit in 0_u8..8) {
        let dir = tempfile::tempdir().unwrap();
        let key = Identity::generate().unwrap();
        let path = make(dir.path(), header("a", 0, vec![key.recipient()])).unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes.truncate(bytes.len() - 65);
        let newline = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').nth(1).unwrap().0;
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a place in a small file")]
        let place = newline + 1 + (place * (bytes.len() - newline - 1) as f64) as usize;
        bytes[place] ^= 1 << bit;
        let digest = halite_durable::digest::sha256(&bytes);
        bytes.extend(format!("{digest}\n").bytes());
        fs::write(&path, &bytes).unwrap();
        prop_assert!(contents(&path, &[key]).is_err(), "byte {place}");
    }
}
