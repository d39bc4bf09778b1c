//! Signing the apt repository with GnuPG, in a home of its own that is gone afterwards.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command};

use super::program;
use crate::{claim::Scratch, error::Error, files};

/// Whom a key that the build makes names.
const OWNER: &str = "Halite bundle <bundle@halite.invalid>";

/// A GnuPG home that holds one secret key. An agent that a killed build has left ends when it finds its home gone.
pub struct Signer {
    home: Scratch,
}

impl Signer {
    /// Opens the secret key in a file; a file that is not there is made with a new key, readable by its owner alone.
    pub fn open(key: &Path) -> Result<Self, Error> {
        let signer = Self { home: Scratch::new("halite-gpg-")? };
        if key.exists() {
            let what = format!("reading the signing key {}", key.display());
            program::run(signer.gpg().arg("--import").arg(key), &what)?;
        } else {
            let what = "making a signing key";
            program::run(
                signer.gpg().args(["--quick-generate-key", OWNER, "ed25519", "sign", "never"]),
                what,
            )?;
            let secret = program::run(signer.gpg().args(["--armor", "--export-secret-keys"]), what)?;
            files::replace(key, 0o600, secret.as_bytes())?;
        }
        Ok(signer)
    }

    /// Writes `InRelease` and `Release.gpg` beside a `Release`.
    pub fn sign(&self, release: &Path) -> Result<(), Error> {
        let what = "signing the repository";
        for (name, how) in [("InRelease", "--clearsign"), ("Release.gpg", "--detach-sign")] {
            let out = release.with_file_name(name);
            program::run(self.gpg().arg("--armor").arg("--output").arg(&out).arg(how).arg(release), what)?;
            fs::set_permissions(&out, fs::Permissions::from_mode(0o644))
                .map_err(Error::file("write", &out))?;
        }
        Ok(())
    }

    /// Writes the public key as apt's `signed-by` wants it: binary.
    pub fn export(&self, to: &Path) -> Result<(), Error> {
        program::run(self.gpg().arg("--output").arg(to).arg("--export"), "exporting the signing key")?;
        fs::set_permissions(to, fs::Permissions::from_mode(0o644)).map_err(Error::file("write", to))
    }

    fn gpg(&self) -> Command {
        let mut gpg = Command::new("gpg");
        gpg.env("GNUPGHOME", self.home.path())
            .args([
                "--batch",
                "--yes",
                "--quiet",
                "--no-tty",
                "--pinentry-mode",
                "loopback",
                "--passphrase",
                "",
            ])
            .args(["--digest-algo", "SHA512"]);
        gpg
    }
}

impl Drop for Signer {
    /// gpg leaves an agent behind that holds the key.
    fn drop(&mut self) {
        let mut stop = Command::new("gpgconf");
        stop.env("GNUPGHOME", self.home.path()).args(["--kill", "all"]);
        if let Err(error) = program::run(&mut stop, "stopping the agent of gpg") {
            tracing::warn!("{error}");
        }
    }
}
