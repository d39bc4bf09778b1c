//! Packages for further Debian releases, from their repositories.

use std::collections::BTreeMap;

use super::{Archive, Gather, Mode, Settled};
use crate::error::Error;
use crate::lock::{Lock, ReleasePackages};

impl Gather<'_> {
    /// Resolves the packages of each further release.
    pub(super) fn settle_releases(
        &self,
        recorded: Option<&Lock>,
        mode: Mode,
        unrecorded: &mut Vec<String>,
    ) -> Result<BTreeMap<String, ReleasePackages>, Error> {
        let mut found = BTreeMap::new();
        for (codename, release) in &self.recipe.releases {
            let request = self.request_of(&release.base, &release.repositories)?;
            let known = recorded.and_then(|lock| lock.releases.get(codename));
            if let Some(known) = known.filter(|known| known.request == request) {
                found.insert(codename.clone(), known.clone());
            } else if mode == Mode::Exact {
                unrecorded.push(format!("the packages of packages.releases.{codename}"));
            } else {
                let packages = self.resolve_packages(&release.base, &release.repositories)?;
                let resolved = ReleasePackages { request, packages };
                found.insert(codename.clone(), resolved);
            }
        }
        Ok(found)
    }

    /// Fetches the packages of each further release.
    pub(super) fn fetch_releases(
        &self,
        settled: &Settled,
    ) -> Result<BTreeMap<String, Vec<Archive>>, Error> {
        let releases = settled.lock.releases.iter();
        let fetched = releases.map(|(codename, release)| {
            Ok((codename.clone(), self.fetch_archives(&release.packages)?))
        });
        fetched.collect()
    }
}
