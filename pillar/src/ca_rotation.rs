//! The record of a CA that is being replaced, or of the key pair of service accounts.
//!
//! Both certificates are trusted before the new one signs, and until the old one signs nothing that
//! is still in use (Kubernetes' documentation, "Manual Rotation of CA Certificates"). Each
//! [`RotationStage`] reaches all hosts before the next begins.

use serde::{Deserialize, Serialize};

/// The CAs that can be rotated.
pub const ROTATED_CAS: [&str; 5] = ["kubernetes", "etcd", "front-proxy", "halite", "site"];

/// The CAs of the cluster, which an operator may import.
pub const CLUSTER_CAS: [&str; 3] = ["kubernetes", "etcd", "front-proxy"];

/// The name of the key pair of service accounts among the rotations.
pub const SERVICE_ACCOUNTS: &str = "sa";

/// All that can be rotated in stages: the CAs, and the key pair of service accounts.
pub const ROTATED: [&str; 6] = [
    "kubernetes",
    "etcd",
    "front-proxy",
    "halite",
    "site",
    SERVICE_ACCOUNTS,
];

/// Those whose stages a host records, to refuse the states of a master with earlier ones. A host
/// does not connect to a master whose CA of identities it does not trust, and the CA of the site's
/// servers is only used by the hosts of one master.
pub const RECORDED: [&str; 4] = ["kubernetes", "etcd", "front-proxy", SERVICE_ACCOUNTS];

/// The number of stages of a rotation.
const STAGES: u64 = 3;

/// The stage of a rotation, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RotationStage {
    /// Both are trusted, and the old one signs.
    Trust,
    /// Both are trusted, and the new one signs.
    Sign,
    /// Only the new one is trusted.
    Only,
}

impl RotationStage {
    /// The stage with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "trust" => Some(Self::Trust),
            "sign" => Some(Self::Sign),
            "only" => Some(Self::Only),
            _ => None,
        }
    }

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Trust => "trust",
            Self::Sign => "sign",
            Self::Only => "only",
        }
    }
}

/// A rotation that has begun and not ended. `Debug` does not print the key.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaRotation {
    /// The stage.
    pub stage: RotationStage,
    /// The new certificate, or the new public key of service accounts (PEM).
    pub certificate: String,
    /// The new private key (PEM): a secret.
    pub key: String,
    /// The new CA's certificate, signed by the old CA (PEM): servers send it, so that clients that
    /// trust only the old one verify them. `None` for service accounts, and if the old CA is not
    /// trusted any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cross: Option<String>,
    /// `true` if the old one was still to sign when it left, because its key may be known to
    /// others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub compromised: bool,
    /// The number of rotations of this CA that ended before this one.
    #[serde(default)]
    pub earlier: u64,
    /// The time at which the stage began, in milliseconds since the epoch; 0 if it is not known.
    #[serde(default)]
    pub began: i64,
    /// The time from which on all hosts have had the stage, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<i64>,
}

impl std::fmt::Debug for CaRotation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CaRotation")
            .field("stage", &self.stage)
            .finish_non_exhaustive()
    }
}

impl CaRotation {
    /// The path of the record below the master's directory.
    #[must_use]
    pub fn path(name: &str) -> String {
        format!("ca/{name}.rotation.json")
    }

    /// The path of the list of the certificates, or public keys of service accounts, that ended
    /// rotations have replaced, below the master's directory.
    #[must_use]
    pub fn dropped_path(name: &str) -> String {
        format!("ca/{name}.dropped.json")
    }

    /// The number of this stage among all stages of the CA. Hosts refuse states with a smaller one
    /// than their own.
    #[must_use]
    pub fn number(&self) -> u64 {
        let stage = match self.stage {
            RotationStage::Trust => 1,
            RotationStage::Sign => 2,
            RotationStage::Only => STAGES,
        };
        Self::number_after(self.earlier) + stage
    }

    /// The number of the last stage after this many rotations.
    #[must_use]
    pub fn number_after(rotations: u64) -> u64 {
        rotations.saturating_mul(STAGES)
    }

    /// Returns whether the new one signs.
    #[must_use]
    pub fn new_signs(&self) -> bool {
        self.stage >= RotationStage::Sign
    }

    /// The trusted certificates or public keys (PEM), the signer first.
    #[must_use]
    pub fn trusted(&self, old: &str) -> String {
        match self.stage {
            RotationStage::Trust => joined(old, &self.certificate),
            RotationStage::Sign => joined(&self.certificate, old),
            RotationStage::Only => self.certificate.clone(),
        }
    }

    /// The certificate or public key that signs (PEM), if another one is trusted too.
    #[must_use]
    pub fn one_of_two<'a>(&'a self, old: &'a str) -> Option<&'a str> {
        match self.stage {
            RotationStage::Trust => Some(old),
            RotationStage::Sign => Some(&self.certificate),
            RotationStage::Only => None,
        }
    }
}

fn joined(first: &str, second: &str) -> String {
    format!("{}\n{}\n", first.trim_end(), second.trim_end())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test's panic is its report")]
mod tests {
    use super::*;

    #[test]
    fn the_signer_is_the_first_of_the_trusted_ones_and_the_record_is_read_back() {
        let mut rotation = CaRotation {
            stage: RotationStage::Trust,
            certificate: "new\n".to_owned(),
            key: "canary".to_owned(),
            cross: None,
            compromised: false,
            earlier: 2,
            began: 5,
            reached: None,
        };
        let mut found = Vec::new();
        for stage in [
            RotationStage::Trust,
            RotationStage::Sign,
            RotationStage::Only,
        ] {
            rotation.stage = stage;
            assert_eq!(RotationStage::named(stage.name()), Some(stage));
            let text = serde_json::to_string(&rotation).unwrap();
            assert_eq!(serde_json::from_str::<CaRotation>(&text).unwrap(), rotation);
            let one = rotation.one_of_two("old\n").map(str::to_owned);
            found.push((rotation.trusted("old\n"), one, rotation.new_signs()));
        }
        let row =
            |all: &str, one: Option<&str>, new: bool| (all.to_owned(), one.map(str::to_owned), new);
        assert_eq!(
            found,
            [
                row("old\nnew\n", Some("old\n"), false),
                row("new\nold\n", Some("new\n"), true),
                row("new\n", None, true),
            ]
        );
        assert!(!format!("{rotation:?}").contains("canary"));
    }
}
