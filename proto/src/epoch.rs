//! Epochs as evidence: the order of the masters of a cluster, which no host can claim without a master.
//!
//! Each new master has a higher number than every master before it. Two that were promoted at the same time on two sides of a
//! cut may have the same number: then the holder decides, everywhere in the same way.

use serde_json::json;

use crate::pki;
use crate::v1::Epoch;

/// The kind of the statement that is signed. The CA signs certificates too, which do not begin with a brace.
const KIND: &str = "halite-epoch 1";

impl Epoch {
    /// What is signed: a JSON text of kind, number and holder.
    #[must_use]
    pub fn statement(&self) -> String {
        json!({"kind": KIND, "epoch": self.number, "holder": self.holder}).to_string()
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
