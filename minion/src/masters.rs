//! The masters that this minion knows, and the highest epoch of those that it has obeyed: in one
//! file of its state directory, so that neither a restart nor a power cut forgets them.
//!
//! An epoch grows when another host becomes the master. A master of a lower one was replaced and
//! does not know it: it is not obeyed.

use std::path::PathBuf;

use halite_errors::chain;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::host::HostError;
use crate::host::linux::files;

/// Most masters that are remembered of one hello.
const MOST: usize = 16;

/// A master that was replaced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this master has the epoch {epoch}, and another one has acted with the epoch {seen} since: it was replaced; stop it, or enrol this host again if it is the right one (halite-minion enrol --force)"
)]
pub struct Outdated {
    /// Its epoch.
    pub epoch: u64,
    /// The highest epoch that this minion has obeyed.
    pub seen: u64,
}

/// What is in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Noted {
    /// The highest epoch.
    epoch: u64,
    /// `host:port`, in the order of the master that was heard last.
    masters: Vec<String>,
}

/// The masters, by configuration and by what they said of each other.
#[derive(Debug)]
pub struct Masters {
    path: PathBuf,
    configured: Vec<String>,
    noted: Noted,
}

impl Masters {
    /// Reads what the minion knows. A file that cannot be read is logged, and counts as none: a
    /// host that no master can reach any more would be worse.
    #[must_use]
    pub fn load(config: &Config) -> Self {
        let path = config.known_masters();
        Self {
            noted: read(&path),
            configured: config.masters.clone(),
            path,
        }
    }

    /// The addresses to try: the configured ones first.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        for address in self.configured.iter().chain(&self.noted.masters) {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        all
    }

    /// The highest epoch that was obeyed; 0 before the first.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.noted.epoch
    }

    /// Decides about a master by its hello, and notes its epoch and the masters that it names
    /// before it is obeyed. A master that names none says nothing about the others.
    ///
    /// # Errors
    /// A master with a higher epoch was obeyed before.
    pub fn accept(&mut self, epoch: u64, named: Vec<String>) -> Result<(), Outdated> {
        if epoch < self.noted.epoch {
            return Err(Outdated {
                epoch,
                seen: self.noted.epoch,
            });
        }
        let mut masters: Vec<String> = named.into_iter().filter(|a| is_address(a)).collect();
        masters.truncate(MOST);
        if masters.is_empty() {
            masters.clone_from(&self.noted.masters);
        }
        let noted = Noted { epoch, masters };
        if noted != self.noted {
            self.noted = noted;
            if let Err(error) = self.write() {
                // A full disk must not keep the only master away that could help.
                tracing::error!(
                    error = chain(&error),
                    "cannot note the masters and their epoch; a restart forgets them"
                );
            }
        }
        Ok(())
    }

    fn write(&self) -> Result<(), HostError> {
        let text = serde_json::to_vec(&self.noted)
            .map_err(|error| HostError::failed(self.path.display().to_string(), error))?;
        files::write(&self.path, &text, files::Owner::default())
    }
}

fn is_address(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

fn read(path: &std::path::Path) -> Noted {
    let content = match files::read(path) {
        Ok(None) => return Noted::default(),
        Ok(Some(content)) => content,
        Err(error) => {
            tracing::error!(error = chain(&error), "cannot read the known masters");
            return Noted::default();
        }
    };
    serde_json::from_slice(&content).unwrap_or_else(|error| {
        tracing::error!(
            file = %path.display(),
            %error,
            "this is no record of masters and their epoch: the next master that answers is obeyed"
        );
        Noted::default()
    })
}

/// Forgets masters and epoch: an operator has named the master that this host obeys from now on.
///
/// # Errors
/// The file cannot be removed.
pub fn forget(config: &Config) -> Result<(), HostError> {
    files::remove(&config.known_masters())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(directory: &std::path::Path) -> Config {
        Config {
            state_dir: directory.to_owned(),
            masters: vec!["a:1".into()],
            ..Config::default()
        }
    }

    fn texts(all: &[&str]) -> Vec<String> {
        all.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn configured_masters_go_first_and_the_others_survive_a_restart() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let mut masters = Masters::load(&config);
        assert_eq!(masters.addresses(), ["a:1"]);
        masters
            .accept(1, texts(&["b:1", "a:1", "no address", ":1"]))
            .unwrap();
        assert_eq!(masters.addresses(), ["a:1", "b:1"]);
        assert_eq!(Masters::load(&config).addresses(), ["a:1", "b:1"]);
        // Those that a later one does not name any more are gone.
        masters.accept(1, texts(&["c:1"])).unwrap();
        assert_eq!(Masters::load(&config).addresses(), ["a:1", "c:1"]);
    }

    #[test]
    fn a_lower_epoch_than_the_highest_is_refused_after_a_restart_too() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let mut masters = Masters::load(&config);
        masters.accept(0, Vec::new()).unwrap();
        masters.accept(4, texts(&["b:1"])).unwrap();
        masters.accept(4, texts(&["b:1"])).unwrap();
        for mut masters in [masters, Masters::load(&config)] {
            assert_eq!(masters.epoch(), 4);
            let refused = masters.accept(3, texts(&["c:1"])).unwrap_err();
            assert_eq!((refused.epoch, refused.seen), (3, 4));
            assert_eq!(masters.addresses(), ["a:1", "b:1"], "it teaches nothing");
        }
        forget(&config).unwrap();
        assert_eq!(Masters::load(&config).epoch(), 0);
    }

    #[test]
    fn a_torn_file_counts_as_none() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let mut masters = Masters::load(&config);
        masters.accept(4, texts(&["b:1"])).unwrap();
        let owner = files::Owner::default();
        files::write(&config.known_masters(), b"{\"epoch\": 4, \"mas", owner).unwrap();
        assert_eq!(Masters::load(&config).addresses(), ["a:1"]);
    }
}
