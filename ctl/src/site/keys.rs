//! The keys that a site and its user trust, and the signatures that are checked with them.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use halite_seal::detached::VerifiedManifest;
use halite_seal::keys::{PublicKey, Trust};

use super::Site;
use crate::cli::TrustArgs;

/// The directory of the keys that a user trusts, below the home directory. `ctl bundle key` stores
/// the public keys of new pairs there.
const OWN_KEYS: &str = ".config/halite/trust";

/// The directory of the keys that the user trusts; `None` without a home directory.
pub fn own_keys() -> Option<PathBuf> {
    Some(PathBuf::from(std::env::var_os("HOME").filter(|home| !home.is_empty())?).join(OWN_KEYS))
}

/// Loads the trusted keys: those that the options name, or else the site's, or else the user's own;
/// never a key that the site revoked.
///
/// # Errors
/// There is no key, or one cannot be read.
pub fn trusted_keys(site: &Site, args: &TrustArgs) -> anyhow::Result<Trust> {
    let Some(trust) = known_keys(site, args)? else {
        bail!(
            "no key is trusted here yet: name the .pub file of the builder of your bundles with --trust, which must arrive \
             separately from the bundle; --allow-unsigned detects only damage"
        )
    };
    Ok(trust)
}

/// Loads the trusted keys as [`trusted_keys()`] does; `None` if there is no key and unsigned
/// bundles are not allowed.
fn known_keys(site: &Site, args: &TrustArgs) -> anyhow::Result<Option<Trust>> {
    let directory = [Some(site.trusted()), own_keys()]
        .into_iter()
        .flatten()
        .find(|dir| dir.is_dir());
    let trust = match args.trust.as_ref().or(directory.as_ref()) {
        Some(path) if path.is_dir() => Trust::load(path)?,
        Some(path) => Trust::new(vec![PublicKey::load(path)?]),
        None if args.allow_unsigned => Trust::unsigned(),
        None => return Ok(None),
    };
    // An option cannot restore the trust in a key that the site revoked.
    let trust = trust.no_more_than(&site.trusted())?;
    Ok(Some(if args.allow_unsigned {
        trust.allow_unsigned()
    } else {
        trust
    }))
}

/// The signed manifest of the bundle in a directory; `None` if there is no key to check its
/// signature with.
///
/// # Errors
/// As [`trusted_keys()`], or no trusted key signed the manifest.
pub fn verify_manifest_with_known_keys(
    site: &Site,
    dir: &Path,
    args: &TrustArgs,
) -> anyhow::Result<Option<VerifiedManifest>> {
    known_keys(site, args)?
        .map(|trust| verify_manifest(dir, &trust))
        .transpose()
}

/// Checks the signature of the manifest of the bundle in a directory.
///
/// # Errors
/// The manifest cannot be read, or no trusted key signed it.
pub fn verify_manifest(dir: &Path, trust: &Trust) -> anyhow::Result<VerifiedManifest> {
    halite_bundle::signed_manifest::verified(dir, trust)
        .context("no trusted key signed this directory (--allow-unsigned detects only damage)")
}
