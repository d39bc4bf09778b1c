//! The masters that `ctl` may call: the one that the command line names, or those in the file that
//! the states write on each control-plane host.

use std::future::Future;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use halite_errors::chain;
use halite_proto::transport::ConnectError;

/// The file with one `HOST:PORT` on each line, the master first. Empty lines and lines with `#` are
/// ignored.
pub const FILE: &str = "/etc/halite/masters";
/// The master if there is no file.
const DEFAULT: &str = "127.0.0.1:4550";

/// The host in a standby's file that names its master; `None` without such a file.
#[must_use]
pub fn host_in(file: &Path) -> Option<String> {
    let text = std::fs::read_to_string(file).ok()?;
    let mut lines = text.lines().map(str::trim);
    let line = lines.find(|line| !line.is_empty() && !line.starts_with('#'))?;
    Some(line.rsplit_once(':')?.0.to_owned())
}

/// The addresses to try.
#[derive(Debug, PartialEq, Eq)]
pub struct Masters(Vec<String>);

/// The file of the masters cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum MastersError {
    /// The file cannot be read.
    #[error("cannot read {}; name the master with --master", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A line is not an address.
    #[error(
        "{}:{line}: {text:?} is not HOST:PORT; a highstate of this host rewrites the file",
        path.display()
    )]
    Line {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// The line.
        text: String,
    },
    /// The file names no master.
    #[error("{} names no master; a highstate of this host rewrites the file", .0.display())]
    Empty(PathBuf),
}

/// The reason why no master answered.
#[derive(Debug, thiserror::Error)]
pub enum NoMaster {
    /// The only master does not answer.
    #[error("the master does not answer")]
    One {
        /// Its address.
        address: String,
        /// The cause.
        source: ConnectError,
    },
    /// None of several masters answers.
    #[error("no master answers:{}", lines(.0))]
    All(Vec<Failure>),
}

/// An address, and the reason why no master answers there.
#[derive(Debug)]
pub struct Failure {
    /// The address.
    pub address: String,
    /// The reason.
    pub source: ConnectError,
}

fn lines(failures: &[Failure]) -> String {
    let each = failures
        .iter()
        .map(|failure| format!("\n  {}: {}", failure.address, chain(&failure.source)));
    each.collect()
}

impl Masters {
    /// The masters of the command line, separated by commas, or those of the file, or the one on
    /// this host.
    ///
    /// # Errors
    /// The file cannot be read, or is malformed.
    pub fn find(named: Option<&str>, path: &Path) -> Result<Self, MastersError> {
        if let Some(named) = named {
            return Ok(Self(named.split(',').map(str::to_owned).collect()));
        }
        match std::fs::read_to_string(path) {
            Ok(text) => Self::parse(&text, path),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self(vec![DEFAULT.to_owned()])),
            Err(source) => Err(MastersError::Read {
                path: path.to_owned(),
                source,
            }),
        }
    }

    fn parse(text: &str, path: &Path) -> Result<Self, MastersError> {
        let mut addresses = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let is_address = line.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty()
                    && !host.contains(char::is_whitespace)
                    && port.parse::<u16>().is_ok()
            });
            if !is_address {
                return Err(MastersError::Line {
                    path: path.to_owned(),
                    line: index + 1,
                    text: line.to_owned(),
                });
            }
            addresses.push(line.to_owned());
        }
        if addresses.is_empty() {
            return Err(MastersError::Empty(path.to_owned()));
        }
        Ok(Self(addresses))
    }

    /// Returns whether one of the addresses is this host's own.
    #[must_use]
    pub fn has_this_host(&self) -> bool {
        self.0.iter().any(|address| {
            let host = address.rsplit_once(':').map_or("", |(host, _)| host);
            host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
        })
    }

    /// Returns whether there are several addresses.
    #[must_use]
    pub fn are_several(&self) -> bool {
        self.0.len() > 1
    }

    /// Tries the addresses in order, and returns the result of the first that answers.
    ///
    /// # Errors
    /// No master answers; the error has each address with its cause.
    pub async fn connect<T, F>(&self, connect: impl Fn(String) -> F) -> Result<T, NoMaster>
    where
        F: Future<Output = Result<T, ConnectError>>,
    {
        if let [address] = self.0.as_slice() {
            let found = connect(address.clone()).await;
            return found.map_err(|source| NoMaster::One {
                address: address.clone(),
                source,
            });
        }
        let mut failures = Vec::new();
        for address in &self.0 {
            let source = match connect(address.clone()).await {
                Ok(found) => return Ok(found),
                Err(source) => source,
            };
            failures.push(Failure {
                address: address.clone(),
                source,
            });
        }
        Err(NoMaster::All(failures))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(address: &str) -> ConnectError {
        ConnectError::Unreachable {
            endpoint: address.to_owned(),
            source: std::io::Error::from(ErrorKind::ConnectionRefused),
        }
    }

    fn of(addresses: &[&str]) -> Masters {
        Masters(addresses.iter().map(|text| (*text).to_owned()).collect())
    }

    #[test]
    fn the_command_line_wins_over_the_file_and_the_file_over_this_host() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("masters");
        assert_eq!(Masters::find(None, &path).unwrap(), of(&[DEFAULT]));
        let text = "# Written by Halite.\n10.0.0.11:4550\n\n  [fd00::2]:4550\n";
        std::fs::write(&path, text).unwrap();
        assert_eq!(
            Masters::find(None, &path).unwrap(),
            of(&["10.0.0.11:4550", "[fd00::2]:4550"])
        );
        assert_eq!(Masters::find(Some("a:1"), &path).unwrap(), of(&["a:1"]));
    }

    #[test]
    fn a_file_that_is_not_a_list_of_addresses_is_refused_with_its_line() {
        for (text, wanted) in [
            ("10.0.0.11:4550\n10.0.0.12\n", "masters:2: \"10.0.0.12\""),
            ("10.0.0.11:port\n", "masters:1:"),
            ("a b:1\n", "masters:1:"),
            ("# nothing\n", "names no master"),
        ] {
            let error = Masters::parse(text, Path::new("masters")).unwrap_err();
            assert!(error.to_string().contains(wanted), "{error}");
        }
    }

    #[tokio::test]
    async fn the_next_master_is_called_when_one_does_not_answer() {
        let masters = of(&["a:1", "b:1", "c:1"]);
        let found = masters.connect(async |address: String| match address.as_str() {
            "b:1" => Ok(address),
            other => Err(refused(other)),
        });
        assert_eq!(found.await.unwrap(), "b:1");
    }

    #[tokio::test]
    async fn when_none_answers_each_address_is_named_with_its_cause() {
        let masters = of(&["10.0.0.11:4550", "10.0.0.12:4550"]);
        let found = masters.connect(async |address: String| Err::<(), _>(refused(&address)));
        let text = chain(&found.await.unwrap_err());
        assert!(text.starts_with("no master answers:"), "{text}");
        assert!(text.contains("\n  10.0.0.11:4550: "), "{text}");
        assert!(text.contains("\n  10.0.0.12:4550: "), "{text}");
        assert!(text.contains("refused"), "{text}");

        let one = of(&["10.0.0.11:4550"]);
        let found = one.connect(async |address: String| Err::<(), _>(refused(&address)));
        let text = chain(&found.await.unwrap_err());
        assert!(text.starts_with("the master does not answer: "), "{text}");
    }
}
