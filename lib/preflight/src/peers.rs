//! The ports of other hosts, as this host reaches them.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

/// The timeout of a connection: enough for a lost packet, which is sent again after a second.
const ANSWER: Duration = Duration::from_secs(4);

/// A port of another host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peer {
    /// The host's name.
    pub host: String,
    /// Its address.
    pub address: Ipv4Addr,
    /// The TCP port.
    pub port: u16,
    /// The program that listens there.
    pub service: String,
}

/// The ports that cannot be reached, with the reason. A refused connection has reached the host:
/// its program may start later.
pub async fn unreachable(peers: &[Peer]) -> Vec<String> {
    let mut asked = JoinSet::new();
    for (index, peer) in peers.iter().cloned().enumerate() {
        asked.spawn(async move { (index, fault(&peer).await) });
    }
    let mut found = asked.join_all().await;
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().filter_map(|(_, fault)| fault).collect()
}

async fn fault(peer: &Peer) -> Option<String> {
    let target = SocketAddr::from((peer.address, peer.port));
    let reason = match timeout(ANSWER, TcpStream::connect(target)).await {
        Ok(Ok(_)) => return None,
        Ok(Err(error)) if error.kind() == ErrorKind::ConnectionRefused => return None,
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", ANSWER.as_secs()),
    };
    let Peer { host, service, .. } = peer;
    Some(format!("{service} of {host} at {target}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_refused_connection_has_reached_its_host() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let peer = |address: [u8; 4]| Peer {
            host: "cp-1".to_owned(),
            address: address.into(),
            port,
            service: "the API server".to_owned(),
        };
        let here = peer([127, 0, 0, 1]);
        assert_eq!(unreachable(std::slice::from_ref(&here)).await, [""; 0]);
        drop(listener);
        // TCP cannot connect to a multicast address.
        let nowhere = peer([224, 0, 0, 1]);
        let found = unreachable(&[here, nowhere]).await;
        let [only] = found.as_slice() else {
            panic!("{found:?}");
        };
        assert!(
            only.starts_with("the API server of cp-1 at 224.0.0.1:"),
            "{only}"
        );
    }
}
