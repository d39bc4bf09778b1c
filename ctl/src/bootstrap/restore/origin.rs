//! Where a backup is from. Who may write the directory of the backups, a share for example, can put
//! a cluster of his own there, encrypted to the same recipients: its CAs, operators and states would
//! be those of the restored one.

use anyhow::bail;
use halite_backup::{Header, Manifest};
use halite_durable::digest::is_sha256;

use crate::cli::Bootstrap;

/// The operator's knowledge of where a backup comes from.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The hash of the CA that must have signed it.
    pub ca_hash: Option<String>,
    /// True if it may be unsigned.
    pub unsigned: bool,
    /// True if the CA is shown to a person, who confirms it.
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

    /// Refuses a backup that is not known to be of the operator's cluster.
    ///
    /// # Errors
    /// Another CA has signed it, or none, or which one it is was not compared.
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
                "cannot restore {what}: it is not signed, so which cluster made it is not known; use one that a newer version made. \
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
                "cannot restore {what} without a question: it is signed by the CA {cluster_id}; compare that with the hash that you \
                 noted, and pass --ca-hash with it, or leave out --yes. Nothing was changed."
            ),
        }
    }

    /// The words about the origin, for the screen.
    pub fn summary(&self, manifest: &Manifest) -> String {
        let ca = &manifest.header.cluster_id;
        match (manifest.is_signed, &self.ca_hash) {
            (false, _) => "not signed: which cluster made it is not known".to_owned(),
            (true, Some(_)) => format!("signed by the CA {ca}, as --ca-hash says"),
            (true, None) => {
                format!("signed by the CA {ca}: go on only if that is the hash that you noted")
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
        "invalid --ca-hash: a SHA-256 has 64 hexadecimal digits; `ctl backup create` shows the one of the cluster's CA"
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
