//! Where the bundle comes from: a signed ISO, which is checked as a whole and then read without mounting it, or a directory
//! with a signed manifest, which stays where it is.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use halite_bundle::seal::{self, Signer, Statement, keys::Trust};
use halite_bundle::{Manifest, Scratch, manifest};

use super::{CONFIG, bundle_problems};
use crate::cli::Bootstrap;
use crate::commands::{directory_of, of_site, trust};
use crate::files;
use crate::output::Screen;

/// Where bundles stand that came in an ISO, each under its version.
const BUNDLES: &str = "/var/lib/halite/bundles";
/// What makes an image large; neither the checks nor the plan need it.
const BULK: [&str; 2] = ["images/blobs/", "apt/pool/"];

/// Told with every refusal.
const REFUSED: &str = "nothing of this bundle is used, and nothing was changed";

/// A bundle that is as it was made.
pub struct Medium {
    /// Where it can be read now: all of it, or of an ISO what the checks and the plan need.
    pub bundle: PathBuf,
    /// Where it will stand.
    pub site: PathBuf,
    trust: Trust,
    iso: Option<PathBuf>,
    /// Holds what was taken out for a look.
    _look: Option<Scratch>,
}

impl Medium {
    /// Looks at the bundle that is named, or that this program is part of, or that this site was made from. What is wrong
    /// with it is the inner error.
    ///
    /// # Errors
    /// There is no bundle, it cannot be read, or no trusted key vouches for it.
    pub fn open(args: &Bootstrap, screen: &mut Screen) -> anyhow::Result<Result<Self, Vec<String>>> {
        let given = args.bundle.clone();
        let iso = given.clone().filter(|file| file.is_file());
        let directory = if iso.is_none() { directory_of(given)? } else { PathBuf::new() };
        let trust = trust(&args.trust)?;
        match iso {
            Some(file) => Self::image(&file, trust, args.allow_downgrade, screen),
            None => {
                screen.progress("reading the bundle");
                let vouched = manifest::vouched(&directory, &trust).context(REFUSED)?;
                signed(&vouched.signers, screen);
                let medium =
                    Self { site: directory.clone(), bundle: directory, trust, iso: None, _look: None };
                medium.read(screen)
            }
        }
    }

    /// Compares every file with the manifest.
    fn read(self, screen: &mut Screen) -> anyhow::Result<Result<Self, Vec<String>>> {
        let problems = bundle_problems(&self.bundle, screen)?;
        Ok(if problems.is_empty() { Ok(self) } else { Err(problems) })
    }

    fn image(
        file: &Path,
        trust: Trust,
        back: bool,
        screen: &mut Screen,
    ) -> anyhow::Result<Result<Self, Vec<String>>> {
        let report = seal::check(file, &trust, &mut |text| screen.progress(&format!("bundle: {text}")))
            .context(REFUSED)?;
        if !report.is_sound() {
            return Ok(Err(report.problems.iter().map(ToString::to_string).collect()));
        }
        signed(&report.signers, screen);
        if let Some(installed) = of_site()
            && let Some(reason) = downgrade(&report.statement, &manifest::load(&installed)?)
            && !back
        {
            bail!("{reason}. {REFUSED}");
        }
        let iso = Some(file.canonicalize().with_context(|| format!("there is no {}", file.display()))?);
        let site = Path::new(BUNDLES).join(&report.statement.version);
        let look = Scratch::new("halite-look-")?;
        let small = |path: &str| !BULK.iter().any(|bulk| path.starts_with(bulk));
        halite_bundle::unpack_some(file, look.path(), &small)?;
        let recorded = |dir: &Path| std::fs::read(dir.join(manifest::CHECKSUM)).ok();
        if recorded(&site) == recorded(look.path()) {
            return Self { bundle: site.clone(), site, trust, iso, _look: None }.read(screen);
        }
        if site.exists() {
            bail!(
                "{} holds another bundle of the same version {}: give the new one a version of its own in its recipe. {REFUSED}",
                site.display(),
                report.statement.version
            );
        }
        Ok(Ok(Self { bundle: look.path().to_owned(), site, trust, iso, _look: Some(look) }))
    }

    /// Puts the bundle of an ISO where it will stand, and keeps the keys that were trusted, so that the next one is checked
    /// with them.
    ///
    /// # Errors
    /// The system's reason.
    pub fn settle(&self, screen: &mut Screen) -> anyhow::Result<()> {
        if let Some(iso) = &self.iso {
            screen.progress("putting the bundle in its place");
            halite_bundle::unpack(iso, &self.site, &mut |text| screen.progress(&format!("bundle: {text}")))?;
        }
        for key in self.trust.keys() {
            let name = key.name().map_or_else(|| key.id().to_string(), str::to_owned);
            let path = Path::new(CONFIG).join("trust").join(format!("{name}.pub"));
            files::write(&path, key.to_text().as_bytes(), 0o644)?;
        }
        Ok(())
    }
}

/// A signature does not say that a bundle is the newest one: a site that has a newer one asks before it goes back.
fn downgrade(statement: &Statement, installed: &Manifest) -> Option<String> {
    let there: jiff::Timestamp = installed.built.parse().ok()?;
    (statement.built < there).then(|| {
        format!(
            "the bundle {} was built at {}, before the one that this site has ({}, {there}); --allow-downgrade takes it all \
             the same",
            statement.version, statement.built, installed.version
        )
    })
}

fn signed(signers: &[Signer], screen: &mut Screen) {
    let paint = screen.paint();
    if signers.is_empty() {
        screen.line(format!("bundle       {} signed by nobody that is trusted here", paint.notable("!")));
    }
    for signer in signers {
        screen.line(format!("bundle       {} signed by {signer}", paint.good("✓")));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_older_bundle_is_no_successor() {
        let statement = |built: &str| -> Statement {
            serde_json::from_value(
                json!({"format": 1, "name": "halite", "version": "0.1.0", "volume": "HALITE",
                "built": built, "size": 2048, "sha256": "", "map-sha256": "", "manifest-sha256": ""}),
            )
            .unwrap()
        };
        let installed: Manifest = serde_json::from_value(json!({"format": 1, "name": "halite", "version": "0.2.0",
            "built": "2026-06-01T00:00:00Z", "kubernetes": "v1.36.3", "components": {}, "images": {}, "packages": {},
            "files": {}}))
        .unwrap();
        let reason = downgrade(&statement("2026-05-31T00:00:00Z"), &installed).unwrap();
        assert!(reason.contains("0.1.0") && reason.contains("0.2.0"), "{reason}");
        assert_eq!(downgrade(&statement("2026-06-01T00:00:00Z"), &installed), None, "the same one again");
        assert_eq!(downgrade(&statement("2026-06-02T00:00:00Z"), &installed), None);
    }
}
