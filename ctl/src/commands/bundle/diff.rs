//! `ctl bundle diff`: the changes between two bundles.

use std::path::Path;

use halite_manifest::Diff;

use crate::output::{Screen, bundle_diff};

/// Runs `ctl bundle diff`.
///
/// # Errors
/// One of the bundles cannot be read.
pub fn diff(old: &Path, new: &Path, screen: &mut Screen) -> anyhow::Result<u8> {
    let diff = Diff::new(&halite_bundle::inspect(old)?, &halite_bundle::inspect(new)?);
    let document = serde_json::to_value(&diff)?;
    screen.answer(&document, |_| bundle_diff::tables(&diff))?;
    Ok(0)
}
