//! An operator's identity on disk: the directory that `halite-master init` makes, or the one file
//! that `ctl operator create` writes.

use std::fs;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use halite_proto::pki;
use halite_proto::pki::PrivateKey;
use halite_proto::transport::ClientIdentity;

/// The certificate and key of an operator, and the CAs of the master.
pub struct OperatorIdentity {
    /// Certificate and key.
    pub client: ClientIdentity,
    /// The certificates of the trusted CAs, PEM.
    pub ca_pem: String,
}

/// Reads an identity from its directory or file.
///
/// # Errors
/// A file cannot be read, or is not an identity.
pub fn read(path: &Path) -> anyhow::Result<OperatorIdentity> {
    if path.is_file() {
        return from_file(path);
    }
    let part = |name: &str| text(&path.join(name));
    Ok(OperatorIdentity {
        client: ClientIdentity {
            certificate_pem: part("operator.crt")?,
            key_pem: part("operator.key")?,
        },
        ca_pem: part("ca.crt")?,
    })
}

fn text(path: &Path) -> anyhow::Result<String> {
    fs::read_to_string(path).with_context(|| {
        format!(
            "cannot read the operator's identity from {}; run this as root on a control-plane host, or name its directory \
             or file with --identity",
            path.display()
        )
    })
}

/// The parts of one file: the key, the operator's certificate, then the CA's.
fn from_file(path: &Path) -> anyhow::Result<OperatorIdentity> {
    let text = text(path)?;
    let wrong = || {
        format!(
            "cannot use {} as an operator's identity: it must have a key, a certificate and the CA's certificate, as \
             ctl operator create writes them",
            path.display()
        )
    };
    let key = PrivateKey::from_pem(&text).with_context(wrong)?;
    let certificates = pki::certificates(&text).with_context(wrong)?;
    let [own, cas @ ..] = certificates.as_slice() else {
        anyhow::bail!(wrong());
    };
    if cas.is_empty() {
        anyhow::bail!(wrong());
    }
    Ok(OperatorIdentity {
        client: ClientIdentity {
            certificate_pem: pki::certificate_pem(own),
            key_pem: key.to_pem(),
        },
        ca_pem: cas.iter().map(pki::certificate_pem).collect(),
    })
}

/// The text of one file.
fn content(key_pem: &str, certificate_pem: &str, ca_pem: &str) -> String {
    [key_pem, certificate_pem, ca_pem]
        .map(|pem| format!("{}\n", pem.trim_end()))
        .concat()
}

/// Replaces the certificate and the CAs in an operator's file.
///
/// # Errors
/// The file cannot be written; then the earlier one stays.
pub fn replace(path: &Path, identity: &OperatorIdentity) -> anyhow::Result<()> {
    let OperatorIdentity { client, ca_pem } = identity;
    let text = content(&client.key_pem, &client.certificate_pem, ca_pem);
    // The file behind a link, which stays that of its owner.
    let path = &fs::canonicalize(path)?;
    let before = fs::metadata(path)?;
    halite_durable::files::replace(path, 0o600, text.as_bytes())?;
    let now = fs::metadata(path)?;
    if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
        chown(path, Some(before.uid()), Some(before.gid()))?;
    }
    Ok(())
}

/// A new file for an identity, readable only by its owner. It is removed unless it is finished.
pub struct NewIdentity {
    path: PathBuf,
    file: File,
    is_finished: bool,
}

impl NewIdentity {
    /// Creates the file.
    ///
    /// # Errors
    /// The file already exists, or cannot be created.
    pub fn begin(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path);
        let file = file.map_err(|error| {
            let remedy = if error.kind() == ErrorKind::AlreadyExists {
                "; name a file that does not exist"
            } else {
                ""
            };
            anyhow::anyhow!("cannot make {}: {error}{remedy}", path.display())
        })?;
        Ok(Self {
            path: path.to_owned(),
            file,
            is_finished: false,
        })
    }

    /// Writes the identity.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn finish(
        mut self,
        key: &PrivateKey,
        certificate_pem: &str,
        ca_pem: &str,
    ) -> anyhow::Result<()> {
        let content = content(&key.to_pem(), certificate_pem, ca_pem);
        self.file
            .write_all(content.as_bytes())
            .and_then(|()| self.file.sync_all())
            .with_context(|| format!("cannot write {}", self.path.display()))?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for NewIdentity {
    fn drop(&mut self) {
        if !self.is_finished {
            // Without a certificate it is useless, and an existing file is refused the next time.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::client::CERTIFICATE;

    #[test]
    fn a_written_identity_is_read_again_and_only_its_owner_can() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("alice.pem");
        let key = PrivateKey::generate().unwrap();
        let file = NewIdentity::begin(&path).unwrap();
        file.finish(&key, CERTIFICATE, CERTIFICATE).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        let found = read(&path).unwrap();
        let read_key = PrivateKey::from_pem(&found.client.key_pem).unwrap();
        assert_eq!(read_key.fingerprint(), key.fingerprint());
        let same =
            |pem: &str| pki::certificates(pem).unwrap() == pki::certificates(CERTIFICATE).unwrap();
        assert!(same(&found.client.certificate_pem) && same(&found.ca_pem));
        // An existing file is neither read nor overwritten.
        let refused = NewIdentity::begin(&path).err().unwrap().to_string();
        assert!(refused.contains("does not exist"), "{refused}");
        assert!(read(&path).is_ok());
    }

    #[test]
    fn a_file_with_two_cas_is_read_and_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("alice.pem");
        let key = PrivateKey::generate().unwrap();
        let two = format!("{CERTIFICATE}{CERTIFICATE}");
        let file = NewIdentity::begin(&path).unwrap();
        file.finish(&key, CERTIFICATE, &two).unwrap();
        let mut found = read(&path).unwrap();
        assert_eq!(pki::certificates(&found.ca_pem).unwrap().len(), 2);
        found.ca_pem = CERTIFICATE.to_owned();
        replace(&path, &found).unwrap();
        let again = read(&path).unwrap();
        assert_eq!(pki::certificates(&again.ca_pem).unwrap().len(), 1);
        assert!(again.client == found.client);
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
    }

    #[test]
    fn a_call_that_fails_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("alice.pem");
        drop(NewIdentity::begin(&path).unwrap());
        assert!(!path.exists());
        let error = NewIdentity::begin(&directory.path().join("absent/x")).err();
        assert!(error.unwrap().to_string().contains("absent/x"));
    }

    #[test]
    fn a_file_that_is_not_an_identity_is_refused_with_the_remedy() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("x.pem");
        let key = PrivateKey::generate().unwrap().to_pem();
        for text in [
            "",
            CERTIFICATE,
            key.as_str(),
            &format!("{key}{CERTIFICATE}"),
        ] {
            fs::write(&path, text).unwrap();
            let error = format!("{:#}", read(&path).err().unwrap());
            assert!(error.contains("ctl operator create"), "{error}");
            assert!(!error.contains("PRIVATE"), "{error}");
        }
        let absent = format!(
            "{:#}",
            read(&directory.path().join("absent")).err().unwrap()
        );
        assert!(absent.contains("--identity"), "{absent}");
    }
}
