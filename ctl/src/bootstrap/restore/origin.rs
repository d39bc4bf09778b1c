//! The origin of a backup. A person who can write to the directory of the backups, for example a
//! share, can put a backup of another cluster there, encrypted to the same recipients: the restored
//! cluster would have its CAs, operators and states.

use anyhow::bail;
use halite_backup::{Header, Manifest};
use halite_durable::digest::is_sha256;

use crate::cli::Bootstrap;

/// The operator's knowledge of a backup's origin.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The hash of the CA that must have signed it.
    pub ca_hash: Option<String>,
    /// `true` if it may be unsigned.
    pub unsigned: bool,
    /// `true` if a person is shown the CA and confirms it.
    pub asks: bool,
}

impl Origin {
    /// Reads the options of the command line.
    ///
    /// # Errors
    /// `--ca-hash` is not a SHA-256.
    pub fn from_args(args: &Bootstrap) -> anyhow::Result<Self> {
        Ok(Self {
            ca_hash: args.ca_hash.as_deref().map(parse).transpose()?,
            unsigned: args.unsigned,
            asks: args.test || !args.yes,
        })
    }

    /// Refuses a backup that is not known to be from the operator's cluster.
    ///
    /// # Errors
    /// The backup is unsigned, another CA has signed it, or its CA was not compared.
    pub fn check(&self, manifest: &Manifest) -> anyhow::Result<()> {
        let Header {
            cluster,
            cluster_id,
            created,
            ..
        } = &manifest.header;
        let what = format!("the backup of the cluster {cluster} as of {created}");
        if !manifest.is_signed {
            if self.unsigned {
                return Ok(());
            }
            bail!(
                "cannot restore {what}: it is not signed, so the cluster that made it is unknown; use one that a newer version made. \
                 If there is none, and you know that no other person could write its file, pass --unsigned. Nothing was changed."
            );
        }
        match &self.ca_hash {
            Some(hash) if hash == cluster_id => Ok(()),
            Some(hash) => bail!(
                "cannot restore {what}: it is signed by the CA {cluster_id}, and --ca-hash has {hash}; use a backup of your cluster. \
                 Nothing was changed."
            ),
            None if self.asks => Ok(()),
            None => bail!(
                "cannot restore {what} without confirmation: it is signed by the CA {cluster_id}; compare that with the hash that you \
                 noted, and pass --ca-hash with it, or omit --yes. Nothing was changed."
            ),
        }
    }

    /// The description of the origin, for the screen.
    pub fn summary(&self, manifest: &Manifest) -> String {
        let ca = &manifest.header.cluster_id;
        match (manifest.is_signed, &self.ca_hash) {
            (false, _) => "not signed: the cluster that made it is unknown".to_owned(),
            (true, Some(_)) => format!("signed by the CA {ca}, as --ca-hash says"),
            (true, None) => {
                format!("signed by the CA {ca}: continue only if that is the hash that you noted")
            }
        }
    }
}

/// A SHA-256, also as `openssl x509 -fingerprint` writes it.
fn parse(text: &str) -> anyhow::Result<String> {
    let digits = text.replace(':', "").to_ascii_lowercase();
    if is_sha256(&digits) {
        return Ok(digits);
    }
    bail!(
        "invalid --ca-hash: a SHA-256 has 64 hexadecimal digits; `ctl backup create` shows the hash of the cluster's CA"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_read_as_openssl_writes_it() {
        let hash = "0a".repeat(32);
        let pairs = vec!["0A"; 32].join(":");
        assert_eq!(parse(&pairs).unwrap(), hash);
        assert_eq!(parse(&hash).unwrap(), hash);
        assert!(parse("0a").is_err());
    }
}
