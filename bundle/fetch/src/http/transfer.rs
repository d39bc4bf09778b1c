//! Transfers: a large response into the cache, resumed after an interruption.

use std::io::Read as _;

use halite_durable::Digest;
use ureq::Body;
use ureq::http::{HeaderMap, Response, StatusCode, header};
use url::Url;

use super::client::shown;
use super::headers::{length, text};
use super::retry::{Failure, RetryChance};
use super::{Client, Login, Request, retry};
use crate::cache::{Begun, Cache, CachedContent, Origin, Partial};
use crate::error::Error;
use crate::progress::Meter;

/// Size of one read in bytes.
const CHUNK: usize = 128 << 10;

/// Bytes that count as progress: an attempt that fetched this much resets the count of retries.
const PROGRESS: u64 = 64 << 10;

/// A file to fetch.
pub(crate) struct Target<'a> {
    /// Its URL.
    pub url: Url,
    /// Its name in progress reports.
    pub name: &'a str,
    /// Its digest, if known beforehand.
    pub digest: Option<&'a Digest>,
    /// Its size in bytes, if known beforehand.
    pub size: Option<u64>,
    /// The largest size in bytes, if the size is not known: a larger file is cancelled and removed.
    pub limit: Option<u64>,
    /// The login to use.
    pub login: &'a dyn Login,
}

impl Client {
    /// Fetches a file into the cache unless it already exists there.
    pub(crate) fn fetch(
        &self,
        target: &Target,
        cache: &Cache,
        meter: Option<&Meter>,
    ) -> Result<CachedContent, Error> {
        let mut partial = match target.digest {
            Some(digest) => match cache.begin(digest, target.size)? {
                Begun::There(entry) => {
                    if let Some(meter) = meter {
                        meter.at(target.name, entry.size, Some(entry.size), 0);
                    }
                    return Ok(entry);
                }
                Begun::Partial(partial) => partial,
            },
            None => cache.begin_unknown(target.url.as_str())?,
        };
        // Leftovers of an earlier run may belong to different content; bytes from this run do not.
        let mut inherited = partial.len() > 0;
        let transfer = Transfer {
            client: self,
            target,
            meter,
        };
        let mut highest = partial.len();
        let result = retry::until(self.settings(), || {
            let result = transfer.attempt(&mut partial, &mut inherited);
            let further = partial.len() >= highest.saturating_add(PROGRESS);
            highest = highest.max(partial.len());
            result.map_err(|failure| (failure, further))
        });
        match result {
            Ok(()) => partial.keep(cache),
            Err(error) => {
                let wrong = matches!(
                    error,
                    Error::Digest { .. } | Error::Size { .. } | Error::Limit { .. }
                );
                if wrong || partial.len() == 0 {
                    partial.abandon();
                }
                Err(error)
            }
        }
    }
}

struct Transfer<'a> {
    client: &'a Client,
    target: &'a Target<'a>,
    meter: Option<&'a Meter>,
}

impl Transfer<'_> {
    /// Makes one attempt; received bytes stay in the partial file.
    fn attempt(&self, partial: &mut Partial, inherited: &mut bool) -> Result<(), Failure> {
        if self
            .target
            .size
            .is_none_or(|size| size != partial.len() || size == 0)
        {
            self.receive(partial, inherited)?;
        }
        let url = shown(&self.target.url);
        if let Some(expected) = self.target.size.filter(|size| *size != partial.len()) {
            return Err(Error::Size {
                url,
                expected,
                found: partial.len().to_string(),
            }
            .into());
        }
        let found = partial.digest();
        match self.target.digest.filter(|expected| **expected != found) {
            None => Ok(()),
            // The beginning belonged to different content.
            Some(_) if *inherited => self.restart(
                partial,
                inherited,
                "the rest did not belong to the existing part",
            ),
            Some(expected) => Err(Error::Digest {
                url,
                expected: expected.clone(),
                found,
            }
            .into()),
        }
    }

    /// Discards the existing bytes, and lets the next attempt start at once.
    fn restart(
        &self,
        partial: &mut Partial,
        inherited: &mut bool,
        why: &str,
    ) -> Result<(), Failure> {
        *inherited = false;
        partial.restart()?;
        Err(Failure {
            error: Error::server(shown(&self.target.url), why),
            again: RetryChance::Now,
        })
    }

    fn receive(&self, partial: &mut Partial, inherited: &mut bool) -> Result<(), Failure> {
        let url = &self.target.url;
        let mut headers = Vec::new();
        let from_here = partial.origin().url == shown(url);
        let mut validator = partial.origin().validator.clone().filter(|_| from_here);
        // Without a digest, only the server can decide whether the rest still belongs to the
        // beginning.
        if partial.len() > 0 && self.target.digest.is_none() && validator.is_none() {
            partial.restart()?;
        }
        if partial.len() > 0 {
            headers.push((header::RANGE, format!("bytes={}-", partial.len())));
            headers.extend(
                validator
                    .clone()
                    .map(|validator| (header::IF_RANGE, validator)),
            );
        }
        let request = Request {
            url: url.clone(),
            headers,
            login: self.target.login,
        };
        let mut response = self.client.send(&request)?;
        match response.status() {
            StatusCode::PARTIAL_CONTENT if partial.len() > 0 => {
                if range_start(response.headers()) != Some(partial.len()) {
                    return self.restart(
                        partial,
                        inherited,
                        "it sent another range than requested",
                    );
                }
                // Not every server honours `If-Range`.
                let known = partial.origin().total;
                let changed = known
                    .zip(range_total(response.headers()))
                    .is_some_and(|(was, is)| was != is);
                if changed
                    || validator
                        .as_deref()
                        .is_some_and(|validator| !agrees(validator, response.headers()))
                {
                    return self.restart(
                        partial,
                        inherited,
                        "the file changed during the transfer",
                    );
                }
            }
            StatusCode::OK => {
                partial.restart()?;
                *inherited = false;
                validator = None;
            }
            StatusCode::RANGE_NOT_SATISFIABLE if partial.len() > 0 => {
                return self.restart(
                    partial,
                    inherited,
                    "the existing part is longer than its file",
                );
            }
            _ => return Err(self.client.status(url, response)),
        }
        let rest = length(&response);
        let total = self
            .target
            .size
            .or_else(|| rest.map(|rest| rest + partial.len()));
        if let Some((expected, found)) = self.target.size.zip(rest.map(|rest| rest + partial.len()))
            && expected != found
        {
            return match *inherited {
                true => self.restart(partial, inherited, "its file has another size"),
                false => Err(Error::Size {
                    url: shown(url),
                    expected,
                    found: found.to_string(),
                }
                .into()),
            };
        }
        self.bounded(total.unwrap_or_default())?;
        let validator = strong_validator(response.headers()).or(validator);
        partial.set_origin(Origin {
            url: shown(url),
            validator,
            total,
        })?;
        self.stream(&mut response, partial, total)
    }

    fn stream(
        &self,
        response: &mut Response<Body>,
        partial: &mut Partial,
        total: Option<u64>,
    ) -> Result<(), Failure> {
        let url = || shown(&self.target.url);
        let mut reader = response.body_mut().with_config().limit(u64::MAX).reader();
        let mut buffer = vec![0; CHUNK];
        self.tell(partial, total, 0);
        loop {
            let count = match reader.read(&mut buffer) {
                Ok(count) => count,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(self.client.broken(&url(), error)),
            };
            if count == 0 {
                break;
            }
            if let Some(expected) = self.target.size
                && partial.len() + count as u64 > expected
            {
                return Err(Error::Size {
                    url: url(),
                    expected,
                    found: "more".into(),
                }
                .into());
            }
            self.bounded(partial.len() + count as u64)?;
            partial.write(&buffer[..count])?;
            self.tell(partial, total, count as u64);
        }
        match total {
            // A response without a length ends with its connection, whatever the reason.
            Some(total) if partial.len() < total => {
                let message = format!(
                    "the connection broke off after {} of {total} bytes",
                    partial.len()
                );
                Err(Failure::again(Error::server(url(), message)))
            }
            _ => Ok(()),
        }
    }

    /// Limits the size of a response. A server that never ends would fill the disk, so both the
    /// announced and the received size are checked. If the size is known, it is the limit.
    fn bounded(&self, size: u64) -> Result<(), Error> {
        let limits = [self.target.limit, self.client.settings().largest];
        let limit = limits.into_iter().flatten().min();
        match limit.filter(|limit| self.target.size.is_none() && size > *limit) {
            None => Ok(()),
            Some(limit) => Err(Error::Limit {
                url: shown(&self.target.url),
                limit,
            }),
        }
    }

    fn tell(&self, partial: &Partial, total: Option<u64>, new: u64) {
        if let Some(meter) = self.meter {
            meter.at(self.target.name, partial.len(), total, new);
        }
    }
}

/// The first byte of a partial response: `bytes 500-999/1000`.
fn range_start(headers: &HeaderMap) -> Option<u64> {
    text(headers, header::CONTENT_RANGE)?
        .strip_prefix("bytes ")?
        .split_once('-')?
        .0
        .trim()
        .parse()
        .ok()
}

/// The size of the whole file in a partial response; `None` if the server does not know it (`*`).
fn range_total(headers: &HeaderMap) -> Option<u64> {
    text(headers, header::CONTENT_RANGE)?
        .rsplit_once('/')?
        .1
        .trim()
        .parse()
        .ok()
}

/// Returns whether a partial response belongs to the same version as a validator. A response with a
/// tag repeats it (RFC 9110, 15.3.7); a date may be omitted.
fn agrees(validator: &str, headers: &HeaderMap) -> bool {
    match validator.starts_with('"') {
        true => text(headers, header::ETAG) == Some(validator),
        false => text(headers, header::LAST_MODIFIED).is_none_or(|date| date == validator),
    }
}

/// The validator for `If-Range` (RFC 9110, 13.1.5), which excludes weak tags.
fn strong_validator(headers: &HeaderMap) -> Option<String> {
    let tag = text(headers, header::ETAG).filter(|tag| tag.starts_with('"'));
    tag.or_else(|| text(headers, header::LAST_MODIFIED))
        .map(str::to_owned)
}
