//! Epochs as evidence: the order of the masters of a cluster, which no host can claim without a
//! master's key.
//!
//! Each new master has a higher number than every previous master. Two that were promoted at the
//! same time on two sides of a network partition may have the same number: then the holder decides,
//! the same way everywhere.

use crate::pki;
use crate::v1::Epoch;

/// The first line of the signed statement. The CA also signs certificates and backups, which start
/// with another byte.
const KIND: &str = "halite-epoch 1";

impl Epoch {
    /// The number alone, which no signature proves.
    #[must_use]
    pub fn unproven(number: u64) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    /// The evidence to send to others: `None` without a signature.
    #[must_use]
    pub fn evidence(&self) -> Option<Self> {
        (!self.signature.is_empty()).then(|| self.clone())
    }

    /// The signed statement: one line each for kind, number and holder. It is stored on disks, and
    /// must be the same in all versions.
    #[must_use]
    pub fn statement(&self) -> String {
        format!("{KIND}\n{}\n{}\n", self.number, self.holder)
    }

    /// Its rank among the epochs of the cluster: of two masters the one with the higher rank acts.
    #[must_use]
    pub fn rank(&self) -> (u64, &str) {
        (self.number, &self.holder)
    }

    /// Returns whether the CA with this certificate (PEM) has signed it. The expiry of the
    /// certificate does not matter.
    #[must_use]
    pub fn is_proven(&self, ca_pem: &str) -> bool {
        pki::is_signed(ca_pem, self.statement().as_bytes(), &self.signature)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_signed_is_the_same_in_each_version() {
        let epoch = Epoch {
            number: 4,
            holder: "cp-1-0f".to_owned(),
            signature: "of no account".to_owned(),
        };
        assert_eq!(epoch.statement(), "halite-epoch 1\n4\ncp-1-0f\n");
    }
}
