//! The question of a master to the other hosts that are declared for it: has one of them a master, too?
//!
//! A standby listens to no one. So a host that answers has a master of its own: the one before, or one
//! that has taken this one's place while this one was off or alone.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use halite_errors::chain;
use halite_proto::transport::{ClientIdentity, ConnectError, HandshakeError, MasterAlert, connect};
use halite_proto::v1::standby_client::StandbyClient;
use halite_proto::v1::{CompareRequest, Epoch};

use super::follow::{SessionError, identity};
use crate::epoch::HIGHEST;

/// The longest wait for an answer: the start of the master waits for it.
const LIMIT: Duration = Duration::from_secs(3);

/// Another master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// Its address.
    pub address: String,
    /// Its epoch, or the lowest that makes this master stop.
    pub epoch: u64,
    /// The holder of that epoch; empty if it does not count.
    pub holder: String,
}

/// What the other hosts have said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heard {
    /// The master of the highest epoch, if one takes the place of this one.
    pub other: Option<Other>,
    /// The addresses of hosts that have said nothing: they are off, or the network is.
    pub silent: Vec<String>,
}

impl Heard {
    fn note(&mut self, address: String, epoch: u64, holder: String) {
        let is_higher = |other: &Other| (epoch, holder.as_str()) > (other.epoch, &other.holder);
        if self.other.as_ref().is_none_or(is_higher) {
            self.other = Some(Other {
                address,
                epoch,
                holder,
            });
        }
    }
}

enum Answer {
    Master(Epoch),
    /// A master that does not say its epoch to this host.
    Refused,
    NoMaster,
    Silent,
}

/// Asks the hosts at these addresses, all at once. `own` is the epoch of this master, and `minion` the
/// directory of the identity of this host's minion.
///
/// # Errors
/// This host's minion has no identity.
pub async fn others(
    addresses: &[String],
    own: &Epoch,
    minion: &Path,
) -> Result<Heard, SessionError> {
    if addresses.is_empty() {
        return Ok(Heard::default());
    }
    let (identity, ca) = identity(minion)?;
    let (identity, ca) = (&identity, ca.as_str());
    let asked = addresses.iter().map(|address| async move {
        let answer = tokio::time::timeout(LIMIT, ask(address, own, ca, identity)).await;
        (address.clone(), answer.unwrap_or(Answer::Silent))
    });
    let mut heard = Heard::default();
    for (address, answer) in join_all(asked).await {
        match answer {
            Answer::Refused => heard.note(address, own.number.saturating_add(1), String::new()),
            // A master whose record of its epoch is damaged acts all the same: its number is not taken.
            Answer::Master(other) if other.number > HIGHEST => {
                heard.note(address, own.number.saturating_add(1), String::new());
            }
            // Of two masters with the same epoch the holder decides, and each of them knows it. A copy of this one has the
            // same holder, and one of protocol 1 has none: neither knows what the other has done.
            Answer::Master(other) if is_double(&other, own) => {
                heard.note(address, own.number.saturating_add(1), String::new());
            }
            Answer::Master(other) if other.rank() > own.rank() => {
                heard.note(address, other.number, other.holder);
            }
            Answer::Master(_) | Answer::NoMaster => {}
            Answer::Silent => heard.silent.push(address),
        }
    }
    Ok(heard)
}

/// Returns whether another master has this one's epoch, and nothing says which of the two acts.
fn is_double(other: &Epoch, own: &Epoch) -> bool {
    other.number == own.number && (other.holder.is_empty() || other.holder == own.holder)
}

async fn ask(address: &str, own: &Epoch, ca: &str, identity: &ClientIdentity) -> Answer {
    let channel = match connect(address, ca, Some(identity)).await {
        Ok(channel) => channel,
        Err(error) => {
            tracing::debug!(address, reason = chain(&error), "no other master");
            return of_no_connection(&error);
        }
    };
    let request = CompareRequest {
        epoch: own.number,
        evidence: Some(own.clone()),
    };
    match StandbyClient::new(channel).compare(request).await {
        Ok(reply) => {
            let reply = reply.into_inner();
            let shown = reply.evidence.filter(|shown| shown.is_proven(ca));
            // Its certificate shows that it is a master, also one of protocol 1.
            Answer::Master(shown.unwrap_or(Epoch {
                number: reply.epoch,
                ..Epoch::default()
            }))
        }
        // It has shown the certificate of a master of this cluster: it has cut this host off, or knows
        // no such question.
        Err(status) => {
            let reason = status.message();
            tracing::warn!(address, reason, "another master does not answer this host");
            Answer::Refused
        }
    }
}

/// Returns whether a connection failed because a living master does not accept this host.
pub(super) fn cuts_off(error: &ConnectError) -> bool {
    matches!(
        error,
        ConnectError::Untrusted {
            source: HandshakeError::Refused(MasterAlert::NotAdmitted | MasterAlert::Expired),
            ..
        }
    )
}

/// What the failure of a connection says.
fn of_no_connection(error: &ConnectError) -> Answer {
    match error {
        ConnectError::Unreachable { source, .. }
            if source.kind() == ErrorKind::ConnectionRefused =>
        {
            Answer::NoMaster
        }
        ConnectError::Untrusted {
            source: HandshakeError::Refused(MasterAlert::Moved),
            ..
        } => Answer::Refused,
        error if cuts_off(error) => Answer::Refused,
        _ => Answer::Silent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_master_that_does_not_accept_this_host_is_alive() {
        let failed = |alert: MasterAlert| ConnectError::Untrusted {
            endpoint: "127.0.0.1:1".to_owned(),
            source: HandshakeError::Refused(alert),
        };
        for (alert, lives) in [
            (MasterAlert::NotAdmitted, true),
            (MasterAlert::Expired, true),
            // The host has had the master, and serves no more.
            (MasterAlert::Moved, false),
            (MasterAlert::OtherCa, false),
        ] {
            assert_eq!(cuts_off(&failed(alert.clone())), lives, "{alert}");
        }
        let unreachable = ConnectError::Unreachable {
            endpoint: "127.0.0.1:1".to_owned(),
            source: ErrorKind::ConnectionRefused.into(),
        };
        assert!(!cuts_off(&unreachable));
    }
}
