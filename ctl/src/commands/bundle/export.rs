//! `ctl bundle export`: a delta between two bundles, as a signed image.

use std::path::Path;

use anyhow::bail;
use halite_api::{ExportedDelta, to_value};

use super::signing;
use super::verify::delta_side;
use crate::cli::{Signing, TrustArgs};
use crate::output::{Screen, megabytes};
use crate::site::{Site, trusted_keys, verify_manifest};

/// Runs `ctl bundle export`.
///
/// # Errors
/// One of the bundles cannot be read, no trusted key signed the new one, or the delta cannot be
/// written.
pub fn export(
    site: &Site,
    [since, new, out]: [&Path; 3],
    signing_args: &Signing,
    trusted: &TrustArgs,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let keys = signing::keys(signing_args)?;
    // The signature of the delta covers its content, so the content has to be trusted.
    let trust = trusted_keys(site, trusted)?;
    let sha256 = if new.is_dir() {
        verify_manifest(new, &trust)?.sha256
    } else {
        let report = halite_seal::check(new, &trust, &mut |text| screen.progress(text))?;
        if !report.is_sound() {
            let problems: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
            bail!(
                "{} is damaged, nothing was written:\n  {}",
                new.display(),
                problems.join("\n  ")
            );
        }
        report.statement.manifest_sha256
    };
    let people = screen.is_for_people();
    let mut report_progress = |text: &str| {
        if people {
            screen.line(text)
        } else {
            screen.progress(text)
        }
    };
    let delta =
        halite_bundle::export_delta(since, (new, &sha256), out, &keys, &mut report_progress)?;
    let size = std::fs::metadata(out)
        .map(|status| status.len())
        .unwrap_or_default();
    let document = ExportedDelta {
        image: out.display().to_string(),
        size,
        old: delta_side(delta.old),
        new: delta_side(delta.new),
        signers: signing::ids(&keys),
    };
    screen.answer(&to_value(&document), |paint| {
        format!(
            "{} {}: from {} to {}, {}, signed by {}\n",
            paint.good("✓"),
            document.image,
            document.old.version,
            document.new.version,
            megabytes(size),
            signing::list(&document.signers)
        )
    })?;
    Ok(0)
}
