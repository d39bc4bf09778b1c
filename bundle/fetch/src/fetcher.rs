//! The fetcher: a cache with a client, or without one when offline.

use std::sync::Arc;

use halite_durable::Digest;

use crate::cache::{Cache, CachedContent};
use crate::error::Error;
use crate::http::{Client, Target, address};
use crate::parallel;
use crate::progress::Meter;

/// A file to fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Its name in reports and progress.
    pub name: String,
    /// Its URL.
    pub url: String,
    /// Its digest, if it is known. Without one, the file is fetched again each time and its digest
    /// is returned.
    pub digest: Option<Digest>,
    /// Its size in bytes, if it is known.
    pub size: Option<u64>,
    /// The largest number of bytes to accept, if the size is not known.
    pub limit: Option<u64>,
}

/// Fetches files into a cache; offline, it only finds them there. Cloning is cheap.
#[derive(Debug, Clone)]
pub struct Fetcher {
    cache: Cache,
    client: Option<Client>,
    meter: Option<Arc<Meter>>,
}

impl Fetcher {
    /// A fetcher with network.
    #[must_use]
    pub fn new(cache: Cache, client: Client) -> Self {
        Self {
            cache,
            client: Some(client),
            meter: None,
        }
    }

    /// A fetcher without network: a file that is not in the cache is missing.
    #[must_use]
    pub fn offline(cache: Cache) -> Self {
        Self {
            cache,
            client: None,
            meter: None,
        }
    }

    /// Sets the watcher that receives progress.
    #[must_use]
    pub fn watched(mut self, meter: Meter) -> Self {
        self.meter = Some(Arc::new(meter));
        self
    }

    /// Its cache.
    #[must_use]
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Fetches files, several in parallel; the results are in the order of the files.
    ///
    /// # Errors
    /// All errors of all files. Files that were fetched are in the cache nevertheless.
    pub fn files(&self, artifacts: &[Artifact]) -> Result<Vec<CachedContent>, Error> {
        self.expect(
            artifacts
                .iter()
                .map(|artifact| (artifact.name.as_str(), artifact.size)),
        );
        parallel::each(artifacts, self.threads(), |artifact| self.file(artifact))
    }

    fn file(&self, artifact: &Artifact) -> Result<CachedContent, Error> {
        let Some(client) = &self.client else {
            let missing = |about: &str| Error::Missing(vec![format!("{} ({about}", artifact.name)]);
            let Some(digest) = &artifact.digest else {
                return Err(missing("digest unknown)"));
            };
            let found = self.cache.find(digest, artifact.size).is_some();
            let damaged = if found {
                ", which was damaged in the cache"
            } else {
                ""
            };
            let sound = self.cache.sound(digest, artifact.size)?;
            return sound.ok_or_else(|| missing(&format!("{}){damaged}", digest.oci())));
        };
        let target = Target {
            url: address(&artifact.url)?,
            name: &artifact.name,
            digest: artifact.digest.as_ref(),
            size: artifact.size,
            limit: artifact.limit,
            login: client.settings(),
        };
        client.fetch(&target, &self.cache, self.meter())
    }

    /// Returns whether it has no network.
    #[must_use]
    pub fn is_offline(&self) -> bool {
        self.client.is_none()
    }

    /// The client; `None` without network.
    #[must_use]
    pub fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }

    /// The client, for files that cannot be found by digest.
    ///
    /// # Errors
    /// There is no network, so `what` is missing.
    pub fn online(&self, what: &str) -> Result<&Client, Error> {
        self.client
            .as_ref()
            .ok_or_else(|| Error::Missing(vec![what.to_owned()]))
    }

    /// The progress meter, if there is one.
    #[must_use]
    pub fn meter(&self) -> Option<&Meter> {
        self.meter.as_deref()
    }

    /// The number of simultaneous transfers.
    #[must_use]
    pub fn threads(&self) -> usize {
        self.client
            .as_ref()
            .map_or(1, |client| client.settings().threads)
    }

    /// Announces files to be fetched, so that the estimated time includes all of them.
    pub fn expect<'a>(&self, artifacts: impl Iterator<Item = (&'a str, Option<u64>)>) {
        if let Some(meter) = self.meter() {
            artifacts.for_each(|(name, size)| meter.expect(name, size));
        }
    }
}
