//! A key that builds for RPM distributions take.

use std::fs;
use std::sync::LazyLock;

use halite_builder::signer::{KeyKind, Signer};
use halite_testkit::{Site, put};

/// The secret key. gpg needs a second for each RSA key that a build makes.
static KEY: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let key = dir.path().join("key.asc");
    drop(Signer::open(&key, KeyKind::Rsa).unwrap());
    fs::read(key).unwrap()
});

/// Gives a site this key before its first build.
pub fn give(site: &Site) {
    put(&site.path("signing-key.asc"), &KEY);
}
