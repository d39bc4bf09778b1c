//! Filters for addresses and networks, named as in Salt, and a few that Salt lacks.

use std::net::IpAddr;

use ipnet::IpNet;
use minijinja::value::ValueKind;
use minijinja::{Environment, Error, Value};

use super::error::invalid;

pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter("is_ip", |value: &Value| address(value).is_some());
    env.add_filter("is_ipv4", |value: &Value| {
        address(value).is_some_and(|net| net.addr().is_ipv4())
    });
    env.add_filter("is_ipv6", |value: &Value| {
        address(value).is_some_and(|net| net.addr().is_ipv6())
    });
    env.add_filter("ipaddr", |value: &Value| only(value, |_| true));
    env.add_filter("ipv4", |value: &Value| {
        only(value, |net| net.addr().is_ipv4())
    });
    env.add_filter("ipv6", |value: &Value| {
        only(value, |net| net.addr().is_ipv6())
    });
    env.add_filter("network_size", |value: &Value| -> Result<u64, Error> {
        let net = network(value)?;
        let bits = if net.addr().is_ipv4() { 32 } else { 128 } - u32::from(net.prefix_len());
        Ok(1u64.checked_shl(bits).unwrap_or(u64::MAX))
    });
    env.add_filter(
        "network_hosts",
        |value: &Value| -> Result<Vec<String>, Error> {
            let net = network(value)?.trunc();
            if net.max_prefix_len() - net.prefix_len() > 16 {
                return Err(invalid(format!(
                    "`{net}` has more than 65536 addresses; `network_host(n)` gives one of them"
                )));
            }
            Ok(net.hosts().map(|host| host.to_string()).collect())
        },
    );
    // The n-th address of a network, counted from its base address; a negative n counts from the
    // end.
    env.add_filter(
        "network_host",
        |value: &Value, number: i64| -> Result<String, Error> {
            let net = network(value)?.trunc();
            nth(&net, number)
                .map(|address| address.to_string())
                .ok_or_else(|| invalid(format!("`{net}` has no address number {number}")))
        },
    );
    env.add_filter("network_prefix", |value: &Value| {
        network(value).map(|net| net.prefix_len())
    });
    env.add_filter(
        "in_network",
        |value: &Value, networks: &Value| -> Result<bool, Error> {
            let address = address(value)
                .ok_or_else(|| invalid(format!("`{value}` is not an address")))?
                .addr();
            let listed: Vec<Value> = match networks.kind() {
                ValueKind::String => vec![networks.clone()],
                _ => networks.try_iter()?.collect(),
            };
            for item in &listed {
                if network(item)?.contains(&address) {
                    return Ok(true);
                }
            }
            Ok(false)
        },
    );
}

/// An address, or a network in CIDR notation.
fn address(value: &Value) -> Option<IpNet> {
    let text = value.as_str()?;
    text.parse::<IpNet>()
        .ok()
        .or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

fn network(value: &Value) -> Result<IpNet, Error> {
    address(value).ok_or_else(|| invalid(format!("`{value}` is not a network like 10.0.0.0/24")))
}

/// The items of a list that pass; for a single value, that value or none.
fn only(value: &Value, pass: impl Fn(&IpNet) -> bool) -> Result<Value, Error> {
    if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        let kept: Vec<Value> = value
            .try_iter()?
            .filter(|item| address(item).is_some_and(|net| pass(&net)))
            .collect();
        return Ok(Value::from(kept));
    }
    Ok(if address(value).is_some_and(|net| pass(&net)) {
        value.clone()
    } else {
        Value::from(())
    })
}

fn nth(net: &IpNet, number: i64) -> Option<IpAddr> {
    match net {
        IpNet::V4(net) => {
            let (low, high) = (
                i64::from(u32::from(net.network())),
                i64::from(u32::from(net.broadcast())),
            );
            let found = if number < 0 {
                high + 1 + number
            } else {
                low + number
            };
            ((low..=high).contains(&found))
                .then(|| IpAddr::V4(u32::try_from(found).unwrap_or(0).into()))
        }
        IpNet::V6(net) => {
            let (low, high) = (u128::from(net.network()), u128::from(net.broadcast()));
            let distance = u128::from(number.unsigned_abs());
            let found = if number < 0 {
                high.checked_sub(distance - 1)?
            } else {
                low.checked_add(distance)?
            };
            ((low..=high).contains(&found)).then(|| IpAddr::V6(found.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render(text: &str) -> String {
        let mut env = Environment::new();
        add(&mut env);
        env.render_str(text, ())
            .unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn addresses_and_networks() {
        for (text, wanted) in [
            ("{{ '10.96.0.0/12' | network_host(1) }}", "10.96.0.1"),
            ("{{ '10.96.0.0/12' | network_host(10) }}", "10.96.0.10"),
            ("{{ '10.0.0.0/30' | network_host(-1) }}", "10.0.0.3"),
            (
                "{{ 'fd00::/64' | network_host(-1) }}",
                "fd00::ffff:ffff:ffff:ffff",
            ),
            (
                "{{ '10.0.0.0/30' | network_hosts | join(',') }}",
                "10.0.0.1,10.0.0.2",
            ),
            ("{{ '10.0.0.0/24' | network_size }}", "256"),
            (
                "{{ '10.0.0.1' | is_ipv4 }} {{ 'fd00::1' | is_ipv6 }} {{ 'x' | is_ip }}",
                "True True False",
            ),
            (
                "{{ ['10.0.0.1', 'fd00::1', 'x'] | ipv4 | join(',') }}",
                "10.0.0.1",
            ),
            (
                "{{ '10.1.2.3' | in_network(['10.0.0.0/24', '10.1.0.0/16']) }}",
                "True",
            ),
        ] {
            assert_eq!(render(text), wanted, "{text}");
        }
        assert!(render("{{ '10.0.0.0/30' | network_host(4) }}").contains("no address number 4"));
        assert!(render("{{ 'x' | network_size }}").contains("not a network"));
    }
}
