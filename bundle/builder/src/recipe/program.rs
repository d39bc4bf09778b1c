//! Programs that a recipe takes from an address: `{url: "https://…", sha256: …, member:
//! bin/containerd}`.

use std::path::PathBuf;

use halite_durable::{Digest, digest};
use halite_fetch::http;
use serde_json::Value;

use super::download::Download;
use super::network::is_loopback;
use super::reader::Reader;

/// The remedy for the address of a file without TLS.
pub(super) const SAY: &str = "say its sha256";

impl Reader<'_> {
    /// Reads a program: a path, or an address, for which the later path of the file is returned.
    pub(super) fn program(&mut self, path: &str, value: Option<&Value>, why: &str) -> PathBuf {
        let Some(Value::Object(_)) = value else {
            return self.path(path, value);
        };
        let Some(map) = self.map(path, value, &["url", "sha256", "member", "licence"]) else {
            return PathBuf::new();
        };
        let url = self.text(&format!("{path}.url"), map.get("url"));
        let given = |key: &str| map.get(key).map(|value| (format!("{path}.{key}"), value));
        let sha256 = given("sha256").map(|(path, value)| (self.text(&path, Some(value)), path));
        let member = given("member").map(|(path, value)| (self.text(&path, Some(value)), path));
        let licence = given("licence").map(|(path, value)| self.text(&path, Some(value)));
        let sha256 = sha256
            .filter(|(text, _)| !text.is_empty())
            .and_then(|(text, path)| {
                text.parse::<Digest>()
                    .map_err(|why| self.problem(&path, &why))
                    .ok()
            });
        if !url.is_empty() {
            self.address(&format!("{path}.url"), &url, sha256.is_some(), SAY);
        }
        let member = member.map(|(text, path)| {
            if text.starts_with('/') || text.split('/').any(|part| part == "..") {
                self.problem(&path, "must be a path inside the archive");
            }
            text
        });
        let key =
            digest::sha256(format!("{url}\n{}", member.as_deref().unwrap_or_default()).as_bytes());
        let place = self.cache.join("programs").join(&key[..16]);
        let download = Download {
            url,
            sha256,
            member,
            licence,
            path: place.clone(),
            why: why.to_owned(),
        };
        let other = self
            .downloads
            .iter()
            .find(|other| other.url == download.url);
        if other.is_some_and(|other| other.sha256 != download.sha256) {
            self.problem(
                path,
                "another place names this address with another sha256, or with none",
            );
        }
        self.downloads.push(download);
        place
    }

    /// Checks an address: it must use TLS, so that no host on the way can answer for it. Exceptions
    /// are this machine, and content that is known beforehand; `otherwise` is the remedy in the
    /// message.
    pub(super) fn address(&mut self, path: &str, url: &str, known: bool, otherwise: &str) {
        match http::address(url) {
            Err(error) => self.problem(path, &error.to_string()),
            Ok(url) => {
                let here = url.host_str().is_some_and(is_loopback);
                if url.scheme() == "http" && !known && !here {
                    self.problem(
                        path,
                        &format!("is not protected by TLS: write https, or {otherwise}"),
                    );
                }
            }
        }
    }
}
