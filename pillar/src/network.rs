//! Arithmetic of networks and addresses.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;

/// The n-th address of a network, counted from its network address (which is number 0), if it has
/// that many.
#[must_use]
pub fn nth(network: Ipv4Net, n: u32) -> Option<Ipv4Addr> {
    let address = Ipv4Addr::from(u32::from(network.network()).checked_add(n)?);
    network.contains(&address).then_some(address)
}

/// Returns whether two networks share an address, so that one contains the other.
#[must_use]
pub fn overlap(a: Ipv4Net, b: Ipv4Net) -> bool {
    a.contains(&b.network()) || b.contains(&a.network())
}

/// The service address of the Kubernetes API: the first of the network, which the API server itself
/// takes.
#[must_use]
pub fn api_service(services: Ipv4Net) -> Option<Ipv4Addr> {
    nth(services, 1)
}

/// The service address of DNS: the tenth, as in kubeadm's `GetDNSIP`.
#[must_use]
pub fn dns_service(services: Ipv4Net) -> Option<Ipv4Addr> {
    nth(services, 10)
}

/// Returns whether an address is the network's own or its broadcast address, which no host can
/// have.
#[must_use]
pub fn is_edge(network: Ipv4Net, address: Ipv4Addr) -> bool {
    network.prefix_len() < 31 && (address == network.network() || address == network.broadcast())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn net(text: &str) -> Ipv4Net {
        text.parse().unwrap()
    }

    #[test]
    fn service_addresses_are_kubeadms() {
        assert_eq!(
            api_service(net("10.96.0.0/12")).unwrap().to_string(),
            "10.96.0.1"
        );
        assert_eq!(
            dns_service(net("10.96.0.0/12")).unwrap().to_string(),
            "10.96.0.10"
        );
        assert_eq!(dns_service(net("10.0.0.248/29")), None);
        assert_eq!(nth(net("255.255.255.255/32"), 1), None);
    }

    #[test]
    fn overlap_is_containment_either_way() {
        assert!(overlap(net("10.96.0.0/12"), net("10.99.0.0/24")));
        assert!(overlap(net("10.99.0.0/24"), net("10.96.0.0/12")));
        assert!(overlap(net("0.0.0.0/0"), net("10.0.0.0/8")));
        assert!(!overlap(net("10.96.0.0/12"), net("10.112.0.0/16")));
    }

    #[test]
    fn edges_are_nobodys() {
        assert!(is_edge(net("10.0.0.0/24"), "10.0.0.255".parse().unwrap()));
        assert!(is_edge(net("10.0.0.0/24"), "10.0.0.0".parse().unwrap()));
        assert!(!is_edge(net("10.0.0.0/24"), "10.0.0.1".parse().unwrap()));
        assert!(!is_edge(net("10.0.0.0/31"), "10.0.0.0".parse().unwrap()));
    }
}
