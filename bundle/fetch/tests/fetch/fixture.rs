//! The fixture of every test: a directory, a cache in it, and settings without pauses.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use halite_durable::Digest;
use halite_fetch::{Artifact, Cache, Client, Fetcher, Settings};
use halite_testkit::names;

pub struct Fixture {
    dir: tempfile::TempDir,
    pauses: Arc<Mutex<Vec<Duration>>>,
}

impl Fixture {
    pub fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            pauses: Arc::default(),
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn cache(&self) -> Cache {
        Cache::open(&self.path("cache")).unwrap()
    }

    /// Settings that record pauses instead of making them, and ignore this machine's proxies and
    /// authorities.
    pub fn settings(&self) -> Settings {
        let noted = Arc::clone(&self.pauses);
        Settings {
            system_authorities: false,
            proxy: Some(String::new()),
            pause: Duration::from_secs(1),
            sleep: Arc::new(move |pause| noted.lock().unwrap().push(pause)),
            ..Settings::default()
        }
    }

    pub fn fetcher(&self) -> Fetcher {
        self.fetcher_with(self.settings())
    }

    pub fn fetcher_with(&self, settings: Settings) -> Fetcher {
        Fetcher::new(self.cache(), Client::new(settings).unwrap())
    }

    /// The pauses so far, in seconds.
    pub fn pauses(&self) -> Vec<u64> {
        self.pauses
            .lock()
            .unwrap()
            .iter()
            .map(Duration::as_secs)
            .collect()
    }

    /// The names of complete and of partial contents in the cache.
    pub fn kept(&self) -> (Vec<String>, Vec<String>) {
        let list = |name: &str| names(&self.path("cache").join(name));
        (list("sha256"), list("partial"))
    }

    /// A file with mode 600.
    pub fn private(&self, name: &str, content: &str) -> PathBuf {
        use std::os::unix::fs::PermissionsExt as _;
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        path
    }
}

/// A file with a known digest and size.
pub fn artifact(name: &str, url: String, content: &[u8]) -> Artifact {
    let (digest, size) = (Some(Digest::of(content)), Some(content.len() as u64));
    Artifact {
        name: name.into(),
        url,
        digest,
        size,
        limit: None,
    }
}
