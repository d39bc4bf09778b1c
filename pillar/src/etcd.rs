//! `etcd` of the cluster document.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use x509_parser::pem::Pem;

use crate::component::{Patch, patches};
use crate::flags::Flags;
use crate::trust::encode;
use crate::{field_schemas, formats};

pub use crate::formats::Weekly;

/// Pillar path of the private key of the client of an external etcd, for hosts with a control
/// plane.
pub const CLIENT_KEY: &str = "etcd.external.key";

/// etcd: the hosts of its members, the program that runs a member, and its flags.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Etcd {
    /// The hosts of its members: the control planes (`stacked`); the hosts with the role `etcd`,
    /// which need no control plane (`dedicated`, with `mode: host-service`); or none of this
    /// cluster (`external`). A cluster cannot change between an external etcd and its own members
    /// once it has been made.
    pub placement: Placement,
    /// The way in which a member runs: as a pod of the kubelet (`static-pod`), or as a systemd unit
    /// (`host-service`).
    pub mode: Mode,
    /// The etcd of `placement: external`.
    ///
    /// Required with `placement: external`, and refused otherwise.
    pub external: Option<ExternalEtcd>,
    /// Flags of a member, without dashes, for example `quota-backend-bytes: "8589934592"`. They are
    /// added to its own, or replace them. A list gives a flag several times.
    #[schemars(schema_with = "field_schemas::flags")]
    pub extra_args: Flags,
    /// Strategic merge patches of a member's static pod, applied in order.
    ///
    /// Refused with `mode: host-service`.
    #[schemars(schema_with = "patches")]
    pub patches: Vec<Patch>,
    /// The defragmentation of the members' databases.
    ///
    /// etcd never shrinks its database by itself. The master does this, one member at a time, the
    /// leader last. An external etcd is left alone.
    pub defrag: Defrag,
}

/// The defragmentation of the members' databases: one member at a time, the leader last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Defrag {
    /// The time, by the clock of the master's host: `Sun 03:30` each week, `03:30` each day, or
    /// `never`. The master makes up for a time at which it was off.
    #[schemars(schema_with = "field_schemas::weekly")]
    pub at: String,
    /// The free part of a member's database above which the member is defragmented.
    #[schemars(schema_with = "field_schemas::percent")]
    pub above: String,
}

impl Default for Defrag {
    fn default() -> Self {
        Self {
            at: "Sun 03:30".to_owned(),
            above: "45%".to_owned(),
        }
    }
}

impl Defrag {
    /// The declared time; `None` for `never`.
    #[must_use]
    pub fn weekly(&self) -> Option<Weekly> {
        formats::weekly(&self.at)
    }

    /// The declared part, in percent.
    #[must_use]
    pub fn above_percent(&self) -> u8 {
        formats::percent(&self.above).unwrap_or(100)
    }
}

/// The hosts of etcd's members.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(schema_with = "field_schemas::etcd_placement")]
pub enum Placement {
    /// The hosts with a control plane.
    #[default]
    Stacked,
    /// The hosts with the role `etcd`, with a control plane or without one.
    Dedicated,
    /// Hosts outside this cluster.
    External,
}

impl Placement {
    /// The placement with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        let mut all = [Self::Stacked, Self::Dedicated, Self::External].into_iter();
        all.find(|placement| placement.as_str() == name)
    }

    /// The name in documents.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Stacked => "stacked",
            Self::Dedicated => "dedicated",
            Self::External => "external",
        }
    }
}

/// The program that runs a member.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(schema_with = "field_schemas::etcd_mode")]
pub enum Mode {
    /// The kubelet, as a static pod.
    #[default]
    StaticPod,
    /// systemd, as `etcd.service`.
    HostService,
}

/// An etcd that does not belong to this cluster.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExternalEtcd {
    /// The URLs of its members for clients, for example `https://10.0.0.21:2379`.
    #[schemars(schema_with = "field_schemas::etcd_endpoints")]
    pub endpoints: Vec<String>,
    /// The certificate of the authority that signed its members' certificates (PEM).
    #[schemars(with = "String")]
    pub ca: String,
    /// The name in `secrets` of the client's certificate and its private key, both PEM, one after
    /// the other. That secret needs no roles or nodes: the hosts with a control plane get it.
    #[schemars(schema_with = "field_schemas::secret_name")]
    pub client_secret: String,
}

/// A client's certificate and private key, both PEM. `Debug` does not print the key.
#[derive(Clone, PartialEq, Eq)]
pub struct ClientIdentity {
    /// The certificate, followed by its intermediate authorities.
    pub certificate: String,
    /// The private key: a secret.
    pub key: String,
}

impl std::fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientIdentity")
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}

/// The reason why a text is not a client's certificate with its key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoIdentity {
    /// A block is cut off or not base64.
    #[error("it is cut off, or not base64 between its lines")]
    Damaged,
    /// The text has no certificate.
    #[error("there is no certificate in it")]
    NoCertificate,
    /// The text has no key, or several.
    #[error("it has {0} private keys, not one")]
    Keys(usize),
    /// The key is encrypted, and no program could ask for its password.
    #[error("its private key is encrypted")]
    Encrypted,
    /// Another block than a certificate or a key.
    #[error("it has a {0}, which is neither a certificate nor a private key")]
    Other(String),
}

/// Separates a client's certificate and its key.
///
/// # Errors
/// The text does not have exactly one certificate, or one chain, and one key.
pub fn client_identity(text: &str) -> Result<ClientIdentity, NoIdentity> {
    let (mut certificate, mut keys) = (String::new(), Vec::new());
    for block in Pem::iter_from_buffer(text.as_bytes()) {
        let block = block.map_err(|_| NoIdentity::Damaged)?;
        let text = encode(&block.label, &block.contents);
        match block.label.as_str() {
            "CERTIFICATE" => certificate.push_str(&text),
            "PRIVATE KEY" | "EC PRIVATE KEY" | "RSA PRIVATE KEY" => keys.push(text),
            "ENCRYPTED PRIVATE KEY" => return Err(NoIdentity::Encrypted),
            // openssl writes the curve before the key.
            "EC PARAMETERS" => {}
            other => return Err(NoIdentity::Other(other.to_owned())),
        }
    }
    if certificate.is_empty() {
        return Err(NoIdentity::NoCertificate);
    }
    let count = keys.len();
    match (keys.pop(), count) {
        (Some(key), 1) => Ok(ClientIdentity { certificate, key }),
        _ => Err(NoIdentity::Keys(count)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test's panic is its report")]
mod tests {
    use super::*;

    fn pair() -> (String, String) {
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(Vec::new()).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let plain = |text: String| text.replace("\r\n", "\n");
        (plain(certificate.pem()), plain(key.serialize_pem()))
    }

    #[test]
    fn a_certificate_and_its_key_are_separated() {
        let ((certificate, key), (other, other_key)) = (pair(), pair());
        for text in [
            format!("{certificate}{key}"),
            format!("{key}\n# of the operator\n{certificate}").replace('\n', "\r\n"),
        ] {
            let found = client_identity(&text).unwrap();
            assert_eq!(
                (&found.certificate, &found.key),
                (&certificate, &key),
                "{text}"
            );
            assert!(!format!("{found:?}").contains(key.lines().nth(1).unwrap()));
        }
        let chain = client_identity(&format!("{certificate}{other}{key}")).unwrap();
        assert_eq!(chain.certificate, format!("{certificate}{other}"));
        for (text, wanted) in [
            (String::new(), NoIdentity::NoCertificate),
            (key.clone(), NoIdentity::NoCertificate),
            (certificate.clone(), NoIdentity::Keys(0)),
            (
                format!("{certificate}{key}{other_key}"),
                NoIdentity::Keys(2),
            ),
            (
                format!("{certificate}{}", &key[..key.len() / 2]),
                NoIdentity::Damaged,
            ),
            (
                format!("{certificate}{key}").replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY"),
                NoIdentity::Encrypted,
            ),
            (
                format!("{certificate}{key}").replace("PRIVATE KEY", "PUBLIC KEY"),
                NoIdentity::Other("PUBLIC KEY".to_owned()),
            ),
        ] {
            assert_eq!(client_identity(&text), Err(wanted), "{text}");
        }
    }

    #[test]
    fn the_default_is_sunday_night_above_45_percent() {
        let default = Defrag::default();
        let sunday = Weekly {
            day: Some(6),
            hour: 3,
            minute: 30,
        };
        assert_eq!(default.weekly(), Some(sunday));
        assert_eq!(default.above_percent(), 45);
        assert!(formats::check("weekly", &default.at).is_ok());
        assert!(formats::check("percent", &default.above).is_ok());
    }

    #[test]
    fn a_time_without_a_day_is_daily_and_never_is_none() {
        let at = |at: &str| {
            let at = at.to_owned();
            Defrag {
                at,
                ..Defrag::default()
            }
            .weekly()
        };
        let daily = Weekly {
            day: None,
            hour: 23,
            minute: 5,
        };
        assert_eq!(at("23:05"), Some(daily));
        assert_eq!(at("never"), None);
    }
}
