//! Epochs as evidence: the order of the masters of a cluster, which no host can claim without a master.
//!
//! Each new master has a higher number than every master before it. Two that were promoted at the same time on two sides of a
//! cut may have the same number: then the holder decides, everywhere in the same way.

use crate::pki;
use crate::v1::Epoch;

/// The first line of what is signed. The CA signs certificates and backups too, which begin with another byte.
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

    /// What is shown to others: nothing without a signature.
    #[must_use]
    pub fn evidence(&self) -> Option<Self> {
        (!self.signature.is_empty()).then(|| self.clone())
    }

    /// What is signed: a line each of kind, number and holder. It is on disks, and compared between versions.
    #[must_use]
    pub fn statement(&self) -> String {
        format!("{KIND}\n{}\n{}\n", self.number, self.holder)
    }

    /// Its place among the epochs of the cluster: of two masters the one with the higher rank acts.
    #[must_use]
    pub fn rank(&self) -> (u64, &str) {
        (self.number, &self.holder)
    }

    /// Returns whether the CA with this certificate (PEM) has signed it. The end of the certificate does not count.
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
