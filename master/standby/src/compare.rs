//! Asks the other declared hosts that may run a master whether one acts there.
//!
//! A master that may have been off or is alone sends the query, a standby sends it every ten
//! seconds, and a promotion before it changes anything. A master and a standby present different
//! certificates, so neither is mistaken for the other.

use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

use futures_util::future::join_all;
use halite_errors::chain;
use halite_proto::identity::IdentityKind;
use halite_proto::transport::{
    ClientIdentity, ConnectError, HandshakeError, MasterAlert, connect_any,
};
use halite_proto::v1::standby_client::StandbyClient;
use halite_proto::v1::{CompareReply, CompareRequest, Epoch};
use halite_store::epoch::HIGHEST;

use super::session::{SessionError, identity};

/// The timeout of an answer: the start of the master waits for it.
const LIMIT: Duration = Duration::from_secs(3);
/// The time since a master's last answer to a standby until which it counts as alive. A standby
/// asks every ten seconds, and waits three for the answer.
pub const HEARD: Duration = Duration::from_secs(15);

/// Another master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// Its address.
    pub address: String,
    /// Its epoch, or the lowest epoch that makes this master stop.
    pub epoch: u64,
    /// The holder of that epoch; empty if it is irrelevant.
    pub holder: String,
}

/// The master that a standby follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// Its address.
    pub master: String,
    /// The time since its last answer to the standby.
    pub silent: Duration,
}

/// The answer of a standby.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StandsBy {
    /// The address at which it was queried.
    pub address: String,
    /// The name of its host, from its certificate.
    pub host: String,
    /// The highest epoch of which it has heard; unsigned if it knows only the number.
    pub epoch: Epoch,
    /// The master that answered it last; `None` if none has since its start.
    pub followed: Option<Followed>,
    /// The time up to which its copy is known to be complete (RFC 3339); empty without a copy.
    pub until: String,
}

impl StandsBy {
    /// The acting master according to this standby.
    #[must_use]
    pub fn hears(&self) -> Option<&Followed> {
        self.followed
            .as_ref()
            .filter(|followed| followed.silent < HEARD)
    }
}

/// The answers of the other hosts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeardAnswers {
    /// The master with the highest epoch, if it replaces this one.
    pub other: Option<Other>,
    /// The hosts that stand by.
    pub standbys: Vec<StandsBy>,
    /// The addresses of hosts that did not answer: the host or the network is down.
    pub silent: Vec<String>,
}

impl HeardAnswers {
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

/// The answer of one host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostAnswer {
    /// The host has a master of this epoch.
    Master(Epoch),
    /// The host has a master that does not tell this host its epoch.
    Refused,
    /// The host hands its master over, and no longer serves.
    Moved,
    /// The host is a standby.
    Standby(StandsBy),
    /// No program listens on the port.
    NoMaster,
    /// The host does not answer.
    Silent,
}

/// Queries the hosts at these addresses, all in parallel, and returns the answer of each. `own` is
/// the epoch of this master, or the highest of which this host has heard, and `minion` the
/// directory of the identity of this host's minion.
///
/// # Errors
/// This host's minion has no identity.
pub async fn answers(
    addresses: &[String],
    own: &Epoch,
    minion: &Path,
) -> Result<Vec<(String, HostAnswer)>, SessionError> {
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    let (identity, ca) = identity(minion)?;
    let (identity, ca) = (&identity, ca.as_str());
    let asked = addresses.iter().map(|address| async move {
        let answer = tokio::time::timeout(LIMIT, ask(address, own, ca, identity)).await;
        (address.clone(), answer.unwrap_or(HostAnswer::Silent))
    });
    Ok(join_all(asked).await)
}

/// Queries the hosts at these addresses for masters beside which this one, with the epoch `own`,
/// must not act.
///
/// # Errors
/// This host's minion has no identity.
pub async fn others(
    addresses: &[String],
    own: &Epoch,
    minion: &Path,
) -> Result<HeardAnswers, SessionError> {
    let mut heard = HeardAnswers::default();
    for (address, answer) in answers(addresses, own, minion).await? {
        match answer {
            HostAnswer::Refused | HostAnswer::Moved => {
                heard.note(address, own.number.saturating_add(1), String::new());
            }
            // A master with a damaged epoch record acts nevertheless: its number is ignored. Of two
            // masters with the same epoch the holder decides, unless the holders are equal, as in a
            // copy, or protocol 1 has none: then neither knows what the other has done.
            HostAnswer::Master(other) if other.number > HIGHEST || is_double(&other, own) => {
                heard.note(address, own.number.saturating_add(1), String::new());
            }
            HostAnswer::Master(other) if other.rank() > own.rank() => {
                heard.note(address, other.number, other.holder);
            }
            HostAnswer::Master(_) | HostAnswer::NoMaster => {}
            HostAnswer::Standby(standby) => heard.standbys.push(standby),
            HostAnswer::Silent => heard.silent.push(address),
        }
    }
    Ok(heard)
}

/// Returns whether another master has this one's epoch, and the holder does not decide between
/// them.
fn is_double(other: &Epoch, own: &Epoch) -> bool {
    other.number == own.number && (other.holder.is_empty() || other.holder == own.holder)
}

/// The epoch in an answer, with its signature or as a mere number.
fn shown(reply: &mut CompareReply, ca: &str) -> Epoch {
    let evidence = reply.evidence.take();
    let proven = evidence.filter(|evidence| evidence.is_proven(ca));
    proven.unwrap_or_else(|| Epoch::unproven(reply.epoch))
}

async fn ask(address: &str, own: &Epoch, ca: &str, identity: &ClientIdentity) -> HostAnswer {
    let channel = match connect_any(address, ca, identity).await {
        Ok(channel) => channel,
        Err(error) => {
            tracing::debug!(address, reason = chain(&error), "no other master");
            return of_no_connection(&error);
        }
    };
    let server = channel.server().clone();
    let is_master = server.kind() == IdentityKind::Master;
    let request = CompareRequest {
        epoch: own.number,
        evidence: own.evidence(),
    };
    match StandbyClient::new(channel).compare(request).await {
        Ok(reply) => {
            let mut reply = reply.into_inner();
            let epoch = shown(&mut reply, ca);
            if is_master {
                // Its certificate proves that it is a master, also with protocol 1.
                HostAnswer::Master(epoch)
            } else {
                HostAnswer::Standby(stands_by(address, server.id(), epoch, reply))
            }
        }
        // The host has presented the certificate of a master of this cluster: it has cut this host
        // off, or does not know this call.
        Err(status) if is_master => {
            let reason = status.message();
            tracing::warn!(address, reason, "another master does not answer this host");
            HostAnswer::Refused
        }
        Err(status) => {
            let reason = status.message();
            tracing::warn!(address, reason, "a standby does not answer this host");
            HostAnswer::Silent
        }
    }
}

fn stands_by(address: &str, host: &str, epoch: Epoch, reply: CompareReply) -> StandsBy {
    let standing = reply.standing.unwrap_or_default();
    let followed = Followed {
        master: standing.master,
        silent: Duration::from_secs(standing.silent_seconds),
    };
    StandsBy {
        address: address.to_owned(),
        host: host.to_owned(),
        epoch,
        followed: Some(followed).filter(|followed| !followed.master.is_empty()),
        until: standing.until,
    }
}

/// Returns whether a connection failed because a living master does not accept this host.
fn cuts_off(error: &ConnectError) -> bool {
    matches!(
        error,
        ConnectError::Untrusted {
            source: HandshakeError::Refused(MasterAlert::NotAdmitted | MasterAlert::Expired),
            ..
        }
    )
}

/// The answer that a failed connection implies.
fn of_no_connection(error: &ConnectError) -> HostAnswer {
    match error {
        ConnectError::Unreachable { source, .. }
            if source.kind() == ErrorKind::ConnectionRefused =>
        {
            HostAnswer::NoMaster
        }
        ConnectError::Untrusted {
            source: HandshakeError::Refused(MasterAlert::Moved),
            ..
        } => HostAnswer::Moved,
        error if cuts_off(error) => HostAnswer::Refused,
        _ => HostAnswer::Silent,
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
            // The host had the master, and no longer serves.
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
