//! The limits of connections: their number, their duration, and their bytes in flight.
//!
//! A caller goes through up to three sets: unfinished handshakes, then callers without a
//! certificate or connections of one identity.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::in_flight::{Allowance, InFlight};
use super::oldest_first::{ConnectionPlace, OldestFirst};
use super::peer::Peer;
use super::source::source;
use crate::identity::IdentityKind;

/// Unfinished handshakes, in total and from one address: a fleet may reconnect at once.
const HANDSHAKES: (usize, usize) = (2048, 256);
/// Callers without a certificate, in total and from one address.
const STRANGERS: (usize, usize) = (128, 16);
/// Connections of one minion: the newest, and old ones whose end has not been noticed yet.
const OF_A_MINION: usize = 4;
/// Connections of one operator.
const OF_AN_OPERATOR: usize = 64;
/// Time limit of a connection without identity.
pub(super) const STRANGER_TIME: Duration = Duration::from_secs(20);
/// Largest request of a caller without a certificate: a token, a certificate request, and grains.
pub const STRANGER_MESSAGE: usize = 128 * 1024;
/// Largest request of a minion outside its stream: a certificate request.
const MINION_REQUEST: usize = 128 * 1024;
/// Bytes of a minion's unfinished requests: the return of a long highstate.
const MINION_BYTES: usize = 64 << 20;
/// Bytes of an operator's unfinished requests.
const OPERATOR_BYTES: usize = 8 << 20;
/// Bytes of the first message of a stream: a megabyte of grains, and names of jobs.
const HELLO: usize = (1 << 20) + (128 << 10);
/// The time for a message; its length adds some.
const PATIENCE: Duration = Duration::from_secs(60);
/// The methods whose callers send a stream.
const STREAMS: [&str; 2] = ["/halite.v1.Minion/Connect", "/halite.v1.Standby/Follow"];
/// The connections that a server holds by default.
const CONNECTIONS: usize = 512;

/// The sets of connections of one server.
pub(super) struct ConnectionSets {
    handshakes: Arc<OldestFirst>,
    strangers: Arc<OldestFirst>,
    minions: Arc<OldestFirst>,
    operators: Arc<OldestFirst>,
    /// The bytes of requests of callers with an identity.
    pub(super) in_flight: Arc<InFlight>,
    /// The maximum number of connections.
    pub(super) connections: usize,
}

impl Default for ConnectionSets {
    fn default() -> Self {
        Self {
            handshakes: OldestFirst::new(HANDSHAKES.0, HANDSHAKES.1),
            strangers: OldestFirst::new(STRANGERS.0, STRANGERS.1),
            minions: OldestFirst::new(usize::MAX, OF_A_MINION),
            operators: OldestFirst::new(usize::MAX, OF_AN_OPERATOR),
            in_flight: Arc::default(),
            connections: CONNECTIONS,
        }
    }
}

impl ConnectionSets {
    /// Adds an accepted connection, whose handshake starts.
    pub(super) fn enter(&self, address: SocketAddr) -> ConnectionPlace {
        self.handshakes.enter(&source(address.ip()))
    }

    /// Adds a connection whose handshake has ended to the set of its caller.
    pub(super) fn admit(&self, peer: &Peer) -> ConnectionPlace {
        match peer.caller.as_ref().map(|caller| caller.identity.kind()) {
            None => self.strangers.enter(&source(peer.address.ip())),
            Some(IdentityKind::Minion) => self.minions.enter(&peer.name()),
            Some(IdentityKind::Operator | IdentityKind::Master) => {
                self.operators.enter(&peer.name())
            }
        }
    }

    /// Closes one connection without an identity, the oldest; the newest one stays.
    pub(super) fn make_room(&self) -> bool {
        self.strangers.close_oldest() || self.handshakes.close_oldest()
    }

    /// The connections without an identity: unfinished handshakes and callers without certificate.
    #[cfg(test)]
    pub(super) fn without_identity(&self) -> (usize, usize) {
        (self.handshakes.len(), self.strangers.len())
    }
}

/// The most concurrent calls on a connection.
pub(super) fn streams(peer: &Peer) -> u32 {
    match peer.caller.as_ref().map(|caller| caller.identity.kind()) {
        None => 1,
        Some(IdentityKind::Minion) => 4,
        Some(IdentityKind::Operator | IdentityKind::Master) => 32,
    }
}

/// Bytes that one connection may send before a service reads them; `None`: the default, a megabyte.
pub(super) fn window(peer: &Peer) -> Option<u32> {
    match peer.caller.as_ref().map(|caller| caller.identity.kind()) {
        // Such a caller may have many connections, and sends little.
        None => Some(64 * 1024),
        Some(IdentityKind::Operator | IdentityKind::Master) => Some(128 * 1024),
        Some(IdentityKind::Minion) => None,
    }
}

/// The largest body of a request in bytes; `None` for streams and for operators, whose services set
/// limits for each message.
pub(super) fn body(path: &str) -> Option<usize> {
    match path {
        "/halite.v1.Minion/Connect" => None,
        path if path.starts_with("/halite.v1.Minion/") => Some(MINION_REQUEST),
        path if path.starts_with("/halite.v1.Enrolment/") => Some(STRANGER_MESSAGE),
        _ => None,
    }
}

/// The limits of a request's bytes in memory; `None` for a caller without a certificate, whose
/// requests and connections have their own limits.
pub(super) fn allowance(peer: &Peer, path: &str) -> Option<Allowance> {
    let most = match peer.caller.as_ref()?.identity.kind() {
        IdentityKind::Minion => MINION_BYTES,
        IdentityKind::Operator | IdentityKind::Master => OPERATOR_BYTES,
    };
    let is_stream = STREAMS.contains(&path);
    Some(Allowance {
        owner: peer.name(),
        most,
        first: if is_stream { HELLO } else { most },
        is_stream,
        patience: PATIENCE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_together_hold_a_bounded_amount_of_memory() {
        // Incomplete messages, twice: as received and as they grow.
        assert!(STRANGERS.0 * STRANGER_MESSAGE * 2 <= 32 * 1024 * 1024);
        for path in crate::METHODS {
            let limited = path.starts_with("/halite.v1.Enrolment/")
                || (path.starts_with("/halite.v1.Minion/") && !path.ends_with("/Connect"));
            assert_eq!(body(path).is_some(), limited, "{path}");
        }
    }

    /// A stream that is mistaken for a single request would be ended while it is silent.
    #[test]
    fn the_methods_whose_callers_send_a_stream_are_known() {
        let (mut service, mut found) = ("", Vec::new());
        for line in include_str!("../../proto/halite.proto").lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                ["service", name, ..] => service = name,
                ["rpc", call, ..] if call.ends_with("(stream") => {
                    let method = call.trim_end_matches("(stream");
                    found.push(format!("/halite.v1.{service}/{method}"));
                }
                _ => {}
            }
        }
        assert_eq!(found, STREAMS);
    }
}
