//! The checksums of a release, and the signature of that one file.
//!
//! OpenSSH makes and verifies the signature: it is on nearly every machine, and reads keys from a
//! file, an agent or a hardware token.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use halite_durable::files;
use halite_lab::build_command::output;

/// The file with the SHA-256 of all others.
pub(crate) const CHECKSUMS: &str = "SHA256SUMS";

/// The file with the public key that signs, as OpenSSH's allowed signers. A user gets it once,
/// through another channel.
pub(crate) const SIGNERS: &str = "halite.signers";

/// The name of the signer in that file.
const SIGNER: &str = "halite";

/// The purpose of the signature: a key's signatures of other documents are not accepted.
const NAMESPACE: &str = "halite-release";

/// The commands that verify a release in the directory of its files. `README.md` and
/// the guide have the same.
pub const VERIFY: &str = "\
ssh-keygen -Y verify -f halite.signers -I halite -n halite-release -s SHA256SUMS.sig < SHA256SUMS &&
  sha256sum --check --ignore-missing SHA256SUMS
";

/// A key that signs.
#[derive(Debug)]
pub(crate) struct Signer {
    key: PathBuf,
    /// The public key: its type and its text.
    public: String,
}

impl Signer {
    /// Opens a key. Without one, the lab's own is used, and made if it does not exist.
    ///
    /// # Errors
    /// OpenSSH cannot read the key.
    pub(crate) fn open(key: Option<&Path>, cache: &Path) -> Result<Self> {
        let key = match key {
            Some(key) => key.to_owned(),
            None => own(cache)?,
        };
        let public = if key.extension().is_some_and(|suffix| suffix == "pub") {
            // Its private half is in an agent.
            fs::read_to_string(&key).with_context(|| format!("cannot read {}", key.display()))?
        } else {
            let what = format!("reading the key {}", key.display());
            let mut read = Command::new("ssh-keygen");
            let said = output(read.arg("-y").arg("-f").arg(&key), &what)?;
            String::from_utf8_lossy(&said).into_owned()
        };
        let words: Vec<&str> = public.split_whitespace().take(2).collect();
        Ok(Self {
            public: words.join(" "),
            key,
        })
    }

    /// Writes the checksums of all files of a directory, their signature, and the public key.
    ///
    /// # Errors
    /// A file cannot be read or written, or OpenSSH cannot sign.
    pub(crate) fn sign(&self, dir: &Path) -> Result<()> {
        let mut sums = String::new();
        for name in files::walk(dir)? {
            let digest = files::digest(&dir.join(&name))?.0;
            sums.push_str(&format!("{digest}  {name}\n"));
        }
        files::write(&dir.join(CHECKSUMS), 0o644, sums.as_bytes())?;
        let signers = format!("{SIGNER} namespaces=\"{NAMESPACE}\" {}\n", self.public);
        files::write(&dir.join(SIGNERS), 0o644, signers.as_bytes())?;
        let mut sign = Command::new("ssh-keygen");
        sign.args(["-q", "-Y", "sign", "-n", NAMESPACE, "-f"])
            .arg(&self.key)
            .arg(dir.join(CHECKSUMS));
        output(&mut sign, "signing the checksums").map(drop)
    }
}

/// The lab's own key.
fn own(cache: &Path) -> Result<PathBuf> {
    let dir = cache.join("release-key");
    let key = dir.join("id_ed25519");
    if !key.exists() {
        fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut make = Command::new("ssh-keygen");
        make.args(["-q", "-t", "ed25519", "-N", "", "-C", "throw-away", "-f"])
            .arg(&key);
        output(&mut make, "making the lab's key for releases")?;
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use std::process::Output;

    use super::*;

    /// A signed release of three files, and the cache with its key.
    fn release() -> (tempfile::TempDir, tempfile::TempDir) {
        let (dir, cache) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for name in ["halite.tar.gz", "halite-ctl.deb", "CHANGELOG.md"] {
            fs::write(dir.path().join(name), format!("the content of {name}")).unwrap();
        }
        let signer = Signer::open(None, cache.path()).unwrap();
        signer.sign(dir.path()).unwrap();
        (dir, cache)
    }

    fn verify(dir: &Path) -> Output {
        let mut shell = Command::new("sh");
        shell
            .current_dir(dir)
            .env("LC_ALL", "C")
            .args(["-c", VERIFY]);
        shell.output().unwrap()
    }

    fn said(output: &Output) -> String {
        let both = [&output.stdout, &output.stderr];
        both.map(|said| String::from_utf8_lossy(said).into_owned())
            .concat()
    }

    #[test]
    fn a_whole_release_is_verified_by_the_printed_commands() {
        let (dir, cache) = release();
        let done = verify(dir.path());
        assert!(done.status.success(), "{}", said(&done));
        assert!(
            said(&done).contains("halite-ctl.deb: OK"),
            "{}",
            said(&done)
        );
        // Only some of the files were downloaded.
        fs::remove_file(dir.path().join("halite.tar.gz")).unwrap();
        assert!(verify(dir.path()).status.success());
        // The same key signs the same files with the same bytes.
        let first = fs::read(dir.path().join("SHA256SUMS.sig")).unwrap();
        let again = tempfile::tempdir().unwrap();
        for name in ["halite.tar.gz", "halite-ctl.deb", "CHANGELOG.md"] {
            fs::write(again.path().join(name), format!("the content of {name}")).unwrap();
        }
        let key = cache.path().join("release-key/id_ed25519");
        let signer = Signer::open(Some(&key), cache.path()).unwrap();
        signer.sign(again.path()).unwrap();
        assert_eq!(
            first,
            fs::read(again.path().join("SHA256SUMS.sig")).unwrap()
        );
    }

    #[test]
    fn a_changed_byte_is_found_by_the_printed_commands() {
        for (name, found) in [
            ("halite.tar.gz", "halite.tar.gz: FAILED"),
            (CHECKSUMS, "incorrect signature"),
        ] {
            let (dir, _cache) = release();
            let path = dir.path().join(name);
            let mut bytes = fs::read(&path).unwrap();
            bytes[3] ^= 1;
            fs::write(&path, bytes).unwrap();
            let done = verify(dir.path());
            assert!(!done.status.success(), "{name}: {}", said(&done));
            assert!(said(&done).contains(found), "{name}: {}", said(&done));
        }
    }

    #[test]
    fn the_signature_of_another_key_is_refused() {
        let ((dir, _cache), (other, _other_cache)) = (release(), release());
        let from = other.path().join(SIGNERS);
        fs::copy(from, dir.path().join(SIGNERS)).unwrap();
        assert!(!verify(dir.path()).status.success());
    }

    #[test]
    fn the_readme_and_the_guide_have_the_commands() {
        for page in ["README.md", "docs/guide/builder.md"] {
            let text = halite_lab::build::source_root().join(page);
            let text = fs::read_to_string(text).unwrap();
            assert!(text.contains(VERIFY), "{page} lacks:\n{VERIFY}");
            for package in ["halite-ctl", "halite-builder"] {
                let file = format!("./{package}_{}-1_amd64.deb", crate::VERSION);
                assert!(text.contains(&file), "{page} lacks {file}");
            }
        }
        for name in [CHECKSUMS, SIGNERS, SIGNER, NAMESPACE] {
            assert!(VERIFY.contains(name), "{name}");
        }
    }
}
