//! Files of age, version 1 (<https://c2sp.org/age>), with recipients of the kind X25519 and no
//! other.
//!
//! Curve, cipher and hashes are those of `x25519-dalek` and `ring`; only the format is here. What
//! it writes, `age -d` reads, and the other way round; the vectors of the specification have their
//! results (`tests/age_vectors.rs`).

mod error;
mod header;
mod kdf;
mod keys;
mod stream;

pub use error::AgeError;
pub use keys::Identity;
pub use stream::{Decryptor, Encryptor};

/// Bytes of the key that a file is encrypted with.
const FILE_KEY: usize = 16;
