//! Where the bundle comes from: a directory that stays where it is, or a signed ISO, which is checked as a whole and then
//! read without mounting it.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use halite_bundle::seal::{self, keys::Trust};
use tempfile::TempDir;

use super::{CONFIG, bundle_problems};
use crate::cli::TrustArgs;
use crate::commands::{directory_of, trust};
use crate::files;
use crate::output::Screen;

/// Where bundles stand that came in an ISO, each under its version.
const BUNDLES: &str = "/var/lib/halite/bundles";
/// What makes an image large; neither the checks nor the plan need it.
const BULK: [&str; 2] = ["images/blobs/", "apt/pool/"];

/// A bundle that is as it was made.
pub struct Medium {
    /// Where it can be read now: all of it, or of an ISO what the checks and the plan need.
    pub bundle: PathBuf,
    /// Where it will stand.
    pub site: PathBuf,
    iso: Option<Iso>,
}

struct Iso {
    file: PathBuf,
    trust: Trust,
    /// Holds what was taken out for a look.
    _look: Option<TempDir>,
}

impl Medium {
    /// Looks at the bundle that is named, or that this program is part of. What is wrong with it is the inner error.
    ///
    /// # Errors
    /// There is no bundle, it cannot be read, or no trusted key vouches for it.
    pub fn open(
        given: Option<PathBuf>,
        trusted: &TrustArgs,
        screen: &mut Screen,
    ) -> anyhow::Result<Result<Self, Vec<String>>> {
        match given {
            Some(file) if file.is_file() => Self::image(&file, trusted, screen),
            given => {
                let bundle = directory_of(given)?;
                screen.progress("reading the bundle");
                Self::directory(bundle.clone(), bundle, None, screen)
            }
        }
    }

    fn directory(
        bundle: PathBuf,
        site: PathBuf,
        iso: Option<Iso>,
        screen: &mut Screen,
    ) -> anyhow::Result<Result<Self, Vec<String>>> {
        let problems = bundle_problems(&bundle, screen)?;
        Ok(if problems.is_empty() { Ok(Self { bundle, site, iso }) } else { Err(problems) })
    }

    fn image(
        file: &Path,
        trusted: &TrustArgs,
        screen: &mut Screen,
    ) -> anyhow::Result<Result<Self, Vec<String>>> {
        let trust = trust(trusted)?;
        let report = seal::check(file, &trust, &mut |text| screen.progress(&format!("bundle: {text}")))
            .context("nothing of this bundle is used, and nothing was changed")?;
        if !report.is_sound() {
            return Ok(Err(report.problems.iter().map(ToString::to_string).collect()));
        }
        for signer in &report.signers {
            screen.line(format!("bundle       {} signed by {signer}", screen.paint().good("✓")));
        }
        let file = file.canonicalize().with_context(|| format!("there is no {}", file.display()))?;
        let site = Path::new(BUNDLES).join(&report.statement.version);
        let look = tempfile::tempdir().context("there is no room for temporary files")?;
        let small = |path: &str| !BULK.iter().any(|bulk| path.starts_with(bulk));
        halite_bundle::unpack_some(&file, look.path(), &small)?;
        let recorded = |dir: &Path| std::fs::read(dir.join(halite_bundle::manifest::CHECKSUM)).ok();
        if recorded(&site) == recorded(look.path()) {
            return Self::directory(site.clone(), site, Some(Iso { file, trust, _look: None }), screen);
        }
        let bundle = look.path().to_owned();
        Ok(Ok(Self { bundle, site, iso: Some(Iso { file, trust, _look: Some(look) }) }))
    }

    /// Puts the bundle where it will stand, and keeps the keys that vouched for it, so that the next one is checked with
    /// them. A bundle in a directory stands already.
    ///
    /// # Errors
    /// The system's reason.
    pub fn settle(&self, screen: &mut Screen) -> anyhow::Result<()> {
        let Some(iso) = &self.iso else { return Ok(()) };
        screen.progress("putting the bundle in its place");
        halite_bundle::unpack(&iso.file, &self.site, &mut |text| {
            screen.progress(&format!("bundle: {text}"))
        })?;
        for key in iso.trust.keys() {
            let name = key.name().map_or_else(|| key.id().to_string(), str::to_owned);
            let path = Path::new(CONFIG).join("trust").join(format!("{name}.pub"));
            files::write(&path, key.to_text().as_bytes(), 0o644)?;
        }
        Ok(())
    }
}
