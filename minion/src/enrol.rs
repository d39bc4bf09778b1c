//! Enrolment: the host makes a key, sends its public half, and gets a certificate.
//!
//! The token contains the digest of the cluster's CA, so the master is verified before it gets the
//! token's secret. Enrolment may be repeated: the key stays the same, and the master recognises it.

use std::time::Duration;

use halite_proto::backoff::Backoff;
use halite_proto::ids::MinionId;
use halite_proto::pki::{Inspected, PrivateKey};
use halite_proto::transport::{Channel, ConnectError, connect, connect_pinned};
use halite_proto::v1::enrol_reply::State;
use halite_proto::v1::enrolment_client::EnrolmentClient;
use halite_proto::v1::{EnrolReply, EnrolRequest};

use crate::config::Config;
use crate::host::linux::files;
use crate::identity::{Identity, IdentityError, InvalidIdentity};
use crate::{grains, identity, masters};

/// The pauses between two requests until an operator has decided, which may take hours, and many
/// hosts may wait.
const PAUSES: Backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(10));
/// Longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(30);

/// The arguments of the command line.
#[derive(Debug, Clone)]
pub struct Request {
    /// `host:port`.
    pub master: String,
    /// This host's id; empty: its name.
    pub id: String,
    /// `ID.SECRET.CAHASH`, a secret; empty: wait for an operator, with `ca_hash` given.
    pub token: String,
    /// SHA-256 (hex) of the CA's certificate, for enrolment without a token.
    pub ca_hash: String,
    /// Enrol again although an identity exists.
    pub force: bool,
}

/// Enrolment failed.
#[derive(Debug, thiserror::Error)]
pub enum EnrolError {
    /// The token is not of the form that `ctl` prints.
    #[error("the token is malformed: it has the form ID.SECRET.CAHASH; copy all of it")]
    Token,
    /// Neither token nor CA hash.
    #[error("give --token, or --ca-hash to wait for an operator's `ctl key accept`")]
    NoTrust,
    /// This host already has an identity.
    #[error("this host is enrolled as {0} already; --force enrols it again")]
    Enrolled(MinionId),
    /// The id is not a valid name.
    #[error("the id {id:?}")]
    Id {
        /// The id.
        id: String,
        /// The rule that it breaks.
        source: halite_proto::identity::IdentityError,
    },
    /// No trusted connection.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// The call failed.
    #[error("{0}")]
    Call(String),
    /// The master rejected the request.
    #[error("the master refused: {0}")]
    Rejected(String),
    /// The master no longer has an accepted key of this host.
    #[error(
        "the certificate of this host has expired and the master no longer knows its key; ctl key accept {id} --fingerprint {fingerprint} lets it in again"
    )]
    Unknown {
        /// The id of this host.
        id: String,
        /// The fingerprint of its key.
        fingerprint: String,
    },
    /// The identity cannot be read or written.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// The CA's hash in a token.
fn ca_hash(token: &str) -> Result<&str, EnrolError> {
    let parts: Vec<&str> = token.split('.').collect();
    match parts.as_slice() {
        [id, secret, hash]
            if !id.is_empty()
                && !secret.is_empty()
                && hash.len() == 64
                && hash.bytes().all(|b| b.is_ascii_hexdigit()) =>
        {
            Ok(hash)
        }
        _ => Err(EnrolError::Token),
    }
}

/// Enrols this host and returns its id and its key's fingerprint. `report` receives each line for
/// the operator. Waits until an operator has decided.
///
/// # Errors
/// Bad input, no trusted master, or a refusal.
pub async fn enrol(
    config: &Config,
    request: &Request,
    mut report: impl FnMut(String),
) -> Result<(MinionId, String), EnrolError> {
    let hash = match (request.token.as_str(), request.ca_hash.as_str()) {
        ("", "") => return Err(EnrolError::NoTrust),
        ("", hash) => hash.to_owned(),
        (token, _) => ca_hash(token)?.to_owned(),
    };
    let name = if request.id.is_empty() {
        rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .to_ascii_lowercase()
    } else {
        request.id.clone()
    };
    let id = MinionId::for_host(&name).map_err(|source| EnrolError::Id { id: name, source })?;
    if let Ok(present) = Identity::load(config)
        && !request.force
    {
        return Err(EnrolError::Enrolled(present.id));
    }
    identity::make_directories(config)?;
    let key = identity::key(config)?;
    let csr_pem = key.request(&id).map_err(IdentityError::from)?;
    let grains_json = grains::collect(Some(&id), &config.reports)
        .await
        .to_string();
    let mut reported = false;
    let mut pauses = PAUSES;
    loop {
        let pinned = connect_pinned(&request.master, &hash).await?;
        let question = EnrolRequest {
            protocol: halite_proto::PROTOCOL,
            id: id.to_string(),
            csr_pem: csr_pem.clone(),
            token: request.token.clone(),
            grains_json: grains_json.clone(),
        };
        let reply = ask(pinned.channel, question).await?;
        match reply.state() {
            State::Accepted => {
                // An operator names this master: earlier information about masters does not count.
                masters::forget(config).map_err(IdentityError::from)?;
                // The certificate last: with it the host counts as enrolled.
                let plain = files::Owner {
                    mode: Some(0o644),
                    ..files::Owner::default()
                };
                let write = |path: &std::path::Path, text: &str| {
                    files::write(path, text.as_bytes(), plain).map_err(IdentityError::from)
                };
                write(&config.ca(), &pinned.ca_pem)?;
                write(&config.certificate(), &reply.certificate_pem)?;
                Identity::load(config)?;
                return Ok((id, key.fingerprint()));
            }
            State::Rejected => return Err(EnrolError::Rejected(reply.reason)),
            State::Pending => {
                if !reported {
                    reported = true;
                    report(format!(
                        "waiting for an operator: ctl key accept {id} --fingerprint {}",
                        key.fingerprint()
                    ));
                }
                pauses.wait().await;
            }
            State::Unspecified => {
                return Err(EnrolError::Call(
                    "the master's answer has an unknown state".to_owned(),
                ));
            }
        }
    }
}

async fn ask(channel: Channel, question: EnrolRequest) -> Result<EnrolReply, EnrolError> {
    let mut client = EnrolmentClient::new(channel);
    let reply = tokio::time::timeout(ANSWER, client.enrol(question)).await;
    Ok(reply
        .map_err(|_| EnrolError::Call("the master did not answer in time".to_owned()))?
        .map_err(|status| EnrolError::Call(status.message().to_owned()))?
        .into_inner())
}

/// Gets a certificate for the present key after the present certificate has expired, or its CA has
/// been replaced: the host was off for longer than its lifetime, or while minions got others. A
/// master that knows the key requires neither token nor operator.
///
/// # Errors
/// There is no trusted connection, or the master no longer accepts the key.
pub async fn again(
    config: &Config,
    master: &str,
    present: &Identity,
) -> Result<Identity, EnrolError> {
    let key = PrivateKey::from_pem(&present.client.key_pem).map_err(IdentityError::from)?;
    let question = EnrolRequest {
        protocol: halite_proto::PROTOCOL,
        id: present.id.to_string(),
        csr_pem: key.request(&present.id).map_err(IdentityError::from)?,
        token: String::new(),
        grains_json: String::new(),
    };
    // The CAs are those that this host trusts since its enrolment or its last link.
    let channel = connect(master, &present.ca_pem, None).await?;
    let reply = ask(channel, question).await?;
    match reply.state() {
        State::Accepted => {
            let plain = files::Owner {
                mode: Some(0o644),
                ..files::Owner::default()
            };
            let found = Inspected::from_pem(&reply.certificate_pem).map_err(IdentityError::from)?;
            if found.fingerprint != key.fingerprint() {
                return Err(IdentityError::from(InvalidIdentity::OtherKey).into());
            }
            files::write(
                &config.certificate(),
                reply.certificate_pem.as_bytes(),
                plain,
            )
            .map_err(IdentityError::from)?;
            Ok(Identity::load(config)?)
        }
        State::Pending => Err(EnrolError::Unknown {
            id: present.id.to_string(),
            fingerprint: key.fingerprint(),
        }),
        State::Rejected | State::Unspecified => Err(EnrolError::Rejected(reply.reason)),
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test looks for files")]
mod tests {
    use super::*;

    #[test]
    fn tokens_name_their_ca() {
        let hash = "a".repeat(64);
        assert_eq!(ca_hash(&format!("id.secret.{hash}")).unwrap(), hash);
        for bad in [
            "",
            "a.b",
            "a.b.c",
            &format!("id..{hash}"),
            &format!("id.s.{hash}.x"),
            &format!("i.s.{}z", "a".repeat(63)),
        ] {
            let error = ca_hash(bad).unwrap_err();
            assert!(matches!(error, EnrolError::Token));
            assert!(
                !error.to_string().contains(bad) || bad.is_empty(),
                "a token is a secret"
            );
        }
    }

    #[tokio::test]
    async fn missing_input_is_refused_before_anything_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config {
            state_dir: dir.path().join("m"),
            ..Config::default()
        };
        let request = Request {
            master: "127.0.0.1:1".into(),
            id: "a".into(),
            token: String::new(),
            ca_hash: String::new(),
            force: false,
        };
        assert!(matches!(
            enrol(&config, &request, |_| ()).await,
            Err(EnrolError::NoTrust)
        ));
        for id in ["Not A Name", "master"] {
            let bad = Request {
                id: id.into(),
                ca_hash: "a".repeat(64),
                ..request.clone()
            };
            assert!(matches!(
                enrol(&config, &bad, |_| ()).await,
                Err(EnrolError::Id { .. })
            ));
        }
        assert!(!config.state_dir.exists());
    }
}
