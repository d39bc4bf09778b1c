//! Signatures of apt and yum repositories, by the real GnuPG.

use std::path::{Path, PathBuf};

use crate::files::run;

/// A GnuPG home in a directory with a secret key; the public one is written to `NAME.gpg` or
/// `NAME.asc`.
pub struct Signer {
    dir: PathBuf,
}

impl Signer {
    /// A home with an Ed25519 key for signing that does not expire.
    #[must_use]
    pub fn new(dir: PathBuf, key: &str) -> Self {
        Self::with(dir, key, "ed25519", &[])
    }

    /// A home with a key of that kind; with options for generating it, it is valid for a day.
    #[must_use]
    pub fn with(dir: PathBuf, key: &str, kind: &str, options: &[&str]) -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        std::fs::create_dir_all(dir.join("gnupg")).unwrap();
        std::fs::set_permissions(dir.join("gnupg"), std::fs::Permissions::from_mode(0o700))
            .unwrap();
        // Else each agent takes two inotify instances, of which the clusters beside it need nearly
        // all.
        std::fs::write(
            dir.join("gnupg/gpg-agent.conf"),
            "disable-check-own-socket\n",
        )
        .unwrap();
        let signer = Self { dir };
        let make = [
            "--quick-generate-key",
            "Test <test@halite.invalid>",
            kind,
            "sign",
        ];
        let until = if options.is_empty() { "never" } else { "1d" };
        signer.gpg(&[options, &make, &[until]].concat());
        let armour: &[&str] = if key.ends_with(".asc") {
            &["--armor"]
        } else {
            &[]
        };
        signer.gpg(&[options, armour, &["--output", key, "--export"]].concat());
        signer
    }

    /// Runs `gpg` with that home.
    pub fn gpg(&self, args: &[&str]) {
        let always = [
            "--batch",
            "--yes",
            "--quiet",
            "--pinentry-mode",
            "loopback",
            "--passphrase",
            "",
        ];
        run(
            "gpg and gpg-agent",
            &self.dir,
            "gpg",
            &[&always, args].concat(),
        );
    }

    /// Writes a file with its signature around it.
    pub fn clearsign(&self, file: &Path, out: &Path) {
        self.gpg(&[
            "--clearsign",
            "--output",
            out.to_str().unwrap(),
            file.to_str().unwrap(),
        ]);
    }

    /// Writes the signature of a file.
    pub fn detach(&self, file: &Path, out: &Path) {
        self.gpg(&[
            "--armor",
            "--detach-sign",
            "--output",
            out.to_str().unwrap(),
            file.to_str().unwrap(),
        ]);
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        // gpg leaves an agent running. A second panic would hide the first one.
        if !std::thread::panicking() {
            run("gpgconf", &self.dir, "gpgconf", &["--kill", "all"]);
        }
    }
}
