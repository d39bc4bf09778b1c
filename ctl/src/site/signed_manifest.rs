//! A bundle with a signed manifest: its check and its installation on this site.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use halite_bundle::{Added, visible};
use halite_manifest::manifest;
use halite_names::BundleVersion;
use halite_seal::Signer;
use halite_seal::keys::Trust;

use super::{Site, trusted_keys};
use crate::cli::TrustArgs;
use crate::output::Screen;

/// The end of every refusal.
pub const REFUSED: &str = "this bundle is not used, and nothing was changed";

/// The origin of a bundle.
pub enum BundleOrigin {
    /// An ISO whose bytes are all unchanged since it was sealed.
    Image(PathBuf),
    /// A directory whose manifest is signed; its files were not read.
    Directory(PathBuf),
}

/// A bundle that a trusted key signed.
pub struct VerifiedBundle {
    /// Its origin.
    pub source: BundleOrigin,
    /// Its version.
    pub version: BundleVersion,
    /// The time at which its content was resolved.
    pub built: jiff::Timestamp,
    /// The SHA-256 of its manifest, or of a delta's description, so that only the checked content
    /// is used.
    pub sha256: String,
    trust: Trust,
}

impl VerifiedBundle {
    /// Checks the signature of a bundle, and every byte of an ISO. Damage is the inner error.
    ///
    /// # Errors
    /// The bundle cannot be read, no trusted key signed it, or the services of a site do not see
    /// its directory.
    pub fn check(
        site: &Site,
        path: &Path,
        args: &TrustArgs,
        screen: &mut Screen,
    ) -> anyhow::Result<Result<Self, Vec<String>>> {
        let trust = trusted_keys(site, args)?;
        let path = path
            .canonicalize()
            .with_context(|| format!("there is no bundle at {}", path.display()))?;
        if !path.is_dir() {
            let report = halite_seal::check(&path, &trust, &mut |text| {
                screen.progress(&format!("bundle: {text}"))
            })
            .context(REFUSED)?;
            if !report.is_sound() {
                return Ok(Err(report
                    .problems
                    .iter()
                    .map(ToString::to_string)
                    .collect()));
            }
            report_signers(&report.signers, screen);
            let statement = report.statement;
            let (version, built, sha256) = (
                statement.version.parse().context(REFUSED)?,
                statement.built,
                statement.manifest_sha256,
            );
            return Ok(Ok(Self {
                source: BundleOrigin::Image(path),
                version,
                built,
                sha256,
                trust,
            }));
        }
        let signed = halite_bundle::signed_manifest::verified(&path, &trust).context(REFUSED)?;
        let manifest = manifest::load_same(&path, &signed.sha256).context(REFUSED)?;
        if !path.starts_with(site.bundles.root()) {
            visible(&path).context(REFUSED)?;
        }
        report_signers(&signed.signers, screen);
        let built = manifest
            .built
            .parse()
            .context("the bundle does not say when it was built")?;
        let (version, sha256) = (manifest.version, signed.sha256);
        Ok(Ok(Self {
            source: BundleOrigin::Directory(path),
            version,
            built,
            sha256,
            trust,
        }))
    }

    /// Adds the bundle to the site's atomically. Stores the trusted and the revoked keys, so that
    /// the next bundle is checked with them.
    ///
    /// # Errors
    /// The site has another bundle of the same version, the disk is full, or the system refuses.
    pub fn install(&self, site: &Site, screen: &mut Screen) -> anyhow::Result<Added> {
        screen.progress("adding the bundle to the site");
        let added = match &self.source {
            BundleOrigin::Image(iso) => {
                let mut report = |text: &str| screen.progress(&format!("bundle: {text}"));
                site.bundles.add_image(iso, &self.sha256, &mut report)?
            }
            BundleOrigin::Directory(dir) => site.bundles.add_directory(dir, &self.sha256)?,
        };
        self.trust.keep(&site.trusted())?;
        Ok(added)
    }

    /// Returns what [`Self::install`] would do, and changes nothing.
    ///
    /// # Errors
    /// As there.
    pub fn preview(&self, site: &Site, screen: &mut Screen) -> anyhow::Result<Added> {
        Ok(match &self.source {
            BundleOrigin::Image(iso) => {
                let mut report = |text: &str| screen.progress(&format!("bundle: {text}"));
                site.bundles.preview_image(iso, &self.sha256, &mut report)?
            }
            BundleOrigin::Directory(dir) => site.bundles.preview_directory(dir, &self.sha256)?,
        })
    }
}

fn report_signers(signers: &[Signer], screen: &mut Screen) {
    let paint = screen.paint();
    if signers.is_empty() {
        screen.line(format!(
            "bundle       {} not signed by a trusted key",
            paint.notable("!")
        ));
    }
    for signer in signers {
        screen.line(format!(
            "bundle       {} signed by {signer}",
            paint.good("✓")
        ));
    }
}
