//! Addresses, routes and name servers.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use halite_preflight::{addresses_by_interface, kernel_routes, local_addresses};
use serde_json::{Map, Value, json};

use super::text;
use crate::host::effect::Command;
use crate::host::linux::command::run;

const TOOL: Duration = Duration::from_secs(10);

/// Addresses by interface, in the kernel's order.
type Addresses = BTreeMap<String, Vec<IpAddr>>;

pub(super) async fn add(grains: &mut Map<String, Value>) {
    let (addresses, hardware) = match ip_tool().await {
        Some(found) => found,
        None => (without_tool(), hardware()),
    };
    let (mut v4, mut v6, mut all) = (Map::new(), Map::new(), Map::new());
    let (mut list4, mut list6) = (Vec::new(), Vec::new());
    for (interface, list) in &addresses {
        let one: Vec<&IpAddr> = list.iter().filter(|a| a.is_ipv4()).collect();
        let two: Vec<&IpAddr> = list.iter().filter(|a| a.is_ipv6()).collect();
        list4.extend(one.iter().map(|a| a.to_string()));
        list6.extend(two.iter().map(|a| a.to_string()));
        v4.insert(interface.clone(), json!(one));
        v6.insert(interface.clone(), json!(two));
        all.insert(interface.clone(), json!(list));
    }
    for list in [&mut list4, &mut list6] {
        list.sort();
        list.dedup();
    }
    let routes = routes(&text("/proc/net/route"));
    let mut networks: Vec<&str> = routes
        .iter()
        .filter_map(|r| r.get("destination").and_then(Value::as_str))
        .collect();
    networks.sort_unstable();
    networks.dedup();
    grains.insert("routes".to_owned(), json!(networks));
    grains.insert("ip4_routes".to_owned(), json!(routes));
    grains.insert("ip4_interfaces".to_owned(), Value::Object(v4));
    grains.insert("ip6_interfaces".to_owned(), Value::Object(v6));
    grains.insert("ip_interfaces".to_owned(), Value::Object(all));
    grains.insert("ipv4".to_owned(), json!(list4));
    grains.insert("ipv6".to_owned(), json!(list6));
    grains.insert("hwaddr_interfaces".to_owned(), Value::Object(hardware));
    grains.insert("dns".to_owned(), dns(&text("/etc/resolv.conf")));
}

async fn ip_tool() -> Option<(Addresses, Map<String, Value>)> {
    let command = Command {
        argv: ["ip", "-j", "addr"].map(str::to_owned).to_vec(),
        ..Command::default()
    };
    let output = run(&command, Some(TOOL))
        .await
        .ok()
        .filter(|o| o.code == 0)?;
    parse_ip(&output.stdout)
}

fn parse_ip(json: &str) -> Option<(Addresses, Map<String, Value>)> {
    let links: Vec<Value> = serde_json::from_str(json).ok()?;
    let (mut addresses, mut hardware) = (Addresses::new(), Map::new());
    for link in links {
        let Some(name) = link.get("ifname").and_then(Value::as_str) else {
            continue;
        };
        let list = link
            .get("addr_info")
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let list = list
            .filter_map(|a| a.get("local")?.as_str()?.parse().ok())
            .collect();
        addresses.insert(name.to_owned(), list);
        hardware.insert(
            name.to_owned(),
            link.get("address").cloned().unwrap_or_default(),
        );
    }
    Some((addresses, hardware))
}

/// Hardware addresses by interface.
fn hardware() -> Map<String, Value> {
    let names =
        crate::host::linux::files::utf8_names("/sys/class/net".as_ref()).unwrap_or_default();
    let pairs = names.into_iter().map(|name| {
        let address = text(&format!("/sys/class/net/{name}/address"));
        (name, json!(address.trim()))
    });
    pairs.collect()
}

/// The kernel's tables: IPv6 with interfaces, IPv4 by the route that contains each local address.
fn without_tool() -> Addresses {
    let local = local_addresses(&text("/proc/net/fib_trie"));
    let routes = kernel_routes(&text("/proc/net/route"));
    let mut addresses: Addresses = addresses_by_interface(&local, &routes)
        .into_iter()
        .map(|(interface, list)| (interface, list.into_iter().map(IpAddr::from).collect()))
        .collect();
    for line in text("/proc/net/if_inet6").lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if let [hex, .., interface] = fields.as_slice()
            && let Ok(bits) = u128::from_str_radix(hex, 16)
        {
            addresses
                .entry((*interface).to_owned())
                .or_default()
                .push(Ipv6Addr::from(bits).into());
        }
    }
    addresses
}

/// The MTU of the interface of each IPv4 address, from the kernel's tables.
pub(super) fn mtus() -> BTreeMap<Ipv4Addr, u32> {
    let mut found = BTreeMap::new();
    for (interface, addresses) in without_tool() {
        let mtu = text(&format!("/sys/class/net/{interface}/mtu"));
        let Ok(mtu) = mtu.trim().parse() else {
            continue;
        };
        for address in addresses {
            if let IpAddr::V4(address) = address {
                found.insert(address, mtu);
            }
        }
    }
    found
}

/// The IPv4 addresses of this host, from the kernel's table.
pub(super) fn addresses_of_this_host() -> Vec<Ipv4Addr> {
    local_addresses(&text("/proc/net/fib_trie"))
}

/// The IPv4 addresses in the network namespace of this thread.
pub(super) fn addresses_of_this_thread() -> Vec<Ipv4Addr> {
    local_addresses(&text("/proc/thread-self/net/fib_trie"))
}

fn routes(table: &str) -> Vec<Value> {
    let rows = kernel_routes(table).into_iter().map(|r| {
        let destination = format!("{}/{}", r.destination, r.prefix_len);
        match r.gateway {
            Some(gateway) => {
                json!({"destination": destination, "interface": r.interface, "gateway": gateway})
            }
            None => json!({"destination": destination, "interface": r.interface}),
        }
    });
    rows.collect()
}

/// Salt's `dns` grain.
fn dns(resolv_conf: &str) -> Value {
    let (mut servers, mut search, mut options, mut sortlist) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut domain = "";
    for line in resolv_conf.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => servers.extend(words.next()),
            Some("search") => search = words.collect(),
            Some("domain") => domain = words.next().unwrap_or_default(),
            Some("options") => options.extend(words),
            Some("sortlist") => sortlist.extend(words),
            _ => {}
        }
    }
    let of = |v6: bool| {
        servers
            .iter()
            .filter(|s| s.contains(':') == v6)
            .collect::<Vec<_>>()
    };
    json!({
        "nameservers": servers, "ip4_nameservers": of(false), "ip6_nameservers": of(true), "domain": domain,
        "search": search, "options": options, "sortlist": sortlist,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_the_ip_tool() {
        let json = r#"[{"ifname":"lo","address":"00:00:00:00:00:00","addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8}]},
            {"ifname":"host0","addr_info":[{"local":"10.0.0.5"},{"local":"fd00::5"}]},{"ifname":"down","addr_info":[]}]"#;
        let (addresses, hardware) = parse_ip(json).unwrap();
        assert_eq!(hardware["lo"], "00:00:00:00:00:00");
        assert_eq!(addresses["host0"].len(), 2);
        assert!(addresses["down"].is_empty());
        assert!(parse_ip("not json").is_none());
    }

    #[test]
    fn routes_are_networks() {
        let table = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
                     eth0 00000000 0100000A 0003 0 0 0 00000000 0 0 0\n\
                     eth0 0000000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n";
        let found = routes(table);
        assert_eq!(
            found[0],
            json!({"destination": "0.0.0.0/0", "interface": "eth0", "gateway": "10.0.0.1"})
        );
        assert_eq!(
            found[1],
            json!({"destination": "10.0.0.0/24", "interface": "eth0"})
        );
    }

    #[test]
    fn resolvers() {
        let found =
            dns("# x\nnameserver 10.0.0.1\nnameserver fd00::1\nsearch a b\noptions ndots:5\n");
        assert_eq!(found["nameservers"], json!(["10.0.0.1", "fd00::1"]));
        assert_eq!(found["ip6_nameservers"], json!(["fd00::1"]));
        assert_eq!(found["search"], json!(["a", "b"]));
    }
}
