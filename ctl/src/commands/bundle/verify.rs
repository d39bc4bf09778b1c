//! `ctl bundle verify`: the signature and every file of a directory or an image.

use std::path::Path;

use halite_api::{BundleDelta, BundleProblem, BundleSigner, DeltaSide, VerifiedBundle, to_value};
use halite_bundle::BundleDamage;
use halite_bundle::delta::Side;
use halite_seal::Signer;

use super::builder;
use crate::FAILED;
use crate::cli::TrustArgs;
use crate::output::{Screen, count, megabytes};
use crate::site::{Site, trusted_keys, verify_manifest_with_known_keys};

/// Runs `ctl bundle verify` for a directory.
///
/// # Errors
/// The directory cannot be read, or no trusted key signed it.
pub fn directory(
    site: &Site,
    directory: &Path,
    trusted: &TrustArgs,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let signed = verify_manifest_with_known_keys(site, directory, trusted)?;
    let mut report_progress = |text: &str| screen.progress(text);
    let mut report = match &signed {
        Some(signed) => {
            halite_bundle::verify_same(directory, &signed.sha256, &mut report_progress)?
        }
        None => halite_bundle::verify(directory, &mut report_progress)?,
    };
    let mut is_complete_checked = true;
    // For a damaged bundle, report only the damage, not its consequences.
    if report.is_sound() {
        screen.progress("checking that the bundle is complete");
        match builder::missing(directory)? {
            Some(missing) => {
                let incomplete = |message| BundleDamage::Incomplete { message };
                report.problems.extend(missing.into_iter().map(incomplete));
            }
            None => is_complete_checked = false,
        }
    }
    let signers = signed.map(|signed| signed.signers);
    let document = VerifiedBundle {
        sound: report.is_sound(),
        version: None,
        files: number(report.files),
        size: Some(report.size),
        problems: report.problems.iter().map(damage).collect(),
        signers: signers.as_deref().map(documents),
        ignored: Vec::new(),
        completeness_checked: Some(is_complete_checked && report.is_sound()),
        delta: None,
    };
    screen.answer(&to_value(&document), |paint| {
        let mut text: String = report
            .problems
            .iter()
            .map(|problem| format!("{} {problem}\n", paint.bad("✗")))
            .collect();
        if report.is_sound() {
            let size = megabytes(report.size);
            text = format!(
                "{} {}, {size}: all unchanged since they were built",
                paint.good("✓"),
                count(report.files, "file")
            );
            text += &match &signers {
                Some(signers) => format!("; signed by {}\n", signer_names(signers)),
                None => format!(
                    "\n{} its signature was not checked: name a key with --trust\n",
                    paint.notable("!")
                ),
            };
            if !is_complete_checked {
                text += &format!(
                    "{} its completeness was not checked: that needs {}, which only machines that build bundles have\n",
                    paint.notable("!"),
                    builder::PROGRAM
                );
            }
        }
        text
    })?;
    Ok(if report.is_sound() { 0 } else { FAILED })
}

/// Runs `ctl bundle verify` for an image.
///
/// # Errors
/// The file cannot be read, or no trusted key signed it.
pub fn image(
    site: &Site,
    file: &Path,
    trusted: &TrustArgs,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let report = halite_seal::check(file, &trusted_keys(site, trusted)?, &mut |text| {
        screen.progress(text)
    })?;
    // Nothing in a damaged image can be trusted, not even its kind.
    let delta = if report.is_sound() {
        halite_bundle::delta::look(file)?
    } else {
        None
    };
    let document = VerifiedBundle {
        sound: report.is_sound(),
        version: Some(report.statement.version.clone()),
        files: number(report.files),
        size: None,
        problems: report.problems.iter().map(changed).collect(),
        signers: Some(documents(&report.signers)),
        ignored: report.ignored.clone(),
        completeness_checked: None,
        delta: delta.clone().map(|delta| BundleDelta {
            old: delta_side(delta.old),
            new: delta_side(delta.new),
        }),
    };
    screen.answer(&to_value(&document), |paint| {
        let mut text: String =
            report.problems.iter().map(|problem| format!("{} {problem}\n", paint.bad("✗"))).collect();
        if report.is_sound() {
            let by = signer_names(&report.signers);
            text = format!(
                "{} {} {}, {}: all unchanged since they were sealed; signed by {by}\n",
                paint.good("✓"),
                report.statement.name,
                report.statement.version,
                count(report.files, "file")
            );
            text.extend(delta.iter().map(|delta| {
                format!(
                    "  it is a delta: only a site that has the bundle {} (built {}) can add it, and then has the bundle {}\n",
                    delta.old.version, delta.old.built, delta.new.version
                )
            }));
        }
        text
    })?;
    Ok(if report.is_sound() { 0 } else { FAILED })
}

fn number(files: usize) -> u64 {
    u64::try_from(files).unwrap_or(u64::MAX)
}

/// A difference between a directory and its manifest, as a document.
fn damage(damage: &BundleDamage) -> BundleProblem {
    let path = match damage {
        BundleDamage::Changed { path, .. }
        | BundleDamage::Missing { path, .. }
        | BundleDamage::Extra { path } => Some(path.clone()),
        BundleDamage::Manifest { .. } | BundleDamage::Incomplete { .. } => None,
    };
    BundleProblem {
        message: damage.to_string(),
        path,
        offset: None,
        size: None,
    }
}

/// A changed range of an image, as a document.
fn changed(problem: &halite_seal::Problem) -> BundleProblem {
    BundleProblem {
        message: problem.to_string(),
        path: problem.path.clone(),
        offset: Some(problem.offset),
        size: Some(problem.size),
    }
}

fn documents(signers: &[Signer]) -> Vec<BundleSigner> {
    let document = |signer: &Signer| BundleSigner {
        key: signer.key.to_string(),
        name: signer.name.clone(),
    };
    signers.iter().map(document).collect()
}

/// A bundle at one end of a delta, as a document.
pub(super) fn delta_side(side: Side) -> DeltaSide {
    DeltaSide {
        version: side.version,
        kubernetes: side.kubernetes,
        built: side.built,
        manifest_sha256: side.manifest_sha256,
    }
}

/// The names of the signers as text.
fn signer_names(signers: &[Signer]) -> String {
    let signers: Vec<_> = signers.iter().map(ToString::to_string).collect();
    if signers.is_empty() {
        "no trusted key".to_owned()
    } else {
        signers.join(", ")
    }
}
