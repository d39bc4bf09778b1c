//! The configuration of the master, `/etc/halite/master.yaml`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use halite_proto::identity::{IdentityError, check_name};
use ipnet::IpNet;
use serde::Deserialize;

/// The content of the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The name of the cluster, as in the cluster document; part of every identity.
    pub cluster: String,
    /// The address on which minions and operators connect.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// The directory of the daemon's own files: store, CAs, identity.
    #[serde(default = "default_state_dir")]
    pub state_dir: PathBuf,
    /// The directory of the operator's documents: `cluster.yaml`, `nodes/`, `custom/`.
    #[serde(default = "default_config_dir")]
    pub config_dir: PathBuf,
    /// The directory of the site's bundles, each in a directory named after its version. The
    /// cluster document records which one is in use.
    #[serde(default = "default_bundles")]
    pub bundles: PathBuf,
    /// The bundle of a cluster whose document does not record one.
    #[serde(default)]
    pub bundle: Option<PathBuf>,
    /// The addresses at which hosts reach this master; enrolment commands name the first one.
    pub advertise: Vec<IpAddr>,
    /// The address on which metrics are served, in plain HTTP.
    #[serde(default = "default_metrics")]
    pub metrics: SocketAddr,
    /// The port on which Prometheus servers of other hosts get the metrics, over HTTPS.
    #[serde(default)]
    pub prometheus: Option<PrometheusPort>,
    /// The finished jobs and orchestrations that the store retains.
    #[serde(default)]
    pub jobs: KeptJobs,
}

/// The port on which Prometheus servers of other hosts get the metrics, over HTTPS.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrometheusPort {
    /// The address.
    pub listen: SocketAddr,
    /// The networks whose connections are accepted.
    pub from: Vec<IpNet>,
    /// The file with the server's certificate, PEM.
    pub certificate: PathBuf,
    /// The file with its key, PEM.
    pub key: PathBuf,
    /// The file with the CAs of clients, PEM; without it, clients need no certificate.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
}

/// The retention of finished jobs and orchestrations: the store retains those to which at least one
/// of the first two fields applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeptJobs {
    /// Retain those that ended within this number of days (Salt: `keep_jobs_seconds`).
    pub keep_days: u32,
    /// Retain this number of the newest, whatever their age.
    pub keep_last: u32,
    /// The size of the store in MiB above which older ones are removed nevertheless, except the
    /// newest.
    pub keep_mib: u32,
}

impl Default for KeptJobs {
    fn default() -> Self {
        Self {
            keep_days: 30,
            keep_last: 100,
            keep_mib: 2048,
        }
    }
}

fn default_listen() -> SocketAddr {
    SocketAddr::from(([0, 0, 0, 0], 4550))
}

fn default_metrics() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 4552))
}

fn default_state_dir() -> PathBuf {
    PathBuf::from("/var/lib/halite/master")
}

fn default_config_dir() -> PathBuf {
    PathBuf::from("/etc/halite")
}

fn default_bundles() -> PathBuf {
    PathBuf::from(halite_manifest::bundles::DIRECTORY)
}

/// An unusable configuration file.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration {path} (--config names another file)")]
    Read {
        /// The path of the file.
        path: String,
        /// The reason of the operating system.
        source: std::io::Error,
    },
    /// The content of the file is invalid.
    #[error("cannot use the configuration {path}")]
    Content {
        /// The path of the file.
        path: String,
        /// The mistake.
        source: ContentError,
    },
}

/// A mistake in the content of the configuration file.
#[derive(Debug, thiserror::Error)]
pub enum ContentError {
    /// The text is not a YAML mapping with exactly the known keys; the cause has line and column.
    #[error(transparent)]
    Yaml(Box<serde_saphyr::Error>),
    /// The name of the cluster is malformed.
    #[error("cluster")]
    Cluster(#[source] IdentityError),
    /// No address is advertised.
    #[error("advertise: name at least one address at which hosts reach this master")]
    NoAddress,
    /// An advertised address is `0.0.0.0` or `::`.
    #[error("advertise: {0} is not an address to which a host can connect")]
    Unspecified(IpAddr),
}

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// The file cannot be read, has unknown or missing keys or a malformed cluster name, or
    /// advertises no address.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: shown.clone(),
            source,
        })?;
        Self::parse(&text).map_err(|source| ConfigError::Content {
            path: shown,
            source,
        })
    }

    /// Parses and checks the text of the file.
    ///
    /// # Errors
    /// The first mistake in the text.
    pub fn parse(text: &str) -> Result<Self, ContentError> {
        let config: Self =
            serde_saphyr::from_str(text).map_err(|error| ContentError::Yaml(Box::new(error)))?;
        check_name(&config.cluster).map_err(ContentError::Cluster)?;
        if config.advertise.is_empty() {
            return Err(ContentError::NoAddress);
        }
        if let Some(address) = config.advertise.iter().find(|a| a.is_unspecified()) {
            return Err(ContentError::Unspecified(*address));
        }
        Ok(config)
    }

    /// `host:port` of this master for minions, IPv6 in brackets.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        self.advertise
            .iter()
            .map(|ip| SocketAddr::new(*ip, self.listen.port()).to_string())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use halite_errors::chain;

    use super::*;

    #[test]
    fn the_short_form_has_the_fixed_paths() {
        let config = Config::parse("cluster: prod\nadvertise: [10.0.0.1, 'fd00::1']\n").unwrap();
        assert_eq!(config.listen.port(), 4550);
        assert_eq!(config.state_dir, PathBuf::from("/var/lib/halite/master"));
        assert_eq!(config.bundles, PathBuf::from("/var/lib/halite/bundles"));
        assert_eq!(config.metrics.to_string(), "127.0.0.1:4552");
        assert_eq!(
            config.jobs,
            KeptJobs {
                keep_days: 30,
                keep_last: 100,
                keep_mib: 2048
            }
        );
        assert_eq!(config.endpoints(), ["10.0.0.1:4550", "[fd00::1]:4550"]);
        let config =
            Config::parse("cluster: a\nadvertise: [10.0.0.1]\njobs: {keep_days: 1}\n").unwrap();
        assert_eq!(
            config.jobs,
            KeptJobs {
                keep_days: 1,
                keep_last: 100,
                keep_mib: 2048
            }
        );
    }

    #[test]
    fn the_port_for_prometheus_is_read_as_the_states_write_it() {
        let text = "cluster: prod\nadvertise: [10.0.0.1]\nprometheus:\n  listen: 10.0.0.1:4553\n  from: [\"10.0.9.0/24\"]\n  \
                    certificate: /etc/halite/pki/metrics.crt\n  key: /etc/halite/pki/metrics.key\n";
        let port = Config::parse(text).unwrap().prometheus.unwrap();
        assert_eq!(port.listen.to_string(), "10.0.0.1:4553");
        assert_eq!(port.from, ["10.0.9.0/24".parse().unwrap()]);
        assert_eq!(
            (port.key.ends_with("metrics.key"), port.client_ca),
            (true, None)
        );
        let more = format!("{text}  client_ca: /etc/halite/pki/metrics-clients.pem\n");
        assert!(
            Config::parse(&more)
                .unwrap()
                .prometheus
                .unwrap()
                .client_ca
                .is_some()
        );
    }

    #[test]
    fn mistakes_are_named() {
        for (text, wanted) in [
            ("cluster: prod\nadvertise: []\n", "advertise"),
            ("cluster: prod\nadvertise: [0.0.0.0]\n", "advertise"),
            ("cluster: 'Prod/1'\nadvertise: [10.0.0.1]\n", "cluster"),
            (
                "cluster: prod\nadvertise: [10.0.0.1]\nlisten_on: 1\n",
                "listen_on",
            ),
            (
                "cluster: prod\nadvertise: [10.0.0.1]\nprometheus: {listen: '10.0.0.1:4553'}\n",
                "from",
            ),
        ] {
            let error = chain(&Config::parse(text).unwrap_err());
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
