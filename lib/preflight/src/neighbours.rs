//! Other hosts that have an address in a network of this host.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

/// The timeout for an answer from a host with the address.
const ANSWER: Duration = Duration::from_millis(400);
/// The kernel's table of hardware addresses.
const TABLE: &str = "/proc/net/arp";
/// The time in which the kernel verifies an old entry: it waits for five seconds, and asks three
/// times, one second apart.
const VERIFIED: Duration = Duration::from_secs(9);
const PAUSE: Duration = Duration::from_millis(500);
/// The flag of an entry whose hardware address is known.
const COMPLETE: u32 = 2;

/// Returns `true` if a host has the address: it accepts or refuses a connection, or the kernel has
/// got its hardware address for the connection. A firewall hides the former, but not the latter.
pub(crate) async fn has_holder(address: Ipv4Addr) -> bool {
    let target = SocketAddr::from((address, 6443));
    match timeout(ANSWER, TcpStream::connect(target)).await {
        Ok(Ok(_)) => return true,
        Ok(Err(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused => return true,
        Ok(Err(_)) | Err(_) => {}
    }
    let known = || {
        std::fs::read_to_string(TABLE)
            .is_ok_and(|table| hardware_address(&table, address).is_some())
    };
    // The entry may be of a host that has left: the connection has made the kernel verify it.
    let end = Instant::now() + VERIFIED;
    while known() {
        if Instant::now() >= end {
            return true;
        }
        sleep(PAUSE).await;
    }
    false
}

/// The hardware address of a neighbour, if it is known.
fn hardware_address(table: &str, address: Ipv4Addr) -> Option<String> {
    table.lines().skip(1).find_map(|line| {
        // IP address, HW type, Flags, HW address, Mask, Device
        let words: Vec<&str> = line.split_whitespace().collect();
        let flags = words.get(2)?.strip_prefix("0x")?;
        let flags = u32::from_str_radix(flags, 16).ok()?;
        let is_it = words.first()?.parse() == Ok(address) && flags & COMPLETE != 0;
        is_it.then(|| words.get(3).copied().unwrap_or_default().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_complete_entry_is_a_neighbour() {
        let table = "IP address       HW type     Flags       HW address            Mask     Device\n\
            10.0.0.7         0x1         0x0         00:00:00:00:00:00     *        eth0\n\
            10.0.0.8         0x1         0x2         02:00:0a:00:00:08     *        eth0\n";
        let of = |last: u8| hardware_address(table, Ipv4Addr::new(10, 0, 0, last));
        assert_eq!(of(7), None);
        assert_eq!(of(8).as_deref(), Some("02:00:0a:00:00:08"));
        assert_eq!(of(9), None);
    }

    #[tokio::test]
    async fn a_host_that_refuses_a_connection_has_the_address() {
        assert!(has_holder(Ipv4Addr::LOCALHOST).await);
    }
}
