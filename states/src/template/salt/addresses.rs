//! `network.calc_net`, `ip_in_subnet`, `is_loopback` and `is_private`, as Python's `ipaddress`
//! computes them.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use minijinja::value::ValueKind;
use minijinja::{Error, Value};

use super::super::error::{caused, invalid};
use super::arguments::Arguments;

/// Networks whose addresses are private in every version of Python.
const PRIVATE: &[&str] = &[
    "0.0.0.0/8",
    "10.0.0.0/8",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/29",
    "192.0.0.170/31",
    "192.0.2.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "240.0.0.0/4",
    "::/127",
    "100::/64",
    "2001::/23",
    "2001:db8::/32",
    "fc00::/7",
    "fe80::/10",
];

/// Networks whose addresses are private in some versions of Python (before or since 3.11.10, 3.12.4
/// and 3.13).
const DIFFERENT: &[&str] = &[
    "192.0.0.8/32",
    "192.0.0.11/32",
    "192.0.0.12/30",
    "192.0.0.16/28",
    "192.0.0.32/27",
    "192.0.0.64/26",
    "192.0.0.128/27",
    "192.0.0.160/29",
    "192.0.0.168/31",
    "192.0.0.172/30",
    "192.0.0.176/28",
    "192.0.0.192/26",
    "64:ff9b:1::/48",
    "2001:1::1/128",
    "2001:1::2/128",
    "2001:3::/32",
    "2001:4:112::/48",
    "2001:20::/28",
    "2001:30::/28",
    "2002::/16",
    "3fff::/20",
];

/// `network.calc_net(ip_addr, netmask=None)`: the network of an address.
pub(super) fn network(name: &str, args: &[Value]) -> Result<Value, Error> {
    let args = Arguments::bind(name, &["ip_addr", "netmask"], args)?.without_secrets()?;
    let address = args.required_text("ip_addr")?;
    let text = match args.optional("netmask").filter(|mask| !mask.is_none()) {
        None => address,
        Some(mask) if mask.kind() == ValueKind::String || mask.is_integer() => {
            format!("{address}/{mask}")
        }
        Some(mask) => {
            return Err(invalid(format!(
                "`netmask` of salt['{name}'] takes a netmask or a number of bits, not a {}",
                mask.kind()
            )));
        }
    };
    refuse_zone(&text)?;
    let network = parsed(&text)
        .ok_or_else(|| invalid(format!("`{text}` is not a network")))?
        .trunc();
    refuse_mapped(network.addr())?;
    Ok(network.to_string().into())
}

/// `network.ip_in_subnet(ip_addr, cidr)`: tests whether the network has the address, or one of
/// several.
pub(super) fn is_in_network(name: &str, args: &[Value]) -> Result<Value, Error> {
    let args = Arguments::bind(name, &["ip_addr", "cidr"], args)?.without_secrets()?;
    let (addresses, cidr) = (args.required("ip_addr")?, args.required("cidr")?);
    let network = match cidr.kind() {
        ValueKind::None => None,
        ValueKind::String => {
            let text = cidr.to_string();
            refuse_zone(&text)?;
            // A network with an address of a host in it is invalid, and has no addresses.
            parsed(&text).filter(|network| *network == network.trunc())
        }
        other => {
            return Err(invalid(format!(
                "`cidr` of salt['{name}'] takes a network, not a {other}"
            )));
        }
    };
    let Some(network) = network else {
        return Ok(false.into());
    };
    let addresses: Vec<Value> = match addresses.kind() {
        ValueKind::Seq | ValueKind::Iterable => addresses.try_iter()?.collect(),
        ValueKind::None => {
            return Err(invalid(format!(
                "`ip_addr` of salt['{name}'] is None, which means the addresses of the host; use a grain"
            )));
        }
        _ => vec![addresses],
    };
    for address in addresses {
        if network.contains(&self::address(name, &address)?) {
            return Ok(true.into());
        }
    }
    Ok(false.into())
}

/// `network.is_loopback(ip_addr)`.
pub(super) fn is_loopback(name: &str, args: &[Value]) -> Result<Value, Error> {
    let address = argument(name, args)?;
    refuse_mapped(address)?;
    Ok(address.is_loopback().into())
}

/// `network.is_private(ip_addr)`.
pub(super) fn is_private(name: &str, args: &[Value]) -> Result<Value, Error> {
    let address = argument(name, args)?.to_canonical();
    let is_in = |networks: &[&str]| {
        let mut networks = networks.iter().filter_map(|text| parsed(text));
        networks.any(|network| network.contains(&address))
    };
    if is_in(DIFFERENT) {
        return Err(invalid(format!(
            "whether `{address}` is private differs between the versions of Python that Salt runs on"
        )));
    }
    Ok(is_in(PRIVATE).into())
}

/// The only argument, an address.
fn argument(name: &str, args: &[Value]) -> Result<IpAddr, Error> {
    let args = Arguments::bind(name, &["ip_addr"], args)?.without_secrets()?;
    address(name, &args.required("ip_addr")?)
}

fn address(name: &str, value: &Value) -> Result<IpAddr, Error> {
    if value.kind() != ValueKind::String {
        return Err(invalid(format!(
            "`ip_addr` of salt['{name}'] takes a text, not a {}",
            value.kind()
        )));
    }
    let text = value.to_string();
    refuse_zone(&text)?;
    text.parse::<IpAddr>()
        .map_err(|error| caused(format!("`{text}` is not an address"), error))
}

/// Refuses an address with the zone of a host (`fe80::1%eth0`), which Salt accepts and drops.
fn refuse_zone(text: &str) -> Result<(), Error> {
    if text.contains('%') {
        return Err(invalid(format!(
            "`{text}` has a zone; write the address without it"
        )));
    }
    Ok(())
}

/// Refuses an IPv4 address in the form of IPv6.
fn refuse_mapped(address: IpAddr) -> Result<(), Error> {
    if address.to_canonical() != address {
        return Err(invalid(format!(
            "the answer for `{address}` differs between the versions of Python that Salt runs on; write it as an IPv4 \
             address"
        )));
    }
    Ok(())
}

/// An address with or without a prefix length, or an IPv4 address with a netmask or its inversion.
fn parsed(text: &str) -> Option<IpNet> {
    let (address, mask) = match text.split_once('/') {
        Some((address, mask)) => (address, Some(mask)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length = match mask {
        None => most,
        Some(mask) => length(mask, most).or_else(|| {
            let mask = mask.parse::<Ipv4Addr>().ok();
            mask.filter(|_| address.is_ipv4()).and_then(length_of_mask)
        })?,
    };
    IpNet::new(address, length).ok()
}

/// A prefix length, which may begin with zeros.
fn length(text: &str, most: u8) -> Option<u8> {
    if text.is_empty() || !text.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let digits = text.trim_start_matches('0');
    let length = if digits.is_empty() {
        0
    } else {
        digits.parse().ok()?
    };
    (length <= most).then_some(length)
}

/// The prefix length of a netmask (`255.255.255.0`) or of its inversion (`0.0.0.255`).
fn length_of_mask(mask: Ipv4Addr) -> Option<u8> {
    let bits = u32::from(mask);
    let ones = [bits, !bits]
        .into_iter()
        .find(|bits| bits.leading_ones() == bits.count_ones())?
        .count_ones();
    u8::try_from(ones).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_are_read_as_python_reads_them() {
        for (text, wanted) in [
            ("10.0.0.5", Some("10.0.0.5/32")),
            ("10.0.0.5/08", Some("10.0.0.5/8")),
            ("10.0.0.5/255.255.255.240", Some("10.0.0.5/28")),
            ("10.0.0.5/0.0.0.255", Some("10.0.0.5/24")),
            ("10.0.0.5/0.0.0.0", Some("10.0.0.5/0")),
            ("10.0.0.5/255.255.255.255", Some("10.0.0.5/32")),
            ("fd00::5/0064", Some("fd00::5/64")),
            ("10.0.0.5/255.0.255.0", None),
            ("10.0.0.5/33", None),
            ("10.0.0.5/", None),
            ("10.0.0.5/+8", None),
            ("10.0.0.5/8/8", None),
            ("010.0.0.5/8", None),
            ("fd00::/129", None),
            ("fd00::/255.0.0.0", None),
            ("fd00::/ffff::", None),
        ] {
            let found = parsed(text).map(|network| network.to_string());
            assert_eq!(found.as_deref(), wanted, "{text}");
        }
    }

    #[test]
    fn every_listed_network_is_one() {
        for text in PRIVATE.iter().chain(DIFFERENT) {
            let network = parsed(text).unwrap();
            assert_eq!(network, network.trunc(), "{text}");
        }
    }
}
