//! The servers that provide the images of a registry.

use std::collections::BTreeMap;

use url::Url;

use crate::error::Error;
use crate::http::Credentials;

/// One server with images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// `HOST`, `HOST:PORT`, or either with a path that is prepended to the names of images.
    pub address: String,
    /// `true` if it speaks HTTP without TLS. Logins are sent to it nevertheless.
    pub plain: bool,
}

/// The configuration of registries. Requests for a registry without one go to it directly, over
/// TLS.
#[derive(Debug, Clone, Default)]
pub struct Registries {
    mirrors: BTreeMap<String, Vec<Endpoint>>,
    plain: Vec<String>,
    credentials: Credentials,
}

impl Registries {
    /// Registries with these logins.
    #[must_use]
    pub fn new(credentials: Credentials) -> Self {
        Self {
            credentials,
            ..Self::default()
        }
    }

    /// Adds a mirror that is tried before the registry itself. Several mirrors are tried in the
    /// order in which they were added.
    #[must_use]
    pub fn mirror(mut self, registry: &str, mirror: Endpoint) -> Self {
        self.mirrors
            .entry(registry.to_owned())
            .or_default()
            .push(mirror);
        self
    }

    /// Marks a registry that speaks HTTP without TLS.
    #[must_use]
    pub fn plain(mut self, registry: &str) -> Self {
        self.plain.push(registry.to_owned());
        self
    }

    pub(super) fn credentials(&self) -> &Credentials {
        &self.credentials
    }

    /// The servers for images of a registry, in the order of the requests.
    pub(super) fn endpoints(&self, registry: &str) -> Vec<Endpoint> {
        let mut endpoints = self.mirrors.get(registry).cloned().unwrap_or_default();
        // docker.io is the only registry whose name differs from its server's name.
        let address = if registry == "docker.io" {
            "registry-1.docker.io"
        } else {
            registry
        }
        .to_owned();
        endpoints.push(Endpoint {
            address,
            plain: self.plain.iter().any(|plain| plain == registry),
        });
        endpoints
    }
}

impl Endpoint {
    /// The base URL, `https://HOST/v2/PATH/`.
    pub(super) fn base(&self) -> Result<Url, Error> {
        let (host, path) = self.address.split_once('/').unwrap_or((&self.address, ""));
        let scheme = if self.plain { "http" } else { "https" };
        let path = path.trim_matches('/');
        let text = format!(
            "{scheme}://{host}/v2/{path}{}",
            if path.is_empty() { "" } else { "/" }
        );
        let url = Url::parse(&text)
            .ok()
            .filter(|url| url.username().is_empty() && url.query().is_none());
        url.ok_or_else(|| {
            Error::Setting(format!(
                "{host:?} is not a server of images; write HOST, HOST:PORT or either/PATH"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mirrors_come_before_the_registry() {
        let mirror = Endpoint {
            address: "m.example:5000/hub".into(),
            plain: true,
        };
        let registries = Registries::default()
            .mirror("docker.io", mirror)
            .plain("p.example");
        let bases = |registry: &str| {
            let endpoints = registries.endpoints(registry);
            endpoints
                .iter()
                .map(|endpoint| endpoint.base().unwrap().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            bases("docker.io"),
            [
                "http://m.example:5000/v2/hub/",
                "https://registry-1.docker.io/v2/"
            ]
        );
        assert_eq!(bases("p.example"), ["http://p.example/v2/"]);
        assert_eq!(bases("quay.io"), ["https://quay.io/v2/"]);
        assert!(
            Endpoint {
                address: "u:secret@h".into(),
                plain: false
            }
            .base()
            .is_err()
        );
    }
}
