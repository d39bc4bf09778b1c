//! Files of age, version 1 (<https://c2sp.org/age>), only with recipients of the kind X25519.
//!
//! Curve, cipher and hashes come from `x25519-dalek` and `ring`; only the format is implemented
//! here. `age -d` reads the output of this module, and vice versa; the test vectors of the
//! specification give the specified results (`tests/vectors.rs`).

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
