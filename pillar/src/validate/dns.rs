//! Name servers of the cluster's DNS.

use std::net::Ipv4Addr;

use halite_document::source::join;

use super::Check;

/// The maximum number of servers to which CoreDNS forwards one domain.
const MOST: usize = 15;

pub(super) fn check(check: &mut Check<'_>) {
    let cluster = &check.declaration.cluster;
    let domain = &cluster.dns_domain;
    for zone in cluster.dns.zones.keys() {
        if check.sound("dnsDomain") && is_within(zone, domain) {
            check.cluster(
                &join("dns.zones", zone),
                format!("`{zone}` is in the cluster's own domain {domain}"),
                "CoreDNS answers for that domain itself; remove the zone",
            );
        }
    }
    let lists = cluster.dns.zones.iter();
    let lists = lists.map(|(zone, servers)| (join("dns.zones", zone), servers));
    let forwarders = std::iter::once(("dns.forwarders".to_owned(), &cluster.dns.forwarders));
    for (path, servers) in forwarders.chain(lists) {
        if servers.len() > MOST {
            check.cluster(
                &path,
                format!("the list has {} servers", servers.len()),
                format!("name at most {MOST}: CoreDNS does not start with more"),
            );
        }
    }
    let services = cluster.networks.services;
    let servers = cluster.dns.forwarders.iter().enumerate();
    let forwarders = servers.map(|(index, server)| (format!("dns.forwarders[{index}]"), *server));
    let zones = cluster.dns.zones.iter().flat_map(|(zone, servers)| {
        let path = join("dns.zones", zone);
        let servers = servers.iter().enumerate();
        servers.map(move |(index, server)| (format!("{path}[{index}]"), *server))
    });
    let inside: Vec<(String, Ipv4Addr)> = forwarders
        .chain(zones)
        .filter(|(_, server)| check.sound("networks.services") && services.contains(server))
        .collect();
    for (path, server) in inside {
        check.cluster(
            &path,
            format!("{server} is in the service network {services}"),
            "name a server outside the cluster: CoreDNS would forward to the cluster itself",
        );
    }
}

/// Returns whether a domain is another one, or below it.
fn is_within(zone: &str, domain: &str) -> bool {
    zone == domain
        || zone
            .strip_suffix(domain)
            .is_some_and(|rest| rest.ends_with('.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_is_within_itself_and_its_parents() {
        assert!(is_within("cluster.local", "cluster.local"));
        assert!(is_within("svc.cluster.local", "cluster.local"));
        assert!(!is_within("other-cluster.local", "cluster.local"));
        assert!(!is_within("local", "cluster.local"));
    }
}
