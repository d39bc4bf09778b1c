//! Signatures of the package repositories, made by GnuPG in a temporary home.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use halite_durable::{ScratchDir, files};
use halite_errors::chain;
use jiff::Timestamp;

use crate::error::Error;
use crate::process;

/// The user id of a key that the build makes.
const OWNER: &str = "Halite bundle <bundle@halite.invalid>";

/// rpmsign looks for gpg under the name of an older version.
const GPG: &str = "__gpg /usr/bin/gpg";

/// The option of gpg that writes a signature to a separate file.
const DETACHED: &str = "--detach-sign";

/// The number of RSA among OpenPGP's algorithms (RFC 9580, section 9.1).
const RSA: &str = "1";

struct Key {
    fingerprint: String,
    /// The time at which the key was made, in seconds since 1970.
    made: i64,
    algorithm: String,
}

/// Kinds of keys that a build can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// Small and fast; not every rpm version in use can check it.
    Ed25519,
    /// Every rpm version can check it.
    Rsa,
}

impl KeyKind {
    fn name(self) -> &'static str {
        match self {
            Self::Ed25519 => "ed25519",
            Self::Rsa => "rsa4096",
        }
    }
}

/// A GnuPG home that holds one secret key. The agent of a killed build exits when its home is gone.
pub struct Signer {
    home: ScratchDir,
}

impl Signer {
    /// Opens the secret key in a file. If the file does not exist, makes a new key of that kind in
    /// it, readable only by its owner.
    ///
    /// # Errors
    /// The file is not a secret key, or gpg fails.
    pub fn open(key: &Path, kind: KeyKind) -> Result<Self, Error> {
        let signer = Self {
            home: ScratchDir::new("halite-gpg-")?,
        };
        if key.exists() {
            let what = format!("reading the signing key {}", key.display());
            process::run(signer.gpg().arg("--import").arg(key), &what)?;
        } else {
            let what = "making a signing key";
            process::run(
                signer
                    .gpg()
                    .args(["--quick-generate-key", OWNER, kind.name(), "sign", "never"]),
                what,
            )?;
            let secret =
                process::run(signer.gpg().args(["--armor", "--export-secret-keys"]), what)?;
            files::replace(key, 0o600, secret.as_bytes())?;
        }
        Ok(signer)
    }

    /// Writes `InRelease` and `Release.gpg` beside a `Release`, dated `date`.
    ///
    /// # Errors
    /// Gpg fails.
    pub fn sign(&self, release: &Path, date: Timestamp) -> Result<(), Error> {
        for (name, how) in [("InRelease", "--clearsign"), ("Release.gpg", DETACHED)] {
            self.write(how, release, &release.with_file_name(name), date)?;
        }
        Ok(())
    }

    /// Writes the detached signature of a file, dated `date`.
    ///
    /// # Errors
    /// Gpg fails.
    pub fn detach(&self, file: &Path, out: &Path, date: Timestamp) -> Result<(), Error> {
        self.write(DETACHED, file, out, date)
    }

    /// Signs a file with the given gpg command; the same file, key and date give the same bytes.
    fn write(&self, how: &str, file: &Path, out: &Path, date: Timestamp) -> Result<(), Error> {
        let mut sign = self.gpg();
        sign.args(["--faked-system-time", &self.moment(date)?])
            .arg("--armor")
            .arg("--output")
            .arg(out);
        process::run(sign.arg(how).arg(file), "signing the repository")?;
        fs::set_permissions(out, fs::Permissions::from_mode(0o644))
            .map_err(Error::file("write", out))
    }

    /// Signs rpm packages in place, dated `date`.
    ///
    /// # Errors
    /// Rpmsign fails.
    pub fn sign_rpms(&self, packages: &[PathBuf], date: Timestamp) -> Result<(), Error> {
        if packages.is_empty() {
            return Ok(());
        }
        let extra = format!(
            "_gpg_sign_cmd_extra_args --batch --pinentry-mode loopback --passphrase '' --faked-system-time {}",
            self.moment(date)?
        );
        let mut sign = process::rpm("rpmsign", self.home.path());
        sign.env("GNUPGHOME", self.home.path())
            .args(["--define", &extra, "--define", GPG]);
        sign.args(["--define", "_gpg_digest_algo sha512"]);
        sign.arg("--define")
            .arg(format!("_gpg_name {}", self.key()?.fingerprint));
        process::run(sign.arg("--addsign").args(packages), "signing packages").map(drop)
    }

    /// The value of `--faked-system-time` for a signature: never before the key was made, because
    /// gpg refuses such a signature.
    fn moment(&self, date: Timestamp) -> Result<String, Error> {
        Ok(format!("{}!", date.as_second().max(self.key()?.made)))
    }

    /// Returns `true` if the key is an RSA key.
    ///
    /// # Errors
    /// Gpg fails.
    pub fn is_rsa(&self) -> Result<bool, Error> {
        Ok(self.key()?.algorithm == RSA)
    }

    /// Reads the description of the key that gpg prints (doc/DETAILS of GnuPG).
    fn key(&self) -> Result<Key, Error> {
        let what = "reading the signing key";
        let said = process::run(
            self.gpg().args(["--with-colons", "--list-secret-keys"]),
            what,
        )?;
        let field = |kind: &str, index: usize| {
            let line = said
                .lines()
                .find(|line| line.split(':').next() == Some(kind))?;
            line.split(':').nth(index).map(str::to_owned)
        };
        let made = field("sec", 5).and_then(|seconds| seconds.parse().ok());
        let found = (|| {
            Some(Key {
                fingerprint: field("fpr", 9)?,
                made: made?,
                algorithm: field("sec", 3)?,
            })
        })();
        found.ok_or_else(|| Error::Program {
            what: what.to_owned(),
            message: "gpg names no secret key".to_owned(),
        })
    }

    /// Writes the armoured public key, as required by rpm, followed by other public keys.
    ///
    /// # Errors
    /// Gpg fails, one of the other files is not a key, or a file cannot be written.
    pub fn export_with(&self, to: &Path, others: &[PathBuf]) -> Result<(), Error> {
        let what = "exporting the signing key";
        let mut text = process::run(self.gpg().args(["--armor", "--export"]), what)?;
        for other in others {
            let what = format!("reading the key {}", other.display());
            let mut read = self.gpg();
            read.args(["--no-default-keyring", "--keyring"])
                .arg(self.home.path().join("other.kbx"));
            process::run(read.arg("--import").arg(other), &what)?;
            let mut write = self.gpg();
            write
                .args(["--no-default-keyring", "--keyring"])
                .arg(self.home.path().join("other.kbx"));
            text.push_str(&process::run(write.args(["--armor", "--export"]), &what)?);
            let ring = self.home.path().join("other.kbx");
            fs::remove_file(&ring).map_err(Error::file("remove", ring))?;
        }
        Ok(files::write(to, 0o644, text.as_bytes())?)
    }

    /// Writes the public key in binary form, as required by apt's `signed-by`.
    ///
    /// # Errors
    /// Gpg fails.
    pub fn export(&self, to: &Path) -> Result<(), Error> {
        process::run(
            self.gpg().arg("--output").arg(to).arg("--export"),
            "exporting the signing key",
        )?;
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
    /// Stops the agent that gpg leaves behind with the key.
    fn drop(&mut self) {
        let mut stop = Command::new("gpgconf");
        stop.env("GNUPGHOME", self.home.path())
            .args(["--kill", "all"]);
        if let Err(error) = process::run(&mut stop, "stopping the agent of gpg") {
            tracing::warn!("{}", chain(&error));
        }
    }
}
