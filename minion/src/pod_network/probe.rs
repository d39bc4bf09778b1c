//! Attempts to reach addresses, in parallel, each with a deadline.

use std::io;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use halite_host_reports::pod_network::{Target, What};

/// The timeout of a connection: longer than the loss of a packet, which is resent after a second.
const ANSWER: Duration = Duration::from_secs(2);
/// The timeout of a DNS answer, and the number of queries. Each may go to another replica.
const DNS_ANSWER: Duration = Duration::from_millis(650);
const DNS_QUESTIONS: u16 = 3;
/// A query for an address: type A, class IN (RFC 1035, 3.2).
const FOR_ADDRESS: [u8; 4] = [0, 1, 0, 1];

/// A target that was not reached.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Missed {
    /// Its index.
    pub target: usize,
    /// The reason.
    pub reason: String,
    /// `true` if there is no route to it.
    pub no_route: bool,
}

/// Tries all targets from the network namespace of this thread; returns the unreachable ones.
pub(super) fn all(targets: &[Target]) -> Vec<Missed> {
    // A thread starts in the network namespace of its parent thread.
    std::thread::scope(|scope| {
        let tries: Vec<_> = targets
            .iter()
            .map(|target| scope.spawn(|| reach(target)))
            .collect();
        let results = tries.into_iter().enumerate();
        let missed = results.filter_map(|(target, result)| {
            let error = result.join().ok()?.err()?;
            let no_route = matches!(
                error.kind(),
                ErrorKind::NetworkUnreachable | ErrorKind::NetworkDown
            );
            Some(Missed {
                target,
                reason: words(&error),
                no_route,
            })
        });
        missed.collect()
    })
}

fn words(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => {
            format!("no answer within {} s", ANSWER.as_secs())
        }
        _ => error.to_string(),
    }
}

fn reach(target: &Target) -> io::Result<()> {
    let server = SocketAddr::from((target.address, target.port));
    match &target.what {
        What::Pod(_) => match TcpStream::connect_timeout(&server, ANSWER) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(()),
            other => other.map(drop),
        },
        What::Service => TcpStream::connect_timeout(&server, ANSWER).map(drop),
        What::Dns(name) => resolve(server, name),
    }
}

/// Asks a DNS server for the address of a name, from a new port each time: a Service stays with one
/// replica as long as the port is the same.
fn resolve(server: SocketAddr, name: &str) -> io::Result<()> {
    let mut last = io::Error::from(ErrorKind::TimedOut);
    for id in 1..=DNS_QUESTIONS {
        match asked(server, id, name) {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn asked(server: SocketAddr, id: u16, name: &str) -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.set_read_timeout(Some(DNS_ANSWER))?;
    socket.connect(server)?;
    socket.send(&query(id, name))?;
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer)?;
    match read(id, answer.get(..length).unwrap_or_default()) {
        Some((0, 1..)) => Ok(()),
        Some((0, _)) => Err(io::Error::other(format!("it has no address of {name}"))),
        Some((code, _)) => Err(io::Error::other(format!(
            "it answers the question for {name} with the code {code}"
        ))),
        None => Err(io::Error::other("its answer is not a DNS message")),
    }
}

/// A message with one question (RFC 1035, 4.1); recursion is desired.
fn query(id: u16, name: &str) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend([1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.') {
        message.push(u8::try_from(label.len()).unwrap_or_default());
        message.extend(label.as_bytes());
    }
    message.push(0);
    message.extend(FOR_ADDRESS);
    message
}

/// The code and the number of answers in a response to the query with this id.
fn read(id: u16, message: &[u8]) -> Option<(u8, u16)> {
    let [first, second, flags, code, _, _, high, low, ..] = message else {
        return None;
    };
    let is_own = id.to_be_bytes() == [*first, *second] && flags & 0x80 != 0;
    is_own.then(|| (code & 0x0f, u16::from_be_bytes([*high, *low])))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn at(what: What, server: SocketAddr) -> Target {
        let SocketAddr::V4(server) = server else {
            panic!("{server}");
        };
        Target {
            what,
            address: *server.ip(),
            port: server.port(),
        }
    }

    #[test]
    fn a_refused_connection_has_reached_a_pod_but_no_service() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let pod = || at(What::Pod("cp-1".to_owned()), server);
        let service = || at(What::Service, server);
        assert_eq!(all(&[pod(), service()]), []);
        drop(listener);
        let missed = all(&[pod(), service()]);
        let [only] = missed.as_slice() else {
            panic!("{missed:?}");
        };
        assert!(
            only.target == 1 && only.reason.contains("refused"),
            "{only:?}"
        );
    }

    /// A server that answers each query with these bytes after the id.
    fn dns(answer: &'static [u8]) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let server = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut question = [0; 512];
            while let Ok((length, from)) = socket.recv_from(&mut question) {
                assert_eq!(
                    &question[12..length],
                    b"\x0akubernetes\x07default\x00\x00\x01\x00\x01"
                );
                let message = [&question[..2], answer].concat();
                socket.send_to(&message, from).unwrap();
            }
        });
        server
    }

    #[test]
    fn dns_is_reached_when_it_knows_the_address() {
        let ask = |answer: &'static [u8]| {
            let name = "kubernetes.default".to_owned();
            let missed = all(&[at(What::Dns(name), dns(answer))]);
            missed.into_iter().next().map(|missed| missed.reason)
        };
        assert_eq!(ask(&[0x81, 0x80, 0, 1, 0, 1, 0, 0, 0, 0]), None);
        for (answer, reason) in [
            (&[0x81, 0x83, 0, 1, 0, 0, 0, 0, 0, 0][..], "with the code 3"),
            (
                &[0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0],
                "it has no address of kubernetes.default",
            ),
            (&[0x01, 0x00, 0, 1, 0, 1, 0, 0, 0, 0], "not a DNS message"),
            (&[0x81], "not a DNS message"),
        ] {
            let found = ask(answer).unwrap();
            assert!(found.contains(reason), "{found}");
        }
    }

    #[test]
    fn what_has_no_route_says_so() {
        let missed = all(&[at(What::Service, "224.0.0.1:1".parse().unwrap())]);
        assert_eq!(missed.len(), 1, "{missed:?}");
        let unreachable = io::Error::from(ErrorKind::NetworkUnreachable);
        assert!(words(&unreachable).contains("unreachable"));
    }
}
