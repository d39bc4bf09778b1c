//! The bundle of a bootstrap: an ISO, which is read without mounting it, or a directory, which
//! stays where it is.

use std::path::PathBuf;

use anyhow::bail;
use halite_bundle::VerifiedImage;
use halite_durable::ScratchDir;
use halite_manifest::manifest;

use super::{bundle_problems, scratch};
use crate::cli::Bootstrap;
use crate::output::Screen;
use crate::site::{BundleOrigin, REFUSED, Site, VerifiedBundle};

/// The large directories of an image, which neither the checks nor the plan need.
const BULK: [&str; 3] = ["images/blobs/", "apt/pool/", "rpm/packages/"];

/// More bytes than all other files of an image have: programs, states and documentation.
const SMALL: u64 = 512 * 1024 * 1024;

/// A bundle that was checked.
pub struct BootstrapBundle {
    /// The directory in which it can be read now: the whole bundle, or the files of an ISO that the
    /// checks and the plan need.
    pub bundle: PathBuf,
    /// The directory in which it will be installed.
    pub site: PathBuf,
    source: VerifiedBundle,
    /// Holds the files that were extracted from an ISO.
    _scratch: Option<ScratchDir>,
}

impl BootstrapBundle {
    /// Checks the named bundle, or else the one that contains this program or that this site uses.
    /// Damage is the inner error.
    ///
    /// # Errors
    /// There is no bundle, it cannot be read, no trusted key signed it, or it is older than
    /// the one in use.
    pub fn open(
        here: &Site,
        args: &Bootstrap,
        screen: &mut Screen,
    ) -> anyhow::Result<Result<Self, Vec<String>>> {
        let path = match &args.bundle {
            Some(path) => path.clone(),
            None => here.bundle_directory(None)?,
        };
        let verified = match VerifiedBundle::check(here, &path, &args.trust, screen)? {
            Ok(verified) => verified,
            Err(problems) => return Ok(Err(problems)),
        };
        let sound = match &verified.source {
            BundleOrigin::Image(iso) => Some(VerifiedImage::open(iso, &verified.sha256)?),
            BundleOrigin::Directory(_) => None,
        };
        if let Some(delta) = sound.as_ref().and_then(VerifiedImage::delta) {
            bail!(
                "{} is a delta from the bundle {} to {}, for a site that has the old one (`ctl bundle add`): a bootstrap \
                 needs a whole bundle. {REFUSED}",
                path.display(),
                delta.old.version,
                delta.new.version
            );
        }
        if let Some(reason) = here.downgrade(&verified.version, verified.built)?
            && !args.allow_downgrade
        {
            bail!("{reason}. {REFUSED}");
        }
        let (bundle, scratch) = match (&verified.source, sound) {
            (BundleOrigin::Directory(dir), _) => {
                let problems = bundle_problems(dir, &verified.sha256, screen)?;
                if !problems.is_empty() {
                    return Ok(Err(problems));
                }
                (dir.clone(), None)
            }
            (BundleOrigin::Image(_), sound) => {
                let scratch = ScratchDir::within(&scratch::place(SMALL), "halite-look-")?;
                let small = |path: &str| !BULK.iter().any(|bulk| path.starts_with(bulk));
                sound.map_or(Ok(()), |sound| sound.unpack_some(scratch.path(), &small))?;
                (scratch.path().to_owned(), Some(scratch))
            }
        };
        let checksum = std::fs::read(bundle.join(manifest::CHECKSUM))?;
        here.bundles.refuse_other(&verified.version, &checksum)?;
        let site = here.bundles.path(&verified.version);
        Ok(Ok(Self {
            bundle,
            site,
            source: verified,
            _scratch: scratch,
        }))
    }

    /// Installs the bundle on this site.
    ///
    /// # Errors
    /// The system's reason.
    pub fn install(&self, here: &Site, screen: &mut Screen) -> anyhow::Result<()> {
        self.source.install(here, screen).map(|_| ())
    }
}
