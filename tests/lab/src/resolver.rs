//! The lab's name server: answers NXDOMAIN to everything and records the queries.

use std::fs::OpenOptions;
use std::io::Write;
use std::net::UdpSocket;
use std::path::Path;

use anyhow::{Context, Result};

/// Names for which a healthy offline cluster may query its site's resolver: the hosts' own names
/// without a domain.
const EXPECTED: [&str; 7] = [
    "bootstrap-1",
    "cp-1",
    "cp-2",
    "cp-3",
    "worker-1",
    "worker-2",
    "worker-3",
];

/// Returns whether an offline site's cluster may send this query. CoreDNS' `loop` plugin queries
/// once at its start for a name of two random numbers, to see whether its own query comes back.
#[must_use]
pub fn expected(name: &str) -> bool {
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    EXPECTED.contains(&name)
        || name
            .split_once('.')
            .is_some_and(|(a, b)| number(a) && number(b))
}

/// Serves UDP port 53 on every address of its (the router's) namespace until it is stopped.
pub fn serve(log: &Path) -> Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:53").context("cannot listen on port 53 of the router")?;
    let mut log = OpenOptions::new().create(true).append(true).open(log)?;
    let mut packet = [0_u8; 1500];
    loop {
        let (length, peer) = socket.recv_from(&mut packet)?;
        let Some((name, answer)) = nxdomain(&packet[..length]) else {
            continue;
        };
        writeln!(log, "{name}")?;
        socket.send_to(&answer, peer)?;
    }
}

/// The question's name and the answer to it (RFC 1035 section 4: header, question repeated, RCODE
/// 3).
fn nxdomain(query: &[u8]) -> Option<(String, Vec<u8>)> {
    let mut at = 12;
    let mut labels = Vec::new();
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        let label = query.get(at..at + length)?;
        labels.push(String::from_utf8_lossy(label).into_owned());
        at += length;
    }
    let question = query.get(12..at + 4)?;
    let mut answer = Vec::with_capacity(12 + question.len());
    answer.extend_from_slice(query.get(..2)?);
    // QR, the query's opcode and RD, RA, NXDOMAIN; one question, nothing else.
    answer.extend_from_slice(&[0x80 | (query.get(2)? & 0x79), 0x83, 0, 1, 0, 0, 0, 0, 0, 0]);
    answer.extend_from_slice(question);
    Some((labels.join("."), answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_nxdomain_and_names_the_question() {
        let mut query = vec![0xab, 0xcd, 0x01, 0x00, 0, 1, 0, 0, 0, 0, 0, 0];
        query.extend_from_slice(b"\x03foo\x07example\x00\x00\x01\x00\x01");
        let (name, answer) = nxdomain(&query).expect("a well-formed query");
        assert_eq!(name, "foo.example");
        assert_eq!(&answer[..4], &[0xab, 0xcd, 0x81, 0x83]);
        assert_eq!(&answer[12..], &query[12..]);
    }

    #[test]
    fn ignores_a_truncated_query() {
        assert!(nxdomain(b"\xab\xcd\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x09foo").is_none());
    }

    #[test]
    fn other_names_are_unexpected() {
        assert!(expected("bootstrap-1"));
        assert!(expected("1773854670915901254.3768606544995314985"));
        assert!(!expected("registry.k8s.io"));
        assert!(!expected("10.example"));
    }
}
