//! The recipe's settings for reaching other machines.
//!
//! ```yaml
//! registries:                # default: ask the registry itself, over TLS, without a login
//!   docker.io: {mirror: "mirror.example.org/hub"}
//!   # The login is such a file, or one in the form of .netrc.
//!   mirror.example.org: {ca: keys/corporate.pem, login: keys/config.json}
//!   localhost:5000: {plain: true}  # without TLS: this machine alone
//! proxy: http://proxy.example.org:3128 # default: HTTPS_PROXY, HTTP_PROXY and NO_PROXY
//! no-proxy: localhost,.example.org
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use halite_document::source::join;
use halite_fetch::http::Credentials;
use halite_fetch::oci::{Endpoint, Registries};
use halite_fetch::progress::{Meter, Status};
use halite_fetch::{Cache, Client, Error, Fetcher, Settings};

use super::document::{Mirrors, Registry};
use super::reader::RecipeReader;

/// The settings for reaching other machines.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// The settings of single hosts.
    pub hosts: Vec<HostSettings>,
    /// The proxy for all hosts; `None` means the environment's proxy.
    pub proxy: Option<String>,
    /// The hosts that are reached without the proxy, as in `NO_PROXY`.
    pub no_proxy: Option<String>,
}

/// The settings of one host. Its login and authority apply to everything that comes from it; the
/// other fields apply only to images.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostSettings {
    /// `HOST` or `HOST:PORT`.
    pub name: String,
    /// Mirrors that are tried first for its images, in order: `HOST`, `HOST:PORT`, or either with a
    /// path.
    pub mirrors: Vec<String>,
    /// The authority that signed its certificate (PEM), in addition to the system's authorities.
    pub ca: Option<PathBuf>,
    /// `true` if it speaks HTTP without TLS; only a server on this machine may.
    pub plain: bool,
    /// A file with its login: docker's `config.json`, or a file in the form of `.netrc`.
    pub login: Option<PathBuf>,
}

/// The receiver of the progress of downloads.
pub type Watcher = std::sync::Arc<dyn Fn(&Status) + Send + Sync>;

impl Network {
    pub(super) fn read(
        reader: &mut RecipeReader,
        registries: BTreeMap<String, Registry>,
        proxy: Option<String>,
        no_proxy: Option<String>,
    ) -> Self {
        if proxy.as_ref().is_some_and(|proxy| proxy.contains('@')) {
            reader.problem(
                "proxy",
                "contains a login, but recipes are kept where many people can read them",
                "set HTTPS_PROXY instead",
            );
        }
        let mut hosts = Vec::new();
        for (name, registry) in registries {
            if registry.plain && !is_loopback(&name) {
                let path = format!("{}.plain", join("registries", &name));
                reader.problem(
                    &path,
                    "only a server on this machine may be used without TLS",
                    "remove it: a host in between could change the responses and read the login",
                );
            }
            hosts.push(HostSettings {
                name,
                mirrors: match registry.mirror {
                    None => Vec::new(),
                    Some(Mirrors::One(mirror)) => vec![mirror],
                    Some(Mirrors::Several(mirrors)) => mirrors,
                },
                ca: reader.optional(registry.ca.as_ref()),
                plain: registry.plain,
                login: reader.optional(registry.login.as_ref()),
            });
        }
        Self {
            hosts,
            proxy,
            no_proxy,
        }
    }

    /// The files that the settings name, to check that they exist: the path in the document, and
    /// the file.
    pub(super) fn files(&self) -> Vec<(String, PathBuf)> {
        let file = |host: &HostSettings, key: &str, path: &Option<PathBuf>| {
            path.clone()
                .map(|path| (format!("{}.{key}", join("registries", &host.name)), path))
        };
        self.hosts
            .iter()
            .flat_map(|host| [file(host, "ca", &host.ca), file(host, "login", &host.login)])
            .flatten()
            .collect()
    }

    /// Makes a fetcher that stores downloads in a cache.
    ///
    /// # Errors
    /// A login or a certificate cannot be read, or the proxy's address is invalid.
    pub(crate) fn fetcher(&self, cache: Cache, watcher: Option<Watcher>) -> Result<Fetcher, Error> {
        let settings = Settings {
            authorities: self
                .hosts
                .iter()
                .filter_map(|host| host.ca.clone())
                .collect(),
            proxy: self.proxy.clone(),
            no_proxy: self.no_proxy.clone(),
            credentials: self.credentials()?,
            ..Settings::default()
        };
        let fetcher = Fetcher::new(cache, Client::new(settings)?);
        Ok(match watcher {
            Some(watcher) => fetcher.watched(Meter::new(Box::new(move |status| watcher(status)))),
            None => fetcher,
        })
    }

    /// Makes the settings of registries. Offline, no registry is contacted and no login is read.
    ///
    /// # Errors
    /// A login cannot be read.
    pub(crate) fn registries(&self, offline: bool) -> Result<Registries, Error> {
        if offline {
            return Ok(Registries::default());
        }
        let mut registries = Registries::new(self.credentials()?);
        for host in &self.hosts {
            if host.plain {
                registries = registries.plain(&host.name);
            }
            for address in &host.mirrors {
                let name = address.split('/').next().unwrap_or_default();
                let plain = self
                    .hosts
                    .iter()
                    .any(|host| host.plain && host.name == name);
                registries = registries.mirror(
                    &host.name,
                    Endpoint {
                        address: address.clone(),
                        plain,
                    },
                );
            }
        }
        Ok(registries)
    }

    fn credentials(&self) -> Result<Credentials, Error> {
        let (mut found, mut errors) = (Credentials::default(), Vec::new());
        for host in &self.hosts {
            let Some(file) = &host.login else { continue };
            match login(file, &host.name) {
                Ok(secret) => found = found.with(&host.name, secret),
                Err(error) => errors.push(error),
            }
        }
        Error::all(errors)?;
        Ok(found)
    }
}

/// Reads the login of one host from a file; logins of other hosts are ignored.
fn login(file: &Path, host: &str) -> Result<halite_fetch::http::Secret, Error> {
    let bytes = fs::read(file).map_err(Error::file("read", file))?;
    let credentials = match bytes.trim_ascii_start().first() {
        Some(b'{') => Credentials::docker(file)?,
        _ => Credentials::netrc(file)?,
    };
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) => (name, port.parse().ok()),
        None => (host, None),
    };
    let secret = credentials.find(name, port).cloned();
    secret.ok_or_else(|| {
        Error::content(
            file.to_string_lossy(),
            format!("it contains no login for {host}"),
        )
    })
}

pub(super) fn is_host(text: &str) -> bool {
    let (name, port) = match text.rsplit_once(':') {
        Some((name, port)) if !port.contains(']') => (name, Some(port)),
        _ => (text, None),
    };
    let inner = |c: char| c.is_ascii_alphanumeric() || ".-:[]".contains(c);
    !name.is_empty()
        && name.chars().all(inner)
        && (name.starts_with('[') || !name.contains(':'))
        && port.is_none_or(|port| port.parse::<u16>().is_ok())
}

/// Returns `true` if a host (with or without a port) is this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let name = name.trim_matches(['[', ']']);
    name == "localhost"
        || name
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_this_machine_alone() {
        for host in [
            "localhost",
            "localhost:5000",
            "127.0.0.1:80",
            "[::1]:80",
            "[::1]",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "localhost.example.org",
            "10.0.0.1",
            "registry.k8s.io:443",
            "::2",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn hosts_have_a_port_or_none() {
        for host in [
            "a.example",
            "a.example:5000",
            "localhost",
            "[::1]",
            "[::1]:80",
        ] {
            assert!(is_host(host), "{host}");
        }
        for text in ["", "https:", "https://a", "a:b", "a/b", "::1", ":80"] {
            assert!(!is_host(text), "{text}");
        }
    }

    #[test]
    fn the_login_of_the_host_is_taken_and_no_other() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            path
        };
        let netrc = write(
            "netrc",
            "machine a.example login u password p\nmachine b.example:5000 login v password q\n",
        );
        assert_eq!(login(&netrc, "b.example:5000").unwrap().user, "v");
        assert_eq!(login(&netrc, "a.example:99").unwrap().user, "u");
        let docker = write(
            "config.json",
            r#"{"auths": {"c.example": {"username": "w", "password": "r"}}}"#,
        );
        assert_eq!(login(&docker, "c.example").unwrap().password, "r");
        let error = login(&docker, "a.example").unwrap_err().to_string();
        assert!(
            error.ends_with("config.json: it contains no login for a.example"),
            "{error}"
        );
        let network = Network {
            hosts: vec![HostSettings {
                name: "d.example".into(),
                login: Some(netrc),
                ..HostSettings::default()
            }],
            ..Network::default()
        };
        assert!(network.registries(false).is_err() && network.registries(true).is_ok());
    }
}
