//! `ctl bundle pack`: a signed image from the bundle in a directory.

use std::path::Path;

use halite_api::{PackedBundle, to_value};

use super::signing;
use crate::cli::Signing;
use crate::output::{Screen, megabytes};

/// Runs `ctl bundle pack`.
///
/// # Errors
/// The bundle cannot be read, or the image cannot be written.
pub fn pack(
    directory: &Path,
    out: &Path,
    signing_args: &Signing,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let keys = signing::keys(signing_args)?;
    let people = screen.is_for_people();
    let mut report = |text: &str| {
        if people {
            screen.line(text)
        } else {
            screen.progress(text)
        }
    };
    let manifest = halite_bundle::pack(directory, out, &keys, &mut report)?;
    let size = std::fs::metadata(out)
        .map(|status| status.len())
        .unwrap_or_default();
    let document = PackedBundle {
        image: out.display().to_string(),
        size,
        version: manifest.version,
        signers: signing::ids(&keys),
    };
    screen.answer(&to_value(&document), |paint| {
        format!(
            "{} {}: the bundle {}, {}, signed by {}\n",
            paint.good("✓"),
            document.image,
            document.version,
            megabytes(size),
            signing::list(&document.signers)
        )
    })?;
    Ok(0)
}
