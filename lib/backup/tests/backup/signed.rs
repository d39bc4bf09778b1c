//! The signature by the cluster's CA: its coverage, and its valid signers.

use std::path::Path;

use halite_backup::{Directory, Error, Header, Identity, SIGNATURE};
use halite_errors::chain;
use halite_testkit::BackupCa;
use serde_json::{Value, json};

use crate::support::{contents, files, header};

/// The statement that the master signs for the example, whose time has fractions.
fn statement(header: &Header) -> Value {
    let mut facts = serde_json::to_value(header).unwrap();
    facts["created"] = json!(header.created + jiff::SignedDuration::from_millis(250));
    BackupCa::statement(&facts, &files())
}

/// Makes a backup with a signature.
fn make(directory: &Path, header: Header, signature: &Value) -> std::path::PathBuf {
    let mut pending = Directory::new(directory).begin(header).unwrap();
    let signature = signature.to_string().into_bytes();
    for (path, mode, content) in files().into_iter().chain([(SIGNATURE, 0o600, signature)]) {
        let size = content.len() as u64;
        let added = pending
            .writer
            .file(path, mode, size, &mut content.as_slice());
        added.unwrap();
    }
    pending.finish().unwrap().path().to_owned()
}

#[test]
fn a_backup_that_its_cluster_signed_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, key) = (BackupCa::new(), Identity::generate().unwrap());
    let header = header(&ca.hash(), 0, vec![key.recipient()]);
    let path = make(dir.path(), header.clone(), &ca.sign(&statement(&header)));
    let (manifest, read) = contents(&path, &[key]).unwrap();
    assert!(manifest.is_signed);
    assert_eq!(
        read.len(),
        files().len(),
        "the signature is not a file of a restore"
    );

    let plain = crate::support::make(dir.path(), crate::support::header("a", 1, vec![])).unwrap();
    assert!(!contents(&plain, &[]).unwrap().0.is_signed);
}

/// A user who may write to the directory knows the recipients, and can encrypt anything to them.
#[test]
fn what_another_made_for_the_same_recipients_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (ca, other, key) = (
        BackupCa::new(),
        BackupCa::new(),
        Identity::generate().unwrap(),
    );
    let header = header(&ca.hash(), 0, vec![key.recipient()]);
    let good = statement(&header);
    let changed = |change: &dyn Fn(&mut Value)| {
        let mut statement = good.clone();
        change(&mut statement);
        ca.sign(&statement)
    };
    let mut borrowed = other.sign(&good);
    borrowed["certificate"] = json!(ca.pem());
    // The CA of the header, followed by the one that has signed.
    let mut followed = other.sign(&good);
    followed["certificate"] = json!(format!("{}{}", ca.pem(), other.pem()));
    let mut replaced = ca.sign(&good);
    replaced["statement"] = json!(good.to_string().replace("\"epoch\":3", "\"epoch\":4"));
    for (signature, reason) in [
        (other.sign(&good), "it is by another CA"),
        (borrowed, "the CA has not signed this"),
        (followed, "the CA has not signed this"),
        (replaced, "the CA has not signed this"),
        (json!({}), "it is malformed"),
        (
            changed(&|statement| statement["kind"] = json!("halite-token 1")),
            "it is malformed",
        ),
        (
            changed(&|statement| statement["header"]["epoch"] = json!(4)),
            "another header",
        ),
        (
            changed(&|statement| statement["header"]["created"] = json!("2020-01-01T00:00:00Z")),
            "another header",
        ),
        (
            changed(&|statement| statement["files"]["config/cluster.yaml"]["mode"] = json!(0o644)),
            "config/cluster.yaml is not the signed file",
        ),
        (
            changed(&|statement| {
                statement["files"]
                    .as_object_mut()
                    .unwrap()
                    .remove("state/empty");
            }),
            "state/empty is not the signed file",
        ),
        (
            changed(&|statement| {
                statement["files"]["state/more"] = statement["files"]["state/empty"].clone();
            }),
            "state/more is not the signed file",
        ),
    ] {
        let path = make(dir.path(), header.clone(), &signature);
        let error = contents(&path, std::slice::from_ref(&key)).unwrap_err();
        let error = chain(&error);
        assert!(error.contains("its signature is invalid"), "{error}");
        assert!(error.contains(reason), "{reason}: {error}");
    }
}

#[test]
fn a_plain_backup_is_refused_when_a_key_was_given() {
    let dir = tempfile::tempdir().unwrap();
    let key = Identity::generate().unwrap();
    let path = crate::support::make(dir.path(), header("a", 0, vec![])).unwrap();
    let error = contents(&path, &[key]).unwrap_err();
    assert!(matches!(error, Error::Damaged { .. }), "{error:?}");
    let error = chain(&error);
    assert!(
        error.contains("it is not encrypted, although a key was given"),
        "{error}"
    );
    contents(&path, &[]).unwrap();
}
