//! The target of a write loop: ConfigMaps of the Kubernetes API, or keys of etcd, over HTTPS with a
//! client certificate.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::{
    Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, TlsProvider, parse_pem,
};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

/// Limit of one request, from the connection to the end of the answer.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The kind of written objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteKind {
    /// ConfigMaps in that namespace, one for each write.
    Kubernetes {
        /// The namespace, which must exist.
        namespace: String,
    },
    /// Keys, one for each write.
    Etcd,
}

/// Files with a client's identity, in PEM, by their paths on the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// The authority that signed the server's certificate.
    pub authority: PathBuf,
    /// The client's certificate.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
}

/// The address to which the name of a target resolves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Always this one, with the port.
    Fixed(SocketAddr),
    /// The address of the name in this file, in the form of `/etc/hosts`, read for each new
    /// connection.
    Hosts(PathBuf),
}

/// The target and the identity of a write loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The kind of written objects.
    pub kind: WriteKind,
    /// `https://api.demo.internal:6443`; the certificate of the server has this name.
    pub url: String,
    /// The address to which the name resolves; nothing else resolves names. `None` if the URL has
    /// an address.
    pub address: Option<Address>,
    /// Prefix of the names, unique to the loop: `PREFIX-0`, `PREFIX-1`, …
    pub prefix: String,
    /// The client; `None` for a plain etcd.
    pub identity: Option<Identity>,
}

/// A connection to a target. It is kept from write to write until it is dropped.
#[derive(Debug)]
pub struct Connection {
    target: Target,
    tls: Option<TlsConfig>,
    agent: Agent,
}

impl Connection {
    /// Reads the identity at once: its files may disappear while the loop runs. Connects with the
    /// first write.
    pub fn new(target: Target) -> Result<Self> {
        let tls = target.identity.as_ref().map(tls).transpose()?;
        Ok(Self {
            agent: agent(&target, tls.as_ref()),
            target,
            tls,
        })
    }

    /// Drops the connection; the next write makes another.
    pub fn reconnect(&mut self) {
        self.agent = agent(&self.target, self.tls.as_ref());
    }

    /// Makes one write; succeeds if it was acknowledged.
    pub fn write(&self, number: u64) -> Result<()> {
        let (path, body) = request(&self.target.kind, &self.target.prefix, number);
        let url = format!("{}{path}", self.target.url);
        let mut response = self
            .agent
            .post(&url)
            .header("content-type", "application/json")
            .send(body.to_string())?;
        // Read completely, so that the connection can be reused.
        let text = response.body_mut().read_to_string()?;
        if !response.status().is_success() {
            let message = serde_json::from_str::<Value>(&text).ok();
            let message = message.and_then(|answer| Some(answer["message"].as_str()?.to_owned()));
            bail!("{}: {}", response.status(), message.unwrap_or(text));
        }
        Ok(())
    }
}

/// Path and body of one write.
fn request(kind: &WriteKind, prefix: &str, number: u64) -> (String, Value) {
    let name = format!("{prefix}-{number}");
    match kind {
        WriteKind::Kubernetes { namespace } => (
            format!("/api/v1/namespaces/{namespace}/configmaps"),
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}),
        ),
        // etcd's gateway for clients without gRPC.
        WriteKind::Etcd => (
            "/v3/kv/put".to_owned(),
            json!({"key": STANDARD.encode(&name), "value": STANDARD.encode(number.to_string())}),
        ),
    }
}

impl Resolver for Address {
    fn resolve(
        &self,
        uri: &Uri,
        _: &Config,
        _: NextTimeout,
    ) -> std::result::Result<ResolvedSocketAddrs, ureq::Error> {
        let address = match self {
            Self::Fixed(address) => *address,
            Self::Hosts(file) => {
                let text = std::fs::read_to_string(file)?;
                let found = entry(&text, uri.host().unwrap_or_default());
                let address = found.ok_or(ureq::Error::HostNotFound)?;
                (address, uri.port_u16().unwrap_or(443)).into()
            }
        };
        let mut addresses = self.empty();
        addresses.push(address);
        Ok(addresses)
    }
}

/// The address of a name in the text of a hosts file.
fn entry(text: &str, name: &str) -> Option<IpAddr> {
    text.lines().find_map(|line| {
        let mut words = line.split('#').next()?.split_whitespace();
        let address = words.next()?;
        words
            .any(|word| word == name)
            .then(|| address.parse())?
            .ok()
    })
}

fn agent(target: &Target, tls: Option<&TlsConfig>) -> Agent {
    let mut config = Agent::config_builder()
        .timeout_global(Some(TIMEOUT))
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None);
    if let Some(tls) = tls {
        config = config.tls_config(tls.clone());
    }
    let config = config.build();
    match &target.address {
        Some(address) => Agent::with_parts(config, DefaultConnector::default(), address.clone()),
        None => config.into(),
    }
}

fn tls(identity: &Identity) -> Result<TlsConfig> {
    let key = read(&identity.key)?;
    let key = PrivateKey::from_pem(&key)
        .with_context(|| format!("{} is not a PEM key", identity.key.display()))?;
    let client = ClientCert::new_with_certs(&certificates(&identity.certificate)?, key);
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .root_certs(RootCerts::from(certificates(&identity.authority)?))
        .client_cert(Some(client))
        .build())
}

fn certificates(file: &Path) -> Result<Vec<Certificate<'static>>> {
    let pem = read(file)?;
    let mut found = Vec::new();
    for item in parse_pem(&pem) {
        if let PemItem::Certificate(certificate) =
            item.with_context(|| format!("{} is not PEM", file.display()))?
        {
            found.push(certificate);
        }
    }
    Ok(found)
}

fn read(file: &Path) -> Result<Vec<u8>> {
    std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_resolves_by_the_hosts_file() {
        let text = "127.0.0.1 localhost\n# api.demo.internal\n10.10.0.100\tapi.demo.internal api # Halite\n";
        let found = |name: &str| entry(text, name).map(|address| address.to_string());
        assert_eq!(found("api.demo.internal").as_deref(), Some("10.10.0.100"));
        assert_eq!(found("localhost").as_deref(), Some("127.0.0.1"));
        assert_eq!(found("demo.internal"), None);
        assert_eq!(found("Halite"), None);
    }

    #[test]
    fn each_write_has_a_name_of_its_own() {
        let kind = WriteKind::Kubernetes {
            namespace: "halite-test".to_owned(),
        };
        let (path, body) = request(&kind, "vip", 7);
        assert_eq!(path, "/api/v1/namespaces/halite-test/configmaps");
        assert_eq!(body["metadata"]["name"], "vip-7");
        let (path, body) = request(&WriteKind::Etcd, "vip", 7);
        assert_eq!(path, "/v3/kv/put");
        // base64 of "vip-7" and of "7".
        assert_eq!(body, json!({"key": "dmlwLTc=", "value": "Nw=="}));
    }
}
