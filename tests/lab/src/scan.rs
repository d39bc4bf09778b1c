//! A scan of one address, from the network namespace in which it is run: the TCP ports that answer,
//! and one packet to each of some UDP ports.
//!
//! TCP is probed half open, as nmap's `-sS` does: a hand-made SYN from a reserved port. A port with
//! a listener answers with SYN and ACK; one that is open in the firewall but has no listener, with
//! RST. A firewall answers neither. Ports that should answer are probed again if they do not,
//! because a packet can get lost. All ports take less than two seconds, however many are filtered,
//! which a scan with `connect` cannot do: Linux sends only one rejection a second to the same
//! sender (icmp(7), `icmp_ratelimit`), and all others time out.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr, SocketAddrV4, SocketAddrV6, TcpListener, UdpSocket};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, netdevice, recvfrom, sendto, socket,
    sockopt,
};
use serde::{Deserialize, Serialize};

/// Result of a scan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    /// The source address of the scan.
    pub from: IpAddr,
    /// Ports with a listener.
    pub open: BTreeSet<u16>,
    /// Ports without a listener that the firewall lets through.
    pub refused: BTreeSet<u16>,
}

impl Findings {
    /// All ports that the firewall lets through.
    #[must_use]
    pub fn reached(&self) -> BTreeSet<u16> {
        self.open.union(&self.refused).copied().collect()
    }
}

/// Time without a further answer that ends a round.
const SILENCE: Duration = Duration::from_millis(250);

/// Scans the TCP ports `only` of `target` (`10.10.0.11`, `fe80::1%eth0`), all if it is empty, and
/// sends a packet to each of `udp`. Those of `again` that do not answer are probed once more.
///
/// # Errors
/// `target` is not an address, there is no route to it, or the process may not open raw sockets.
pub fn scan(target: &str, only: &[u16], udp: &[u16], again: &[u16]) -> Result<Findings> {
    let target = address(target)?;
    let from = local(target)?;
    for port in udp {
        let asker =
            UdpSocket::bind((from, 0)).or_else(|_| UdpSocket::bind(with_scope(from, target)))?;
        // A refusal or rejection is an answer as well; the caller inspects the target.
        if let Err(error) = asker.send_to(b"halite", with_port(target, *port)) {
            bail!("cannot send to {}: {error}", with_port(target, *port));
        }
    }
    let mut scan = Scan::new(with_scope(from, target), target)?;
    if only.is_empty() {
        scan.round(1..=u16::MAX)?;
    } else {
        scan.round(only.iter().copied())?;
    }
    scan.round(again.iter().copied())?;
    Ok(Findings {
        from,
        open: scan.open,
        refused: scan.refused,
    })
}

fn address(text: &str) -> Result<SocketAddr> {
    let (address, interface) = text
        .split_once('%')
        .map_or((text, None), |(a, i)| (a, Some(i)));
    let address: IpAddr = address
        .parse()
        .with_context(|| format!("{text:?} is not an address"))?;
    let mut target = SocketAddr::new(address, 0);
    if let (SocketAddr::V6(v6), Some(interface)) = (&mut target, interface) {
        let any = socket(AddressFamily::INET6, SocketType::DGRAM, None)?;
        v6.set_scope_id(netdevice::name_to_index(&any, interface)?);
    }
    Ok(target)
}

/// The source address on the route to the target.
fn local(target: SocketAddr) -> Result<IpAddr> {
    let any: IpAddr = if target.is_ipv4() {
        [0_u8; 4].into()
    } else {
        [0_u8; 16].into()
    };
    let probe = UdpSocket::bind((any, 0))?;
    probe
        .connect(with_port(target, 9))
        .with_context(|| format!("no route to {}", target.ip()))?;
    Ok(probe.local_addr()?.ip())
}

fn with_port(mut address: SocketAddr, port: u16) -> SocketAddr {
    address.set_port(port);
    address
}

/// A link-local address is only valid together with its link.
fn with_scope(address: IpAddr, like: SocketAddr) -> SocketAddr {
    match (address, like) {
        (IpAddr::V6(v6), SocketAddr::V6(like)) => {
            SocketAddrV6::new(v6, 0, 0, like.scope_id()).into()
        }
        (IpAddr::V4(v4), _) => SocketAddrV4::new(v4, 0).into(),
        (address, _) => SocketAddr::new(address, 0),
    }
}

struct Scan {
    socket: OwnedFd,
    from: SocketAddr,
    target: SocketAddr,
    /// Reserves the port; the kernel answers for it with RST, which ends what a SYN began.
    _kept: TcpListener,
    open: BTreeSet<u16>,
    refused: BTreeSet<u16>,
}

impl Scan {
    fn new(from: SocketAddr, target: SocketAddr) -> Result<Self> {
        let kept = TcpListener::bind(from).context("cannot keep a port")?;
        let family = if target.is_ipv4() {
            AddressFamily::INET
        } else {
            AddressFamily::INET6
        };
        let socket = socket(family, SocketType::RAW, Some(ipproto::TCP))
            .context("cannot open a raw socket; this needs root")?;
        sockopt::set_socket_recv_buffer_size_force(socket.as_fd(), 8 << 20)?;
        Ok(Self {
            socket,
            from: with_port(from, kept.local_addr()?.port()),
            target,
            _kept: kept,
            open: BTreeSet::new(),
            refused: BTreeSet::new(),
        })
    }

    /// Probes the ports that have not answered.
    fn round(&mut self, ports: impl Iterator<Item = u16>) -> Result<()> {
        for port in ports {
            if self.open.contains(&port) || self.refused.contains(&port) {
                continue;
            }
            let packet = syn(self.from, with_port(self.target, port));
            match sendto(
                self.socket.as_fd(),
                &packet,
                SendFlags::empty(),
                &self.target,
            ) {
                // No host answers neighbour discovery, or a rejection came back: equivalent to no
                // answer.
                Ok(_)
                | Err(
                    Errno::HOSTUNREACH
                    | Errno::NOBUFS
                    | Errno::CONNREFUSED
                    | Errno::ACCESS
                    | Errno::PERM,
                ) => {}
                Err(error) => bail!("cannot send to {}: {error}", self.target.ip()),
            }
            if port % 256 == 0 {
                self.drain()?;
            }
        }
        let mut last = Instant::now();
        loop {
            // Packets that arrived while this process did not run count, however long that was.
            if self.drain()? {
                last = Instant::now();
            }
            let left = SILENCE.saturating_sub(last.elapsed());
            if left.is_zero() {
                return Ok(());
            }
            sockopt::set_socket_timeout(self.socket.as_fd(), sockopt::Timeout::Recv, Some(left))?;
            if self.take(RecvFlags::empty())? == Some(true) {
                last = Instant::now();
            }
        }
    }

    /// Reads all received packets; returns whether an answer was among them.
    fn drain(&mut self) -> Result<bool> {
        let mut answered = false;
        while let Some(is_answer) = self.take(RecvFlags::DONTWAIT)? {
            answered |= is_answer;
        }
        Ok(answered)
    }

    /// Reads one packet, if there is one; `true` for an answer of the target, `false` for a foreign
    /// packet, of which a busy host receives some all the time.
    fn take(&mut self, flags: RecvFlags) -> Result<Option<bool>> {
        let mut buffer = [0_u8; 256];
        let (length, sender) = match recvfrom(self.socket.as_fd(), &mut buffer, flags) {
            Ok((length, _, sender)) => (length, sender),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR | Errno::HOSTUNREACH | Errno::CONNREFUSED) => return Ok(Some(false)),
            Err(error) => bail!("cannot receive: {error}"),
        };
        let sender = sender
            .and_then(|s| SocketAddr::try_from(s).ok())
            .map(|s| s.ip());
        if sender != Some(self.target.ip()) {
            return Ok(Some(false));
        }
        // IPv4's raw sockets hand out the IP header too, IPv6's do not (raw(7), ipv6(7)).
        let header = if self.target.is_ipv4() {
            usize::from(buffer[0] & 0x0f) * 4
        } else {
            0
        };
        if let Some([s0, s1, d0, d1, .., flags]) = buffer.get(header..length.min(header + 14))
            && u16::from_be_bytes([*d0, *d1]) == self.from.port()
        {
            let port = u16::from_be_bytes([*s0, *s1]);
            if flags & SYN_ACK == SYN_ACK {
                return Ok(Some(self.open.insert(port)));
            }
            if flags & RST != 0 && !self.open.contains(&port) {
                return Ok(Some(self.refused.insert(port)));
            }
        }
        Ok(Some(false))
    }
}

const SYN: u8 = 0x02;
const RST: u8 = 0x04;
const SYN_ACK: u8 = 0x12;

/// A TCP header (RFC 9293, section 3.1) without options.
fn syn(from: SocketAddr, to: SocketAddr) -> [u8; 20] {
    let mut packet = [0_u8; 20];
    packet[0..2].copy_from_slice(&from.port().to_be_bytes());
    packet[2..4].copy_from_slice(&to.port().to_be_bytes());
    packet[4..8].copy_from_slice(&0x4841_4c49_u32.to_be_bytes());
    packet[12] = 5 << 4;
    packet[13] = SYN;
    packet[14..16].copy_from_slice(&1024_u16.to_be_bytes());
    let sum = checksum(from.ip(), to.ip(), &packet);
    packet[16..18].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The checksum of a TCP segment with its pseudo-header (RFC 9293, section 3.1; RFC 8200, section
/// 8.1).
fn checksum(from: IpAddr, to: IpAddr, segment: &[u8]) -> u16 {
    let mut bytes = Vec::new();
    for address in [from, to] {
        match address {
            IpAddr::V4(v4) => bytes.extend(v4.octets()),
            IpAddr::V6(v6) => bytes.extend(v6.octets()),
        }
    }
    bytes.extend([0, 6, 0, 20]);
    bytes.extend(segment);
    let mut sum: u32 = bytes
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |b| u32::from(*b)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Raw sockets need root, like the lab.
    #[test]
    fn a_listener_is_told_from_a_port_without_one() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap().port();
        // Its port is taken, so that no other test listens there.
        let other = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        rustix::net::bind(&other, &any).unwrap();
        let own = SocketAddr::try_from(rustix::net::getsockname(&other).unwrap());
        let refused = own.unwrap().port();
        let found = scan("127.0.0.1", &[open, refused], &[], &[open]).unwrap();
        assert_eq!(found.open, [open].into());
        assert_eq!(found.refused, [refused].into());
    }

    /// A segment with its right checksum sums to zero.
    #[test]
    fn checksums_add_up() {
        let (from, to): (SocketAddr, SocketAddr) = (
            "10.0.0.1:4000".parse().unwrap(),
            "10.0.0.2:80".parse().unwrap(),
        );
        assert_eq!(checksum(from.ip(), to.ip(), &syn(from, to)), 0);
        let (from, to): (SocketAddr, SocketAddr) = (
            "[fe80::1]:4000".parse().unwrap(),
            "[fe80::2]:80".parse().unwrap(),
        );
        assert_eq!(checksum(from.ip(), to.ip(), &syn(from, to)), 0);
    }
}
