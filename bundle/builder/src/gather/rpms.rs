//! Packages for RPM distributions, from yum repositories.

use std::collections::{BTreeMap, BTreeSet};

use halite_durable::{digest, files};
use halite_fetch::{Keyring, parallel, yum};

use super::{Archive, Gather, Mode, Settled};
use crate::error::Error;
use crate::lock::{Item, Lock, Rpms};
use crate::rpm::{Base, Closure};
use crate::{recipe, rpm};

/// The architecture of the hosts.
const ARCHITECTURES: &[&str] = &["x86_64"];

impl Gather<'_> {
    /// Resolves the packages; `None` for a recipe without RPM distributions.
    pub(super) fn settle_rpms(
        &self,
        recorded: Option<&Lock>,
        mode: Mode,
        unrecorded: &mut Vec<String>,
    ) -> Result<Option<Rpms>, Error> {
        let Some(recipe) = &self.recipe.rpm else {
            return Ok(None);
        };
        let request = request(recipe)?;
        if let Some(rpms) = recorded
            .and_then(|lock| lock.rpms.as_ref())
            .filter(|rpms| rpms.request == request)
        {
            return Ok(Some(rpms.clone()));
        }
        if recipe.names.is_empty() {
            return Ok(Some(Rpms {
                request,
                packages: BTreeMap::new(),
            }));
        }
        if mode == Mode::Exact {
            unrecorded.push("the packages of packages.rpm".to_owned());
            return Ok(None);
        }
        let base = Base::load(&recipe.base)?;
        let mut repositories =
            parallel::each(&recipe.repositories, self.fetcher.threads(), |repository| {
                let keyring = Keyring::open(&repository.key)?;
                let source = yum::YumSource {
                    url: repository.url.clone(),
                    keyring,
                    signed: repository.signed_index,
                };
                yum::Repository::open(&self.fetcher, &source, ARCHITECTURES)
            })?;
        let mut looked = BTreeSet::new();
        loop {
            let packages = repositories.iter().flat_map(yum::Repository::packages);
            let closure = rpm::closure(&base, packages, &recipe.names);
            let wanted: BTreeSet<String> = closure
                .files()
                .into_iter()
                .filter(|file| !looked.contains(file))
                .collect();
            if wanted.is_empty() {
                return Ok(Some(Rpms {
                    request,
                    packages: items(&closure)?,
                }));
            }
            // The index of packages omits most files.
            for repository in &mut repositories {
                repository.find_files(&self.fetcher, &wanted)?;
            }
            looked.extend(wanted);
        }
    }

    /// Fetches the packages.
    pub(super) fn fetch_rpms(&self, settled: &Settled) -> Result<Vec<Archive>, Error> {
        settled
            .lock
            .rpms
            .as_ref()
            .map_or(Ok(Vec::new()), |rpms| self.fetch_archives(&rpms.packages))
    }
}

/// The identity of the request.
fn request(recipe: &recipe::Rpm) -> Result<String, Error> {
    let mut names = recipe.names.clone();
    names.sort_unstable();
    let mut lines = vec![names.join(" "), files::digest(&recipe.base)?.0];
    for repository in &recipe.repositories {
        lines.push(format!(
            "{} {}",
            repository.url,
            files::digest(&repository.key)?.0
        ));
    }
    Ok(digest::sha256(lines.join("\n").as_bytes()))
}

fn items(closure: &Closure<'_>) -> Result<BTreeMap<String, Item>, Error> {
    if !closure.lacks.is_empty() {
        let lacks: Vec<String> = closure.lacks.iter().map(ToString::to_string).collect();
        return Err(Error::Incomplete(format!(
            "packages.rpm cannot be installed on a host with the packages of its base:\n  {}",
            lacks.join("\n  ")
        )));
    }
    let packages = closure.packages.iter().chain(&closure.incidental);
    let item = |(package, why): &(&yum::Package, String)| {
        let version = &package.version;
        let name = format!(
            "{}-{}-{}.{}.rpm",
            package.name, version.version, version.release, package.architecture
        );
        let item = Item {
            sha256: package.digest.hex().to_owned(),
            index: None,
            size: package.size,
            source: package.url.clone(),
            licence: Some(package.licence.clone()).filter(|licence| !licence.is_empty()),
            why: why.clone(),
        };
        (name, item)
    };
    Ok(packages.map(item).collect())
}
