//! The content of a certificate: subject, names, usages, lifetime.

use std::net::IpAddr;

use halite_proto::identity::{Identity, IdentityKind};
use halite_states::low::Chunk;
use serde_json::Value;

/// The CAs from which a state may request certificates. Certificates of `halite` are identities:
/// they come from enrolment, and for root on a control plane from
/// [`halite_fleet::keys::host_root`].
pub const CHUNK_CAS: [&str; 4] = ["kubernetes", "etcd", "front-proxy", "site"];
/// A year: kubeadm's `CertificateValidityPeriod`.
const DEFAULT_DAYS: u32 = 365;
/// Ten years: no leaf outlives a CA made on the same day.
const MOST_DAYS: u32 = 3650;

/// The reason why a state gets no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProfileError {
    /// The state function has no certificate.
    #[error("{0} does not request a certificate")]
    NoCertificate(String),
    /// An argument of the state is invalid.
    #[error("{name}: {reason}")]
    Argument {
        /// The argument.
        name: &'static str,
        /// The problem of its value.
        reason: String,
    },
}

fn wrong(name: &'static str, reason: impl Into<String>) -> ProfileError {
    ProfileError::Argument {
        name,
        reason: reason.into(),
    }
}

/// The content of a certificate except its key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Profile {
    /// Subject's common name.
    pub common_name: String,
    /// Subject's organizations.
    pub organization: Vec<String>,
    /// DNS names.
    pub dns_names: Vec<String>,
    /// Addresses.
    pub addresses: Vec<IpAddr>,
    /// The identity, for certificates of the `halite` CA.
    pub identity: Option<Identity>,
    /// `true` if the holder may act as a TLS server.
    pub server_auth: bool,
    /// `true` if the holder may act as a TLS client.
    pub client_auth: bool,
    /// Validity in days from now, limited by the CA's own end.
    pub days: u32,
    /// End of validity that replaces `days`, in seconds since the epoch; limited in the same way.
    pub ends: Option<i64>,
}

impl Profile {
    /// The profile of a minion or operator.
    #[must_use]
    pub fn identity(identity: &Identity) -> Self {
        Self {
            common_name: identity.id().to_owned(),
            organization: vec![format!("halite:{}", identity.kind())],
            identity: Some(identity.clone()),
            client_auth: true,
            server_auth: identity.kind() == IdentityKind::Master,
            days: DEFAULT_DAYS,
            ..Self::default()
        }
    }

    /// The certificate that a compiled state requests, and the CA that signs it. Only
    /// `x509.certificate` and `kubeconfig.managed` request one.
    ///
    /// # Errors
    /// The state requests no certificate, or one that no state may have.
    pub fn of_chunk(chunk: &Chunk) -> Result<(String, Self), ProfileError> {
        let kubeconfig = match chunk.function().as_str() {
            "x509.certificate" => false,
            "kubeconfig.managed" => true,
            other => return Err(ProfileError::NoCertificate(other.to_owned())),
        };
        let arguments = Arguments(chunk);
        let ca = arguments
            .text("ca")?
            .unwrap_or_else(|| "kubernetes".to_owned());
        if !CHUNK_CAS.contains(&ca.as_str()) {
            let known = CHUNK_CAS.join(", ");
            return Err(wrong(
                "ca",
                format!("a state cannot use the CA {ca:?}; it can use {known}"),
            ));
        }
        let common_name = arguments
            .text("common_name")?
            .ok_or_else(|| wrong("common_name", "it is missing"))?;
        if common_name.is_empty() || common_name.chars().count() > 64 {
            return Err(wrong(
                "common_name",
                "it must have 1 to 64 characters (RFC 5280, ub-common-name)",
            ));
        }
        let organization = arguments.list("organization")?;
        if organization.len() > 1 {
            // The library that writes certificates keeps one value per attribute; kubeadm never
            // uses two.
            return Err(wrong("organization", "a certificate can have at most one"));
        }
        if !arguments.list("sans_uri")?.is_empty() {
            return Err(wrong(
                "sans_uri",
                "only certificates of the CA \"halite\" have one",
            ));
        }
        let address = |text: &String| {
            text.parse::<IpAddr>()
                .map_err(|_| wrong("sans_ip", format!("{text:?} is not an address")))
        };
        let profile = Self {
            common_name,
            organization,
            dns_names: arguments.list("sans_dns")?,
            addresses: arguments
                .list("sans_ip")?
                .iter()
                .map(address)
                .collect::<Result<_, _>>()?,
            identity: None,
            server_auth: arguments.flag("server_auth")?.unwrap_or(false),
            client_auth: arguments.flag("client_auth")?.unwrap_or(kubeconfig),
            days: arguments.days()?,
            ends: None,
        };
        if !profile.server_auth && !profile.client_auth {
            return Err(wrong(
                "server_auth or client_auth",
                "at least one must be true",
            ));
        }
        Ok((ca, profile))
    }
}

/// Typed access to a chunk's arguments.
struct Arguments<'a>(&'a Chunk);

impl Arguments<'_> {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.args.get(name).filter(|value| !value.is_null())
    }

    fn text(&self, name: &'static str) -> Result<Option<String>, ProfileError> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => scalar(value)
                .map(Some)
                .ok_or_else(|| wrong(name, "it must be a text")),
        }
    }

    /// A list of texts; a single text counts as a list of one.
    fn list(&self, name: &'static str) -> Result<Vec<String>, ProfileError> {
        let not_texts = || wrong(name, "it must be a list of texts");
        match self.get(name) {
            None => Ok(Vec::new()),
            Some(Value::Array(items)) => items
                .iter()
                .map(|item| scalar(item).ok_or_else(not_texts))
                .collect(),
            Some(one) => scalar(one).map(|text| vec![text]).ok_or_else(not_texts),
        }
    }

    fn flag(&self, name: &'static str) -> Result<Option<bool>, ProfileError> {
        match self.get(name) {
            None => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(wrong(name, "it must be true or false")),
        }
    }

    fn days(&self) -> Result<u32, ProfileError> {
        let Some(value) = self.get("days") else {
            return Ok(DEFAULT_DAYS);
        };
        let number = value
            .as_u64()
            .or_else(|| value.as_str().and_then(|text| text.parse().ok()));
        match number.and_then(|days| u32::try_from(days).ok()) {
            Some(days) if (1..=MOST_DAYS).contains(&days) => Ok(days),
            _ => Err(wrong(
                "days",
                format!("it must be a whole number from 1 to {MOST_DAYS}"),
            )),
        }
    }
}

fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
