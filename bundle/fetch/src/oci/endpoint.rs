//! Requests to the servers of a registry, one after the other.

use std::sync::atomic::{AtomicBool, Ordering};

use halite_durable::Digest;
use halite_errors::chain;
use ureq::http::header;
use url::Url;

use super::login::Session;
use super::{Registries, manifest};
use crate::cache::{Cache, CachedContent};
use crate::error::Error;
use crate::http::{Client, Reply, Request, Target, host};
use crate::image_ref::ImageRef;
use crate::progress::Meter;

/// The largest manifest in bytes; registries allow 4 MiB.
const LIMIT: u64 = 4 << 20;

/// The servers of one repository.
#[derive(Debug)]
pub struct Repository {
    servers: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    base: Url,
    session: Session,
    /// `true` if it could not be reached; it is then not tried again for each layer.
    down: AtomicBool,
}

impl Repository {
    pub fn new(registries: &Registries, reference: &ImageRef) -> Result<Self, Error> {
        let endpoints = registries.endpoints(&reference.registry);
        let last = endpoints.len() - 1;
        let server = |(position, endpoint): (usize, super::Endpoint)| {
            let base = endpoint.base()?;
            let url = base.join(&format!("{}/", reference.repository));
            let url = url.map_err(|error| no_url(&base, error))?;
            let credentials = registries.credentials();
            let mut secret = credentials.find(
                base.host_str().unwrap_or_default(),
                base.port_or_known_default(),
            );
            // The login for docker.io is under that name, although its server has another.
            if position == last && secret.is_none() {
                secret = credentials.find(&reference.registry, None);
            }
            let name = url
                .path()
                .trim_start_matches("/v2/")
                .trim_end_matches('/')
                .to_owned();
            let session = Session::new(&url, &name, secret.cloned());
            Ok(Server {
                base: url,
                session,
                down: AtomicBool::new(false),
            })
        };
        let servers = endpoints
            .into_iter()
            .enumerate()
            .map(server)
            .collect::<Result<_, Error>>()?;
        Ok(Self { servers })
    }

    /// Fetches a manifest by tag or digest.
    pub fn manifest(&self, client: &Client, name: &str) -> Result<Reply, Error> {
        self.each(|server| {
            let url = server.url("manifests", name)?;
            let headers = vec![(header::ACCEPT, manifest::ACCEPT.to_owned())];
            client.reply(
                &Request {
                    url,
                    headers,
                    login: &server.session,
                },
                LIMIT,
            )
        })
    }

    /// Fetches a blob into the cache.
    pub fn blob(
        &self,
        client: &Client,
        cache: &Cache,
        meter: Option<&Meter>,
        (name, digest, size): (&str, &Digest, u64),
    ) -> Result<CachedContent, Error> {
        self.each(|server| {
            let url = server.url("blobs", &digest.oci())?;
            let (digest, size) = (Some(digest), Some(size));
            let target = Target {
                url,
                name,
                digest,
                size,
                limit: None,
                login: &server.session,
            };
            client.fetch(&target, cache, meter)
        })
    }

    /// The first successful response of any server, or the errors of all.
    fn each<T>(&self, ask: impl Fn(&Server) -> Result<T, Error>) -> Result<T, Error> {
        let mut errors = Vec::new();
        let last = self.servers.len() - 1;
        for (position, server) in self.servers.iter().enumerate() {
            // The registry itself is always tried: its answer is authoritative.
            if position != last && server.down.load(Ordering::Relaxed) {
                continue;
            }
            match ask(server) {
                Ok(answer) => return Ok(answer),
                // Trying another server would not help.
                Err(error @ (Error::File { .. } | Error::Setting(_))) => return Err(error),
                Err(error) => {
                    if position != last {
                        tracing::warn!(
                            "the mirror {} failed: {}",
                            host(&server.base),
                            chain(&error)
                        );
                    }
                    if matches!(error, Error::Server { .. }) {
                        server.down.store(true, Ordering::Relaxed);
                    }
                    errors.push(error);
                }
            }
        }
        Error::all(errors)?;
        Err(Error::Setting("no server is configured".into()))
    }
}

fn no_url(base: &Url, error: url::ParseError) -> Error {
    Error::server_because(base.as_str(), "cannot make a URL of the repository", error)
}

impl Server {
    fn url(&self, kind: &str, name: &str) -> Result<Url, Error> {
        self.base
            .join(&format!("{kind}/{name}"))
            .map_err(|error| no_url(&self.base, error))
    }
}
