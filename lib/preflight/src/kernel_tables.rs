//! The kernel's tables of IPv4 addresses and routes, as texts of `/proc/net`.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// A route of the kernel's main table that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelRoute {
    /// The interface that it uses.
    pub interface: String,
    /// The router that it leads to; `None` for a network of the interface itself.
    pub gateway: Option<Ipv4Addr>,
    /// The first address of its destination.
    pub destination: Ipv4Addr,
    /// The length of the destination's prefix in bits.
    pub prefix_len: u32,
}

impl KernelRoute {
    fn contains(&self, address: Ipv4Addr) -> bool {
        let mask = u32::MAX.checked_shl(32 - self.prefix_len).unwrap_or(0);
        u32::from(address) & mask == u32::from(self.destination)
    }
}

/// Reads `/proc/net/route`; its numbers are in the machine's byte order.
#[must_use]
pub fn kernel_routes(table: &str) -> Vec<KernelRoute> {
    let number = |text: &str| {
        u32::from_str_radix(text, 16)
            .ok()
            .map(|n| u32::from_be_bytes(n.to_ne_bytes()))
    };
    let rows = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let up = u32::from_str_radix(fields.get(3)?, 16).ok()? & 1 == 1;
        up.then_some(KernelRoute {
            interface: (*fields.first()?).to_owned(),
            destination: number(fields.get(1)?)?.into(),
            gateway: Some(number(fields.get(2)?)?.into())
                .filter(|gateway: &Ipv4Addr| !gateway.is_unspecified()),
            prefix_len: number(fields.get(7)?)?.count_ones(),
        })
    });
    rows.collect()
}

/// The addresses that `/proc/net/fib_trie` calls local to the host.
#[must_use]
pub fn local_addresses(trie: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in trie.lines() {
        if let Some(leaf) = line.trim_start().strip_prefix("|-- ") {
            last = leaf.trim().parse::<Ipv4Addr>().ok();
        } else if line.contains("/32 host LOCAL")
            && let Some(address) = last
            && !found.contains(&address)
        {
            found.push(address);
        }
    }
    found
}

/// The local addresses by interface: that of the most specific route to each address. An address
/// without a route is omitted.
#[must_use]
pub fn addresses_by_interface(
    addresses: &[Ipv4Addr],
    routes: &[KernelRoute],
) -> BTreeMap<String, Vec<Ipv4Addr>> {
    let mut found: BTreeMap<String, Vec<Ipv4Addr>> = BTreeMap::new();
    for address in addresses {
        let best = routes
            .iter()
            .filter(|route| route.contains(*address))
            .max_by_key(|route| route.prefix_len);
        let interface = match best {
            _ if address.is_loopback() => "lo",
            Some(route) => route.interface.as_str(),
            None => continue,
        };
        found
            .entry(interface.to_owned())
            .or_default()
            .push(*address);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRIE: &str = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.0.0.5\n        /32 host LOCAL\n     |-- 10.0.0.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        /32 host LOCAL\nLocal:\n     |-- 10.0.0.5\n        /32 host LOCAL\n";
    const ROUTES: &str = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
                     eth1 00000000 0100000A 0003 0 0 0 00000000 0 0 0\n\
                     eth2 0000000A 00000000 0000 0 0 0 00FFFFFF 0 0 0\n\
                     eth0 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n";

    #[test]
    fn the_kernels_table_of_local_addresses() {
        assert_eq!(
            local_addresses(TRIE),
            [Ipv4Addr::new(10, 0, 0, 5), Ipv4Addr::LOCALHOST]
        );
    }

    #[test]
    fn an_address_belongs_to_the_interface_of_the_most_specific_route() {
        let routes = kernel_routes(ROUTES);
        let found: Vec<String> = routes
            .iter()
            .map(|route| {
                format!(
                    "{} {}/{}",
                    route.interface, route.destination, route.prefix_len
                )
            })
            .collect();
        assert_eq!(found, ["eth1 0.0.0.0/0", "eth0 10.0.0.0/24"]);
        assert_eq!(routes[0].gateway, Some(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(routes[1].gateway, None);
        let by_interface = addresses_by_interface(&local_addresses(TRIE), &routes);
        assert_eq!(by_interface["eth0"], [Ipv4Addr::new(10, 0, 0, 5)]);
        assert_eq!(by_interface["lo"], [Ipv4Addr::LOCALHOST]);
        assert_eq!(by_interface.len(), 2);
    }
}
