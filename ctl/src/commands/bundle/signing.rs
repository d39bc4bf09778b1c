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

/// The ids of the keys.
pub fn ids(keys: &[SecretKey]) -> Vec<String> {
    let ids = keys.iter().map(|key| key.public().id().to_string());
    ids.collect()
}

/// The ids as text.
pub fn list(ids: &[String]) -> String {
    match ids {
        [] => "no key".to_owned(),
        ids => ids.join(", "),
    }
}
