//! Packages of the operating system: from the repositories that the recipe names, or from this
//! machine's own sources.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use halite_durable::{digest, files};
use halite_fetch::apt::AptSource;
use halite_fetch::apt_index::Control;
use halite_fetch::cache::CachedContent;
use halite_fetch::{Artifact, Keyring};
use jiff::Timestamp;

use super::{Archive, Gather, Mode, Settled};
use crate::completeness::Packages as Stanzas;
use crate::error::Error;
use crate::lock::{Item, Lock};
use crate::recipe::Repository;
use crate::{apt, completeness};

/// The request, the items that it resolved to, and the archives if they are on this machine.
pub(super) type Packages = (String, BTreeMap<String, Item>, Option<Vec<Archive>>);

impl Gather<'_> {
    /// Resolves the packages and their dependencies.
    pub(super) fn settle_packages(
        &self,
        recorded: Option<&Lock>,
        mode: Mode,
        unrecorded: &mut Vec<String>,
    ) -> Result<Packages, Error> {
        let request = self.request()?;
        let known = recorded.filter(|lock| lock.request == request);
        if self.recipe.repositories.is_empty() {
            return self.settle_own(request, recorded, known);
        }
        let items = match known {
            Some(known) => known.packages.clone(),
            None if mode == Mode::Exact => {
                let what = "the packages: packages.apt, base or repositories changed, or were never recorded";
                unrecorded.push(what.to_owned());
                BTreeMap::new()
            }
            None => self.resolve_packages(&self.recipe.base, &self.recipe.repositories)?,
        };
        Ok((request, items, None))
    }

    /// Resolves the packages from this machine's own package sources.
    fn settle_own(
        &self,
        request: String,
        recorded: Option<&Lock>,
        known: Option<&Lock>,
    ) -> Result<Packages, Error> {
        let kept = self.cache.join("archives");
        if self.offline && !self.recipe.apt.is_empty() {
            let missing = match known {
                Some(lock) => apt::unkept(lock, &kept)?,
                None => self.recipe.apt.clone(),
            };
            if !missing.is_empty() {
                let named = |name: &String| format!("package {name} (from this machine's apt)");
                return Err(
                    halite_fetch::Error::Missing(missing.iter().map(named).collect()).into(),
                );
            }
        }
        let archives = apt::fetch(&self.recipe.apt, &self.recipe.base, &kept, recorded)?;
        let controls = archives.iter().map(|archive| apt::package::read(archive));
        let controls = controls.collect::<Result<Vec<_>, _>>()?;
        let (mut items, mut found) = (BTreeMap::new(), Vec::new());
        for (path, control) in archives.into_iter().zip(&controls) {
            let (sha256, size) = files::digest(&path)?;
            let why = self.why_package(control, controls.iter());
            let item = Item {
                sha256,
                index: None,
                size,
                source: "apt".to_owned(),
                licence: None,
                why,
            };
            found.push(Archive {
                name: apt::package::file_name(control),
                path,
                sha256: item.sha256.clone(),
            });
            items.insert(apt::package::file_name(control), item);
        }
        // The first time they are in apt's order, later in the cache's order. Sorting gives both
        // the same key for the stored repository.
        found.sort_by(|one, other| one.name.cmp(&other.name));
        Ok((request, items, Some(found)))
    }

    /// Resolves the packages from the repositories, each in its newest version.
    pub(super) fn resolve_packages(
        &self,
        base: &Path,
        repositories: &[Repository],
    ) -> Result<BTreeMap<String, Item>, Error> {
        let (mut newest, mut errors) = (
            BTreeMap::<String, halite_fetch::apt::Package>::new(),
            Vec::new(),
        );
        for repository in repositories {
            let opened = source(repository).and_then(|source| {
                halite_fetch::apt::Repository::open(&self.fetcher, &source, Timestamp::now())
            });
            match opened {
                Err(error) => errors.push(Error::Fetch(error)),
                Ok(repository) => {
                    for package in repository.packages() {
                        let older = |there: &halite_fetch::apt::Package| {
                            halite_fetch::apt::compare(&there.version, &package.version).is_lt()
                        };
                        if newest.get(&package.name).is_none_or(older) {
                            newest.insert(package.name.clone(), package.clone());
                        }
                    }
                }
            }
        }
        Error::all(errors)?;
        let status = fs::read_to_string(base).map_err(Error::file("read", base))?;
        let base = Stanzas::new(completeness::installed(&status));
        let stanzas = Stanzas::new(
            newest
                .values()
                .map(|package| package.control().clone())
                .collect(),
        );
        let taken = completeness::plan(&stanzas, &base, &self.recipe.apt)
            .map_err(|problems| Error::Incomplete(problems.join("\n")))?;
        let taken: Vec<_> = taken.keys().filter_map(|name| newest.get(name)).collect();
        let item = |package: &&halite_fetch::apt::Package| {
            let why =
                self.why_package(package.control(), taken.iter().map(|taken| taken.control()));
            let (sha256, source) = (package.digest.hex().to_owned(), package.url.clone());
            let item = Item {
                sha256,
                index: None,
                size: package.size,
                source,
                licence: None,
                why,
            };
            (apt::package::file_name(package.control()), item)
        };
        Ok(taken.iter().map(item).collect())
    }

    /// Returns the archives; archives from repositories are fetched.
    pub(super) fn fetch_packages(&self, settled: Settled) -> Result<Vec<Archive>, Error> {
        match settled.archives {
            Some(archives) => Ok(archives),
            None => self.fetch_archives(&settled.lock.packages),
        }
    }

    /// Fetches archives that the lock names.
    pub(super) fn fetch_archives(
        &self,
        items: &BTreeMap<String, Item>,
    ) -> Result<Vec<Archive>, Error> {
        let mut artifacts = Vec::new();
        for (name, item) in items {
            let digest = Some(self.digest(name, &item.sha256)?);
            let (name, url) = (name.clone(), item.source.clone());
            artifacts.push(Artifact {
                name,
                url,
                digest,
                size: Some(item.size),
                limit: None,
            });
        }
        let entries = self.fetcher.files(&artifacts)?.into_iter().zip(items);
        let archive = |(entry, (name, item)): (CachedContent, (&String, &Item))| Archive {
            name: name.clone(),
            path: entry.path,
            sha256: item.sha256.clone(),
        };
        Ok(entries.map(archive).collect())
    }

    /// The identity of the request: the packages, the base, the repositories and their keys.
    fn request(&self) -> Result<String, Error> {
        self.request_of(&self.recipe.base, &self.recipe.repositories)
    }

    /// The same for the packages of a release.
    pub(super) fn request_of(
        &self,
        base: &Path,
        repositories: &[Repository],
    ) -> Result<String, Error> {
        let mut request = apt::request(&self.recipe.apt, base)?;
        for repository in repositories {
            let Repository {
                url,
                suite,
                components,
                key,
            } = repository;
            let (key, _) = files::digest(key)?;
            let text = format!("{request}\n{url} {suite} {} {key}\n", components.join(" "));
            request = digest::sha256(text.as_bytes());
        }
        Ok(request)
    }

    fn why_package<'c>(&self, control: &Control, all: impl Iterator<Item = &'c Control>) -> String {
        let name = control.field("Package");
        if self.recipe.apt.iter().any(|wanted| wanted == name) {
            return "asked for".to_owned();
        }
        needed_by(name, all)
    }
}

/// The names of the packages in `all` that depend on a package, in alphabetical order: the packages
/// are in apt's order the first time, and in the lock's order later.
fn needed_by<'c>(name: &str, all: impl Iterator<Item = &'c Control>) -> String {
    let users = all
        .filter(|user| user.needs().contains(&name))
        .map(|user| user.field("Package"));
    let users: Vec<&str> = users.collect::<BTreeSet<_>>().into_iter().collect();
    match users[..] {
        [] => "a newer one than the base has is needed".to_owned(),
        _ => format!("needed by {}", users.join(", ")),
    }
}

fn source(repository: &Repository) -> Result<AptSource, halite_fetch::Error> {
    let Repository {
        url,
        suite,
        components,
        key,
    } = repository;
    Ok(AptSource {
        url: url.clone(),
        suite: suite.clone(),
        components: components.clone(),
        architectures: vec!["amd64".to_owned()],
        keyring: Keyring::open(key)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_needs_a_package_is_said_in_one_order() {
        let control = |name: &str| Control::parse(&format!("Package: {name}\nDepends: libc6\n"));
        let all = [control("nginx"), control("apt"), control("libc6")];
        assert_eq!(
            needed_by("libc6", all.iter()),
            needed_by("libc6", all.iter().rev())
        );
        assert_eq!(
            needed_by("apt", all.iter()),
            "a newer one than the base has is needed"
        );
    }
}
