//! The masters that this minion knows, and the highest epoch of those that it has obeyed: in one
//! file of its state directory, so that neither a restart nor a power cut forgets them.
//!
//! An epoch grows when another host becomes the master. A master of a lower one was replaced and
//! does not know it: it is not obeyed. So an epoch is on the disk before its master is obeyed, and
//! while the highest one is not known, none is.

use std::path::{Path, PathBuf};

use halite_errors::chain;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::host::HostError;
use crate::host::linux::files;

/// Most masters that are remembered of one hello.
const MOST: usize = 16;

/// The reason why a master is not obeyed.
#[derive(Debug, thiserror::Error)]
pub enum NotObeyed {
    /// It was replaced.
    #[error(
        "this master has the epoch {epoch}, and another one has acted with the epoch {seen} since: it was replaced; stop it, or enrol this host again if it is the right one (halite-minion enrol --force)"
    )]
    Outdated {
        /// Its epoch.
        epoch: u64,
        /// The highest epoch that this minion has obeyed.
        seen: u64,
    },
    /// Its epoch would be forgotten, and a master that it replaced obeyed.
    #[error(
        "cannot obey this master yet: its epoch {epoch} cannot be noted on this host; free space there, or repair its disk: the minion tries again by itself"
    )]
    NotNoted {
        /// Its epoch.
        epoch: u64,
        /// The reason.
        source: HostError,
    },
    /// The highest epoch is not known any more.
    #[error(
        "cannot obey this master: the record of the epochs that were obeyed cannot be used, and one that was replaced could be obeyed; if it is the right one (`ctl master list` there), remove {}, and the minion goes on by itself", path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: RecordError,
    },
}

/// The reason why the record of masters and epoch cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Its file cannot be read.
    #[error(transparent)]
    Unreadable(#[from] HostError),
    /// It is written whole or not at all, so its disk is damaged, or another program has changed it.
    #[error("cannot parse {}: it is damaged", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The parser's reason.
        source: serde_json::Error,
    },
}

/// What is in the file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
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
    /// None while the file is there and cannot be used.
    noted: Option<Noted>,
}

impl Masters {
    /// Reads what the minion knows. While the file is there and cannot be used, no master is obeyed.
    #[must_use]
    pub fn load(config: &Config) -> Self {
        let path = config.known_masters();
        Self {
            // The reason is for the master that is not obeyed.
            noted: read(&path).ok(),
            path,
            configured: config.masters.clone(),
        }
    }

    /// The addresses to try: the configured ones first.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let mut all: Vec<String> = Vec::new();
        let noted = self.noted.iter().flat_map(|noted| &noted.masters);
        for address in self.configured.iter().chain(noted) {
            if !all.contains(address) {
                all.push(address.clone());
            }
        }
        all
    }

    /// The highest epoch that was obeyed; 0 before the first, and while it is not known.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.noted.as_ref().map_or(0, |noted| noted.epoch)
    }

    /// Decides about a master by its hello, and notes its epoch and the masters that it names
    /// before it is obeyed. A master that names none says nothing about the others.
    ///
    /// # Errors
    /// A master with a higher epoch was obeyed before, or it is not known whether, or its own epoch
    /// cannot be noted.
    pub fn accept(&mut self, epoch: u64, named: Vec<String>) -> Result<(), NotObeyed> {
        let known = match self.noted.take() {
            Some(known) => known,
            // An operator may have removed the file.
            None => read(&self.path).map_err(|source| NotObeyed::Damaged {
                path: self.path.clone(),
                source,
            })?,
        };
        let known = self.noted.insert(known);
        let seen = known.epoch;
        if epoch < seen {
            return Err(NotObeyed::Outdated { epoch, seen });
        }
        let mut masters: Vec<String> = named.into_iter().filter(|a| is_address(a)).collect();
        masters.truncate(MOST);
        if masters.is_empty() {
            masters.clone_from(&known.masters);
        }
        let noted = Noted { epoch, masters };
        if noted == *known {
            return Ok(());
        }
        match write(&self.path, &noted) {
            Ok(()) => {}
            Err(source) if epoch > seen => return Err(NotObeyed::NotNoted { epoch, source }),
            // A full disk must not keep the only master away that could help: its epoch is noted.
            Err(error) => tracing::error!(
                error = chain(&error),
                "cannot note the masters; a restart forgets them"
            ),
        }
        *known = noted;
        Ok(())
    }
}

fn write(path: &Path, noted: &Noted) -> Result<(), HostError> {
    let text = serde_json::to_vec(noted)
        .map_err(|error| HostError::failed(path.display().to_string(), error))?;
    files::write(path, &text, files::Owner::default())
}

fn is_address(text: &str) -> bool {
    let parts = text.rsplit_once(':');
    parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok())
}

/// Reads the record; without a file it has nothing.
fn read(path: &Path) -> Result<Noted, RecordError> {
    let Some(content) = files::read(path)? else {
        return Ok(Noted::default());
    };
    serde_json::from_slice(&content).map_err(|source| RecordError::Damaged {
        path: path.to_owned(),
        source,
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
#[expect(clippy::disallowed_methods, reason = "the tests damage the file")]
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
            assert!(
                matches!(refused, NotObeyed::Outdated { epoch: 3, seen: 4 }),
                "{refused}"
            );
            assert_eq!(masters.addresses(), ["a:1", "b:1"], "it teaches nothing");
        }
        forget(&config).unwrap();
        assert_eq!(Masters::load(&config).epoch(), 0);
    }

    #[test]
    fn while_the_highest_epoch_is_not_known_no_master_is_obeyed() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        Masters::load(&config).accept(4, texts(&["b:1"])).unwrap();
        let owner = files::Owner::default();
        for damaged in ["{\"epoch\": 4, \"mas", "", "{\"masters\": []}", "[]"] {
            files::write(&config.known_masters(), damaged.as_bytes(), owner).unwrap();
            let mut masters = Masters::load(&config);
            // The configured one is asked, and refused.
            assert_eq!(masters.addresses(), ["a:1"]);
            for epoch in [3, 4, 5] {
                let refused = masters.accept(epoch, texts(&["c:1"])).unwrap_err();
                assert!(matches!(refused, NotObeyed::Damaged { .. }), "{refused}");
                let text = chain(&refused);
                let remedy = format!("remove {}", config.known_masters().display());
                assert!(
                    text.contains(&remedy) && text.contains("masters.json: it is damaged: "),
                    "{text}"
                );
            }
            let kept = std::fs::read(config.known_masters()).unwrap();
            assert_eq!(kept, damaged.as_bytes(), "it is evidence");
            // The operator has removed it: no restart is needed.
            forget(&config).unwrap();
            masters.accept(5, texts(&["c:1"])).unwrap();
            assert_eq!(Masters::load(&config).epoch(), 5);
        }
    }

    #[test]
    fn an_epoch_that_cannot_be_noted_is_not_obeyed_until_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let mut masters = Masters::load(&config);
        masters.accept(4, texts(&["b:1"])).unwrap();
        // No file can be written in its place.
        let in_the_way = config.known_masters();
        std::fs::remove_file(&in_the_way).unwrap();
        std::fs::create_dir_all(in_the_way.join("entry")).unwrap();
        let refused = masters.accept(5, texts(&["c:1"])).unwrap_err();
        assert!(
            matches!(refused, NotObeyed::NotNoted { epoch: 5, .. }),
            "{refused}"
        );
        let text = chain(&refused);
        assert!(text.contains("tries again by itself"), "{text}");
        assert!(text.contains("masters.json"), "{text}");
        // Nothing of it counts, and the master of the noted epoch is obeyed as before.
        assert_eq!(masters.epoch(), 4);
        assert_eq!(masters.addresses(), ["a:1", "b:1"]);
        masters.accept(4, texts(&["d:1"])).unwrap();
        assert_eq!(masters.addresses(), ["a:1", "d:1"]);
        std::fs::remove_dir_all(&in_the_way).unwrap();
        masters.accept(5, texts(&["c:1"])).unwrap();
        assert_eq!(Masters::load(&config).epoch(), 5);
        let refused = masters.accept(4, Vec::new()).unwrap_err();
        assert!(matches!(refused, NotObeyed::Outdated { .. }), "{refused}");
    }
}
