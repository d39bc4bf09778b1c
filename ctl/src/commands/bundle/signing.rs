//! The secret keys that sign an image.

use anyhow::bail;
use halite_seal::keys::{SecretKey, load_all};

use crate::cli::Signing;

/// Loads the keys that sign an image.
///
/// # Errors
/// A key cannot be read, or no key is named and `--unsigned` is not given.
pub fn keys(signing: &Signing) -> anyhow::Result<Vec<SecretKey>> {
    if signing.key.is_empty() && !signing.unsigned {
        bail!(
            "name the key that signs the image with --key (`ctl bundle key` makes one), or leave it --unsigned"
        );
    }
    Ok(load_all(&signing.key, signing.password_file.as_deref())?)
}
