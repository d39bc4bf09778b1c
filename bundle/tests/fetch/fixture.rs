//! What every test needs: a directory, a cache in it, settings that make no pauses.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::{Arc, Mutex},
    time::Duration,
};

use halite_bundle::fetch::{Artifact, Cache, Client, Digest, Fetcher, Settings};

pub struct Fixture {
    dir: tempfile::TempDir,
    pauses: Arc<Mutex<Vec<Duration>>>,
}

impl Fixture {
    pub fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), pauses: Arc::default() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn cache(&self) -> Cache {
        Cache::open(&self.path("cache")).unwrap()
    }

    /// Settings that note pauses in place of making them, and know nothing of this machine's proxies and authorities.
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
        self.pauses.lock().unwrap().iter().map(Duration::as_secs).collect()
    }

    /// The names of whole and of partial contents in the cache.
    pub fn kept(&self) -> (Vec<String>, Vec<String>) {
        let list = |name: &str| {
            let entries = std::fs::read_dir(self.path("cache").join(name)).unwrap();
            let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
            let mut names: Vec<_> = names.collect();
            names.sort_unstable();
            names
        };
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

/// Bytes that compress badly and repeat late.
pub fn content(size: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).max(1);
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    (0..size).map(|_| next()).collect()
}

/// A file whose digest and size are known.
pub fn artifact(name: &str, url: String, content: &[u8]) -> Artifact {
    let (digest, size) = (Some(Digest::of(content)), Some(content.len() as u64));
    Artifact { name: name.into(), url, digest, size, limit: None }
}

/// Runs a program of a Debian package in a directory.
pub fn run(package: &str, dir: &Path, program: &str, args: &[&str]) -> Vec<u8> {
    let mut command = Command::new(program);
    command
        .args(args)
        .current_dir(dir)
        .env("GNUPGHOME", dir.join("gnupg"))
        .env("LC_ALL", "C.UTF-8")
        .env("HOME", dir);
    let output = command.output();
    let output =
        output.unwrap_or_else(|error| panic!("{program}: {error}: install the Debian package {package}"));
    assert!(output.status.success(), "{program} {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// A GnuPG home in a directory with a secret key; the public one is written to `NAME.gpg` or `NAME.asc`.
pub struct Signer {
    dir: PathBuf,
}

impl Signer {
    pub fn new(dir: PathBuf, key: &str) -> Self {
        Self::with(dir, key, "ed25519", &[])
    }

    /// One with a key of that kind; with options for making it, it counts for a day.
    pub fn with(dir: PathBuf, key: &str, kind: &str, options: &[&str]) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::create_dir_all(dir.join("gnupg")).unwrap();
        std::fs::set_permissions(dir.join("gnupg"), std::fs::Permissions::from_mode(0o700)).unwrap();
        let signer = Self { dir };
        let make = ["--quick-generate-key", "Test <test@halite.invalid>", kind, "sign"];
        let until = if options.is_empty() { "never" } else { "1d" };
        signer.gpg(&[options, &make, &[until]].concat());
        let armour: &[&str] = if key.ends_with(".asc") { &["--armor"] } else { &[] };
        signer.gpg(&[options, armour, &["--output", key, "--export"]].concat());
        signer
    }

    pub fn gpg(&self, args: &[&str]) {
        let always = ["--batch", "--yes", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""];
        run("gpg and gpg-agent", &self.dir, "gpg", &[&always, args].concat());
    }

    pub fn clearsign(&self, file: &Path, out: &Path) {
        self.gpg(&["--clearsign", "--output", out.to_str().unwrap(), file.to_str().unwrap()]);
    }

    pub fn detach(&self, file: &Path, out: &Path) {
        self.gpg(&["--armor", "--detach-sign", "--output", out.to_str().unwrap(), file.to_str().unwrap()]);
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        // gpg leaves an agent behind. A second panic would hide the first one.
        if !std::thread::panicking() {
            run("gpgconf", &self.dir, "gpgconf", &["--kill", "all"]);
        }
    }
}
