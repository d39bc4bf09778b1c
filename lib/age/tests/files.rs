//! The encryption against files of another implementation.

#![allow(clippy::unwrap_used, reason = "a test's panic is its report")]

use std::fs;
use std::io::Read as _;
use std::path::Path;

use halite_age::{AgeError, Decryptor, Identity};

#[test]
fn keys_are_read_as_age_keygen_writes_them() {
    let key = Identity::generate().unwrap();
    let text = format!(
        "# created: today\n# public key: {}\n{}\n",
        key.recipient(),
        *key.to_text()
    );
    let read = Identity::parse_file(&text).unwrap();
    assert_eq!(read[0].recipient(), key.recipient());
    assert!(matches!(
        Identity::parse_file("# none\n"),
        Err(AgeError::NoIdentity)
    ));
    let error = Identity::parse_file("\nAGE-SECRET-KEY-1QQQ\n")
        .err()
        .unwrap();
    assert_eq!(
        error.to_string(),
        "line 2 is not an age secret key: a character is wrong or missing"
    );
}

/// The files were encrypted with `age` 0.11 from crates.io, to the key beside them: to two
/// recipients, with contents around the length of a chunk.
#[test]
fn files_of_another_program_are_decrypted() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let keys =
        Identity::parse_file(&fs::read_to_string(fixtures.join("key.txt")).unwrap()).unwrap();
    for length in [0, 1, 65_536, 65_537] {
        let file = fs::File::open(fixtures.join(format!("{length}.age"))).unwrap();
        let mut plain = Vec::new();
        let mut decryptor = Decryptor::new(file, &keys).unwrap();
        decryptor.read_to_end(&mut plain).unwrap();
        assert_eq!(plain.len(), length);
        assert!(
            plain
                .iter()
                .enumerate()
                .all(|(place, byte)| *byte == u8::try_from(place % 251).unwrap())
        );
    }
}
