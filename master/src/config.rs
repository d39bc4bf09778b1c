//! `/etc/halite/master.yaml`.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The master's configuration.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The cluster's name, as in the cluster document: part of every identity.
    pub cluster: String,
    /// Where to listen for minions and operators.
    #[serde(default = "default_listen")]
    pub listen: SocketAddr,
    /// What the daemon keeps: store, CAs, its own identity.
    #[serde(default = "default_state_dir")]
    pub state_dir: PathBuf,
    /// What people write: `cluster.yaml`, `nodes/`, `custom/`.
    #[serde(default = "default_config_dir")]
    pub config_dir: PathBuf,
    /// Where the bundles of the site stand, each under its version. The cluster document records
    /// which one is in use.
    #[serde(default = "default_bundles")]
    pub bundles: PathBuf,
    /// The bundle of a cluster whose document records none.
    #[serde(default)]
    pub bundle: Option<PathBuf>,
    /// Addresses under which hosts reach this master; the first one is what enrolment commands
    /// name.
    pub advertise: Vec<IpAddr>,
    /// Where metrics are served, in plain HTTP.
    #[serde(default = "default_metrics")]
    pub metrics: SocketAddr,
    /// Which finished jobs and orchestrations are kept.
    #[serde(default)]
    pub jobs: KeptJobs,
}

/// Which finished jobs and orchestrations the store keeps: what one of the two says is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KeptJobs {
    /// Those that ended in the last so many days (Salt: `keep_jobs_seconds`).
    pub keep_days: u32,
    /// The last so many, however old.
    pub keep_last: u32,
}

impl Default for KeptJobs {
    fn default() -> Self {
        Self {
            keep_days: 30,
            keep_last: 100,
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

/// Why the configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "{path}: {source}; `halite-master` needs its configuration there, or another file with --config"
    )]
    Read {
        /// The file.
        path: String,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("{path}: {message}")]
    Content {
        /// The file.
        path: String,
        /// What is wrong, with line and column.
        message: String,
    },
}

impl Config {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// It cannot be read, has unknown or missing keys, an unusable cluster name, or no address to
    /// advertise.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let shown = path.display().to_string();
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: shown.clone(),
            source,
        })?;
        Self::parse(&text).map_err(|message| ConfigError::Content {
            path: shown,
            message,
        })
    }

    /// Parses and checks the file's text.
    ///
    /// # Errors
    /// What is wrong, for people.
    pub fn parse(text: &str) -> Result<Self, String> {
        let config: Self = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        halite_proto::identity::check_name(&config.cluster)
            .map_err(|error| format!("cluster: {error}"))?;
        if config.advertise.is_empty() {
            return Err(
                "advertise: name at least one address under which hosts reach this master"
                    .to_owned(),
            );
        }
        if let Some(address) = config.advertise.iter().find(|a| a.is_unspecified()) {
            return Err(format!(
                "advertise: {address} is not an address that a host can dial"
            ));
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
                keep_last: 100
            }
        );
        assert_eq!(config.endpoints(), ["10.0.0.1:4550", "[fd00::1]:4550"]);
        let config =
            Config::parse("cluster: a\nadvertise: [10.0.0.1]\njobs: {keep_days: 1}\n").unwrap();
        assert_eq!(
            config.jobs,
            KeptJobs {
                keep_days: 1,
                keep_last: 100
            }
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
        ] {
            let error = Config::parse(text).unwrap_err();
            assert!(error.contains(wanted), "{text}: {error}");
        }
    }
}
