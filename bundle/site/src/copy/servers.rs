//! The servers from which a bundle is copied.

use halite_durable::Digest;
use halite_errors::chain;
use halite_fetch::{Artifact, Cache, Client, Fetcher, Settings};
use url::Url;

use super::Origin;
use crate::error::Error;

/// The number of files that are requested from a server between two checks whether it still
/// answers: a dead server costs the retries of this many files, not of all.
const BATCH: usize = 16;

/// The largest manifest, in bytes: the only file whose size is not known beforehand, from a server
/// that is not trusted yet.
const MANIFEST: u64 = 256 << 20;

/// A file to fetch: path, digest, size in bytes.
pub(super) type RequestedFile = (String, Digest, Option<u64>);

/// The servers; the first one is used until it fails.
pub(super) struct Servers {
    pub(super) cache: Cache,
    fetcher: Fetcher,
    left: Vec<String>,
    failures: Vec<halite_fetch::Error>,
}

impl Servers {
    pub(super) fn new(origin: &Origin, cache: Cache) -> Result<Self, Error> {
        let largest = origin.settings.largest.or(Some(MANIFEST));
        let settings = Settings {
            largest,
            ..origin.settings.clone()
        };
        let fetcher = Fetcher::new(cache.clone(), Client::new(settings)?);
        let left = origin.servers.iter().rev().cloned().collect();
        Ok(Self {
            cache,
            fetcher,
            left,
            failures: Vec::new(),
        })
    }

    /// Fetches everything into the cache. A server that fails is not used again.
    pub(super) fn fetch(
        &mut self,
        mut wanted: Vec<RequestedFile>,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(), Error> {
        let megabytes = |wanted: &[RequestedFile]| {
            wanted.iter().filter_map(|(_, _, size)| *size).sum::<u64>() / 1_000_000
        };
        let total = megabytes(&wanted);
        while !wanted.is_empty() {
            let Some(server) = self.left.last().cloned() else {
                halite_fetch::Error::all(self.failures.drain(..))?;
                return Err(Error::Incomplete(
                    "there is no server to copy it from".to_owned(),
                ));
            };
            let batch = wanted.get(..wanted.len().min(BATCH)).unwrap_or_default();
            let artifacts = batch
                .iter()
                .map(|wanted| artifact(&server, wanted))
                .collect::<Result<Vec<_>, _>>()?;
            if let Err(error) = self.fetcher.files(&artifacts) {
                progress(&format!("{server} does not serve it: {}", chain(&error)));
                self.failures.push(error);
                self.left.pop();
            }
            wanted.retain(|(_, digest, size)| self.cache.find(digest, *size).is_none());
            if total > 0 {
                progress(&format!(
                    "copied {} of {total} MB",
                    total - megabytes(&wanted)
                ));
            }
        }
        Ok(())
    }
}

fn artifact(server: &str, (path, digest, size): &RequestedFile) -> Result<Artifact, Error> {
    let wrong = |why: &str| halite_fetch::Error::Setting(format!("{server}: {why}"));
    let mut url = Url::parse(server).map_err(|error| wrong(&error.to_string()))?;
    url.path_segments_mut()
        .map_err(|()| wrong("it is not the address of a server"))?
        .pop_if_empty()
        .extend(path.split('/'));
    let (name, url, digest) = (path.clone(), url.into(), Some(digest.clone()));
    Ok(Artifact {
        name,
        url,
        digest,
        size: *size,
        limit: None,
    })
}
