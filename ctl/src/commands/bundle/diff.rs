//! `ctl bundle diff`: the changes between two bundles.

use std::path::Path;

use halite_api::to_value;
use halite_manifest::Diff;

use crate::output::{Screen, bundle_diff};

/// Runs `ctl bundle diff`.
///
/// # Errors
/// One of the bundles cannot be read.
pub fn diff(old: &Path, new: &Path, screen: &mut Screen) -> anyhow::Result<u8> {
    let diff = Diff::new(&halite_bundle::inspect(old)?, &halite_bundle::inspect(new)?);
    let document = bundle_diff::document(&diff);
    screen.answer(&to_value(&document), |_| bundle_diff::tables(&diff))?;
    Ok(0)
}
