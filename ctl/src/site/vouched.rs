//! A bundle that is to be used here: who vouches for it, and how it comes to its place.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use halite_bundle::{Added, visible};
use halite_manifest::manifest;
use halite_seal::Signer;
use halite_seal::keys::Trust;

use super::Site;
use crate::cli::TrustArgs;
use crate::commands::trust;
use crate::output::Screen;

/// Told with every refusal.
pub const REFUSED: &str = "nothing of this bundle is used, and nothing was changed";

/// Where a bundle comes from.
pub enum Source {
    /// An ISO, every byte of which is as it was sealed.
    Image(PathBuf),
    /// A directory whose manifest is signed; its files were not read.
    Directory(PathBuf),
}

/// A bundle that a trusted key vouches for.
pub struct Vouched {
    /// Where it comes from.
    pub source: Source,
    /// Its version.
    pub version: String,
    /// When its content was settled.
    pub built: jiff::Timestamp,
    /// The SHA-256 of its manifest, or of a delta's description: what is used is what was checked.
    pub sha256: String,
    trust: Trust,
}

impl Vouched {
    /// Asks who vouches for a bundle, and reads all of an ISO. Damage is the inner error.
    ///
    /// # Errors
    /// It cannot be read, no trusted key vouches for it, or it is where the services of a site do
    /// not see it.
    pub fn check(
        site: &Site,
        path: &Path,
        args: &TrustArgs,
        screen: &mut Screen,
    ) -> anyhow::Result<Result<Self, Vec<String>>> {
        let trust = trust(site, args)?;
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
            signed(&report.signers, screen);
            let said = report.statement;
            let (version, built, sha256) = (said.version, said.built, said.manifest_sha256);
            return Ok(Ok(Self {
                source: Source::Image(path),
                version,
                built,
                sha256,
                trust,
            }));
        }
        let vouched = halite_bundle::signed_manifest::verified(&path, &trust).context(REFUSED)?;
        let manifest = manifest::load_same(&path, &vouched.sha256).context(REFUSED)?;
        if !path.starts_with(site.bundles.root()) {
            visible(&path).context(REFUSED)?;
        }
        signed(&vouched.signers, screen);
        let built = manifest
            .built
            .parse()
            .context("the bundle does not say when it was built")?;
        let (version, sha256) = (manifest.version, vouched.sha256);
        Ok(Ok(Self {
            source: Source::Directory(path),
            version,
            built,
            sha256,
            trust,
        }))
    }

    /// Puts it among the site's bundles, whole or not at all, and keeps the keys that were trusted,
    /// and those that were revoked, so that the next one is checked with them.
    ///
    /// # Errors
    /// Another one of the same version is there, there is no room, or the system refuses.
    pub fn settle(&self, site: &Site, screen: &mut Screen) -> anyhow::Result<Added> {
        screen.progress("putting the bundle in its place");
        let added = match &self.source {
            Source::Image(iso) => {
                let mut told = |text: &str| screen.progress(&format!("bundle: {text}"));
                site.bundles.add_image(iso, &self.sha256, &mut told)?
            }
            Source::Directory(dir) => site.bundles.add_directory(dir, &self.sha256)?,
        };
        self.trust.keep(&site.trusted())?;
        Ok(added)
    }
}

fn signed(signers: &[Signer], screen: &mut Screen) {
    let paint = screen.paint();
    if signers.is_empty() {
        screen.line(format!(
            "bundle       {} signed by nobody that is trusted here",
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
