//! Programs that a recipe takes from an address: `{url: "https://…", sha256: …, member:
//! bin/containerd}`.

use std::path::PathBuf;

use halite_durable::{Digest, digest};
use halite_errors::chain;
use halite_fetch::http;

use super::document::Program;
use super::download::Download;
use super::network::is_loopback;
use super::reader::RecipeReader;

/// The remedy for the address of a file without TLS.
pub(super) const WITH_DIGEST: &str = "state its sha256";

impl RecipeReader<'_> {
    /// Reads a program: a path, or an address, for which the later path of the file is returned.
    pub(super) fn program(&mut self, path: &str, program: Program, why: String) -> PathBuf {
        let address = match program {
            Program::Path(file) => return self.path(&file),
            Program::Address(address) => address,
        };
        let sha256 = self.digest(&format!("{path}.sha256"), address.sha256.as_deref());
        self.address(
            &format!("{path}.url"),
            &address.url,
            sha256.is_some(),
            WITH_DIGEST,
        );
        let member = address.member;
        let named = format!("{}\n{}", address.url, member.as_deref().unwrap_or_default());
        let key = digest::sha256(named.as_bytes());
        let place = self.cache.join("programs").join(&key[..16]);
        let download = Download {
            url: address.url,
            sha256,
            member,
            licence: address.licence,
            path: place.clone(),
            why,
        };
        let other = self
            .downloads
            .iter()
            .find(|other| other.url == download.url);
        if other.is_some_and(|other| other.sha256 != download.sha256) {
            self.problem(
                path,
                "another place names this address with another sha256, or without one",
                "write the same sha256 at each place of the address",
            );
        }
        self.downloads.push(download);
        place
    }

    /// Reads a SHA-256.
    pub(super) fn digest(&mut self, path: &str, text: Option<&str>) -> Option<Digest> {
        text?
            .parse::<Digest>()
            .map_err(|why| self.problem(path, why.to_string(), ""))
            .ok()
    }

    /// Checks an address: it must use TLS, so that no host in between can answer in its place.
    /// Exceptions are this machine, and content that is known beforehand; `otherwise` is the remedy
    /// in the message.
    pub(super) fn address(&mut self, path: &str, url: &str, known: bool, otherwise: &str) {
        match http::address(url) {
            Err(error) => self.problem(path, chain(&error), ""),
            Ok(url) => {
                let here = url.host_str().is_some_and(is_loopback);
                if url.scheme() == "http" && !known && !here {
                    self.problem(
                        path,
                        "is not protected by TLS",
                        format!("write https, or {otherwise}"),
                    );
                }
            }
        }
    }
}
