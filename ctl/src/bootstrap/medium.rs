//! The bundle of a bootstrap: an ISO, which is read without mounting it, or a directory, which
//! stays where it is.

use std::path::PathBuf;

use anyhow::bail;
use halite_bundle::VerifiedImage;
use halite_durable::ScratchDir;
use halite_manifest::manifest;

use super::bundle_problems;
use crate::cli::Bootstrap;
use crate::commands::directory_of;
use crate::output::Screen;
use crate::site::{REFUSED, Site, Source, Vouched};

/// What makes an image large; neither the checks nor the plan need it.
const BULK: [&str; 3] = ["images/blobs/", "apt/pool/", "rpm/packages/"];

/// A bundle that is as it was made.
pub struct Medium {
    /// Where it can be read now: all of it, or of an ISO what the checks and the plan need.
    pub bundle: PathBuf,
    /// Where it will stand.
    pub site: PathBuf,
    vouched: Vouched,
    /// Holds what was taken out for a look.
    _look: Option<ScratchDir>,
}

impl Medium {
    /// Looks at the bundle that is named, or that this program is part of, or that this site uses.
    /// What is wrong with it is the inner error.
    ///
    /// # Errors
    /// There is no bundle, it cannot be read, no trusted key vouches for it, or it is older than
    /// the one in use.
    pub fn open(
        here: &Site,
        args: &Bootstrap,
        screen: &mut Screen,
    ) -> anyhow::Result<Result<Self, Vec<String>>> {
        let path = match &args.bundle {
            Some(path) => path.clone(),
            None => directory_of(None)?,
        };
        let vouched = match Vouched::check(here, &path, &args.trust, screen)? {
            Ok(vouched) => vouched,
            Err(problems) => return Ok(Err(problems)),
        };
        let sound = match &vouched.source {
            Source::Image(iso) => Some(VerifiedImage::open(iso, &vouched.sha256)?),
            Source::Directory(_) => None,
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
        if let Some(reason) = here.downgrade(&vouched.version, vouched.built)?
            && !args.allow_downgrade
        {
            bail!("{reason}. {REFUSED}");
        }
        let (bundle, look) = match (&vouched.source, sound) {
            (Source::Directory(dir), _) => {
                let problems = bundle_problems(dir, &vouched.sha256, screen)?;
                if !problems.is_empty() {
                    return Ok(Err(problems));
                }
                (dir.clone(), None)
            }
            (Source::Image(_), sound) => {
                let look = ScratchDir::new("halite-look-")?;
                let small = |path: &str| !BULK.iter().any(|bulk| path.starts_with(bulk));
                sound.map_or(Ok(()), |sound| sound.unpack_some(look.path(), &small))?;
                (look.path().to_owned(), Some(look))
            }
        };
        let checksum = std::fs::read(bundle.join(manifest::CHECKSUM))?;
        here.bundles.refuse_other(&vouched.version, &checksum)?;
        let site = here.bundles.path(&vouched.version)?;
        Ok(Ok(Self {
            bundle,
            site,
            vouched,
            _look: look,
        }))
    }

    /// Puts the bundle where it will stand.
    ///
    /// # Errors
    /// The system's reason.
    pub fn settle(&self, here: &Site, screen: &mut Screen) -> anyhow::Result<()> {
        self.vouched.settle(here, screen).map(|_| ())
    }
}
