//! `/etc/halite/minion.yaml`: the minion's id and the addresses of its masters.
//!
//! The file is a flat mapping, and the minion has no YAML library: plain and quoted values on one
//! line each are read, any other syntax is refused with its line.

use std::path::{Path, PathBuf};

use halite_host_reports::DIRECTORY;
use halite_proto::ids::MinionId;

pub use halite_cli::minion::DEFAULT_PATH;

/// The directory of the minion's own state.
pub const STATE_DIR: &str = "/var/lib/halite/minion";

/// The configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// This minion's id; `None`: the one in its certificate.
    pub id: Option<MinionId>,
    /// `host:port` of the masters, tried in order.
    pub masters: Vec<String>,
    /// Directory of identity, journal, pending triggers and file cache.
    pub state_dir: PathBuf,
    /// Directory in which scheduled work on this host leaves its reports.
    pub reports: PathBuf,
    /// Minimum level of log lines.
    pub log: tracing::Level,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            id: None,
            masters: Vec::new(),
            state_dir: STATE_DIR.into(),
            reports: DIRECTORY.into(),
            log: tracing::Level::INFO,
        }
    }
}

/// The configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read {} (it must have at least `master: HOST:PORT`)", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A line is invalid.
    #[error("{file}:{line}: {reason}")]
    Line {
        /// The file.
        file: String,
        /// The line number, from 1.
        line: usize,
        /// The rule that it breaks.
        reason: String,
    },
    /// No master.
    #[error("{}: `master: HOST:PORT` is missing", .0.display())]
    NoMaster(PathBuf),
}

impl Config {
    /// Reads the file.
    ///
    /// # Errors
    /// It cannot be read, or a line is invalid.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_owned(),
            source,
        })?;
        let config = Self::parse(&path.display().to_string(), &text)?;
        if config.masters.is_empty() {
            return Err(ConfigError::NoMaster(path.to_owned()));
        }
        Ok(config)
    }

    /// Reads the text of a file with this name.
    ///
    /// # Errors
    /// The first invalid line.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let mut config = Self::default();
        for (number, line) in text.lines().enumerate() {
            let bad = |reason: &str| ConfigError::Line {
                file: file.to_owned(),
                line: number + 1,
                reason: reason.to_owned(),
            };
            let trimmed = line.trim();
            if trimmed.is_empty() || trimmed.starts_with('#') || trimmed == "---" {
                continue;
            }
            if line.starts_with([' ', '\t', '-']) {
                return Err(bad("only `key: value` lines are allowed here"));
            }
            let (key, value) = trimmed
                .split_once(':')
                .ok_or_else(|| bad("expected `key: value`"))?;
            let value = value_of(value.trim())
                .ok_or_else(|| bad("the value must be on this line, plain or quoted"))?;
            match key.trim() {
                "id" if value.is_empty() => config.id = None,
                "id" => {
                    let id = MinionId::for_host(&value);
                    config.id = Some(id.map_err(|error| bad(&error.to_string()))?);
                }
                "master" => {
                    config.masters = value
                        .split(',')
                        .map(|m| m.trim().to_owned())
                        .filter(|m| !m.is_empty())
                        .collect();
                }
                "state_dir" => config.state_dir = value.into(),
                "log" => {
                    config.log = value
                        .parse()
                        .map_err(|_| bad("log is error, warn, info, debug or trace"))?
                }
                other => {
                    return Err(bad(&format!(
                        "unknown key `{other}`; known are id, master, state_dir and log"
                    )));
                }
            }
        }
        Ok(config)
    }

    /// The identity's certificate.
    #[must_use]
    pub fn certificate(&self) -> PathBuf {
        self.state_dir.join("identity.crt")
    }

    /// The identity's private key.
    #[must_use]
    pub fn key(&self) -> PathBuf {
        self.state_dir.join("identity.key")
    }

    /// The trusted CAs of identities.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.state_dir.join("ca.crt")
    }

    /// The file of the known masters and their highest epoch.
    #[must_use]
    pub fn known_masters(&self) -> PathBuf {
        self.state_dir.join("masters.json")
    }

    /// The journal's directory.
    #[must_use]
    pub fn journal(&self) -> PathBuf {
        self.state_dir.join("journal")
    }

    /// The directory of pending triggers.
    #[must_use]
    pub fn pending_triggers(&self) -> PathBuf {
        self.state_dir.join("pending-triggers")
    }

    /// The file cache's directory.
    #[must_use]
    pub fn blobs(&self) -> PathBuf {
        self.state_dir.join("blobs")
    }
}

/// A plain or quoted scalar without its comment; `None` for any other value.
fn value_of(text: &str) -> Option<String> {
    if let Some(quote) = text.chars().next().filter(|c| matches!(c, '"' | '\'')) {
        let (inner, rest) = text.get(1..)?.split_once(quote)?;
        let rest = rest.trim();
        return (rest.is_empty() || rest.starts_with('#')).then(|| inner.to_owned());
    }
    let plain = text.split(" #").next().unwrap_or_default().trim();
    let structure = plain.starts_with(['[', '{', '|', '>', '&', '*', '!']);
    (!plain.is_empty() && !plain.starts_with('#') && !structure).then(|| plain.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_tree_writes_is_read() {
        let text = "# Written by Halite.\nid: worker-1\nmaster: 10.0.0.1:4550   # bootstrap\nlog: \"debug\"\n";
        let config = Config::parse("minion.yaml", text).unwrap();
        assert_eq!(config.id.as_deref(), Some("worker-1"));
        assert_eq!(config.masters, ["10.0.0.1:4550"]);
        assert_eq!(config.log, tracing::Level::DEBUG);
        assert_eq!(config.state_dir, Path::new(STATE_DIR));
    }

    #[test]
    fn several_masters_and_ipv6() {
        let config = Config::parse("f", "master: '[fd00::1]:4550, 10.0.0.2:4550'").unwrap();
        assert_eq!(config.masters, ["[fd00::1]:4550", "10.0.0.2:4550"]);
    }

    #[test]
    fn mistakes_are_shown_with_their_line() {
        for (text, expected) in [
            (
                "id: a\nmasters: b",
                "f:2: unknown key `masters`; known are id, master, state_dir and log",
            ),
            (
                "id:\n  a: b",
                "f:1: the value must be on this line, plain or quoted",
            ),
            (
                "id: a\n  b: c",
                "f:2: only `key: value` lines are allowed here",
            ),
            ("id", "f:1: expected `key: value`"),
            (
                "id: master",
                "f:1: \"master\" is not a usable minion id: it denotes the master",
            ),
            ("log: loud", "f:1: log is error, warn, info, debug or trace"),
        ] {
            assert_eq!(Config::parse("f", text).unwrap_err().to_string(), expected);
        }
    }
}
