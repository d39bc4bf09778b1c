//! Normal forms of firewalld settings: two settings have the same normal form if and only if
//! firewalld treats them alike. firewalld merges ports, masks networks, and puts the elements of a
//! rich rule (firewalld.richlanguage(5)) in its own order.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A setting that Halite does not take: firewalld refuses it, or has another spelling for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FirewallSyntaxError {
    /// A port.
    #[error(
        "`{0}` is not a port like `80/tcp` or `8000-8080/udp`; protocols are tcp, udp, sctp and dccp"
    )]
    Port(String),
    /// A source of a zone.
    #[error("`{0}` is not an IP address, a network, a MAC address or `ipset:NAME`")]
    Source(String),
    /// A rich rule.
    #[error("the rich rule `{rule}` {fault}")]
    Rule {
        /// The rule as written.
        rule: String,
        /// The mistake, as the end of a sentence.
        fault: String,
    },
}

const PROTOCOLS: [&str; 4] = ["tcp", "udp", "sctp", "dccp"];

/// Ports (`80/tcp`, `8000-8080/udp`) without overlaps, sorted.
///
/// # Errors
/// The first one that is not a port.
pub fn ports(list: &[String]) -> Result<Vec<String>, FirewallSyntaxError> {
    let mut ranges: BTreeMap<&str, Vec<(u16, u16)>> = BTreeMap::new();
    for port in list {
        let read = port.split_once('/').and_then(|(range, protocol)| {
            let is_known = PROTOCOLS.contains(&protocol);
            Some((protocol, port_range(range).filter(|_| is_known)?))
        });
        let (protocol, range) = read.ok_or_else(|| FirewallSyntaxError::Port(port.clone()))?;
        ranges.entry(protocol).or_default().push(range);
    }
    let mut all = Vec::new();
    for (protocol, mut ranges) in ranges {
        ranges.sort_unstable();
        let mut merged: Vec<(u16, u16)> = Vec::new();
        for (first, last) in ranges {
            match merged.last_mut() {
                Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
                _ => merged.push((first, last)),
            }
        }
        let written = merged.into_iter().map(written_range);
        all.extend(written.map(|range| format!("{range}/{protocol}")));
    }
    Ok(all)
}

fn port_range(text: &str) -> Option<(u16, u16)> {
    let port = |text: &str| {
        let is_number = text.bytes().all(|digit| digit.is_ascii_digit());
        text.parse::<u16>().ok().filter(|_| is_number)
    };
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (port(first)?, port(last)?),
        None => (port(text)?, port(text)?),
    };
    (first <= last).then_some((first, last))
}

fn written_range((first, last): (u16, u16)) -> String {
    if first == last {
        first.to_string()
    } else {
        format!("{first}-{last}")
    }
}

/// A source of a zone: an address or network, a MAC address, or a set of addresses.
///
/// # Errors
/// It is none of these.
pub fn source(text: &str) -> Result<String, FirewallSyntaxError> {
    if text
        .strip_prefix("ipset:")
        .is_some_and(|name| !name.is_empty())
    {
        return Ok(text.to_owned());
    }
    network(text)
        .or_else(|| mac(text))
        .ok_or_else(|| FirewallSyntaxError::Source(text.to_owned()))
}

fn mac(text: &str) -> Option<String> {
    let mut count = 0;
    let is_good = text.split(':').all(|part| {
        count += 1;
        part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_hexdigit())
    });
    (is_good && count == 6).then(|| text.to_ascii_uppercase())
}

/// An address, or a network without the bits of a host.
fn network(text: &str) -> Option<String> {
    let (address, mask) = match text.split_once('/') {
        Some((address, mask)) => (address, Some(mask)),
        None => (text, None),
    };
    let address: IpAddr = address.parse().ok()?;
    let width = if address.is_ipv4() { 32 } else { 128 };
    let length = match mask {
        None => width,
        Some(mask) if address.is_ipv4() && mask.contains('.') => {
            let bits = u32::from(mask.parse::<Ipv4Addr>().ok()?);
            let length = bits.leading_ones();
            (length + bits.trailing_zeros() >= 32).then_some(length)?
        }
        Some(mask) => mask.parse().ok().filter(|length| *length <= width)?,
    };
    let base: IpAddr = match address {
        IpAddr::V4(address) => {
            let mask = u32::MAX.checked_shl(32 - length).unwrap_or(0);
            Ipv4Addr::from(u32::from(address) & mask).into()
        }
        IpAddr::V6(address) => {
            let mask = u128::MAX.checked_shl(128 - length).unwrap_or(0);
            Ipv6Addr::from(u128::from(address) & mask).into()
        }
    };
    Some(if length == width {
        base.to_string()
    } else {
        format!("{base}/{length}")
    })
}

/// An element of a rich rule, by name: its place in a rule, and its attributes in their order.
type Element = (&'static str, usize, &'static [&'static str]);

const ELEMENTS: &[Element] = &[
    ("source", 0, &["address", "mac", "ipset"]),
    ("destination", 1, &["address", "ipset"]),
    ("service", 2, &["name"]),
    ("port", 2, &["port", "protocol"]),
    ("source-port", 2, &["port", "protocol"]),
    ("protocol", 2, &["value"]),
    ("masquerade", 2, &[]),
    ("icmp-block", 2, &["name"]),
    ("icmp-type", 2, &["name"]),
    ("tcp-mss-clamp", 2, &["value"]),
    (
        "forward-port",
        2,
        &["port", "protocol", "to-port", "to-addr"],
    ),
    ("log", 3, &["prefix", "level"]),
    ("nflog", 3, &["group", "prefix", "queue-size"]),
    ("audit", 4, &[]),
    ("accept", 5, &[]),
    ("reject", 5, &["type"]),
    ("drop", 5, &[]),
    ("mark", 5, &["set"]),
];
const PLACES: usize = 6;
/// The first place of an element that may have a limit.
const LIMITED: usize = 3;

/// An element of a rule that is read.
struct Part {
    element: Element,
    inverted: bool,
    attributes: BTreeMap<&'static str, String>,
    limit: Option<BTreeMap<&'static str, String>>,
    /// The next attributes are of the limit.
    in_limit: bool,
}

/// A rich rule with its elements and attributes in one order, and with one spelling of addresses,
/// ports and limits.
///
/// # Errors
/// firewalld would not understand it.
pub fn rich_rule(text: &str) -> Result<String, FirewallSyntaxError> {
    read_rule(text).map_err(|fault| FirewallSyntaxError::Rule {
        rule: text.to_owned(),
        fault,
    })
}

fn read_rule(text: &str) -> Result<String, String> {
    let words = words(text).ok_or("has a quote without an end")?;
    let mut words = words.iter();
    if words.next().map(String::as_str) != Some("rule") {
        return Err("does not begin with `rule`".to_owned());
    }
    let mut head: BTreeMap<&'static str, String> = BTreeMap::new();
    let mut parts: [Option<Part>; PLACES] = std::array::from_fn(|_| None);
    let mut open: Option<usize> = None;
    for word in words {
        let part = open.and_then(|place| parts.get_mut(place)?.as_mut());
        if let Some((name, value)) = word.split_once('=') {
            if name.is_empty() || value.is_empty() || value.contains('=') {
                return Err(format!("has `{word}`, which is not `NAME=VALUE`"));
            }
            if let Some(part) = part
                && part.takes(name, value)?
            {
                continue;
            }
            open = None;
            match name {
                "family" => head.insert("family", family(value)?),
                "priority" => head.insert("priority", priority(value)?),
                _ => return Err(format!("has `{name}=` in a wrong place")),
            };
            continue;
        }
        match part {
            Some(part) if word == "limit" && part.element.1 >= LIMITED => {
                part.limit.get_or_insert_default();
                part.in_limit = true;
                continue;
            }
            Some(part) if matches!(word.as_str(), "not" | "NOT") && part.element.1 < 2 => {
                part.inverted = true;
                continue;
            }
            _ => {}
        }
        let known = ELEMENTS.iter().find(|(name, ..)| name == word);
        let element = *known.ok_or_else(|| format!("has an unknown word `{word}`"))?;
        let place = parts.get_mut(element.1).ok_or("is too long")?;
        if let Some(other) = place {
            return Err(format!("has both `{}` and `{word}`", other.element.0));
        }
        *place = Some(Part {
            element,
            inverted: false,
            attributes: BTreeMap::new(),
            limit: None,
            in_limit: false,
        });
        open = Some(element.1);
    }
    check_rule(&parts, head.contains_key("family"))?;
    let mut written = vec!["rule".to_owned()];
    for name in ["priority", "family"] {
        if let Some(value) = head.get(name).filter(|value| *value != "0") {
            written.push(attribute(name, value));
        }
    }
    for part in parts.iter().flatten() {
        part.write(&mut written);
    }
    Ok(written.join(" "))
}

/// Refuses what firewalld refuses in a whole rule (`Rich_Rule.check` in its `rich.py`).
fn check_rule(parts: &[Option<Part>; PLACES], has_family: bool) -> Result<(), String> {
    let [source, destination, element, log, audit, action] = parts;
    for part in [source, destination].into_iter().flatten() {
        let (name, _, attributes) = part.element;
        if part.attributes.len() != 1 {
            let attributes = attributes.join(", ");
            return Err(format!("needs one of {attributes} for `{name}`"));
        }
    }
    let is = |name: &str| element.as_ref().is_some_and(|part| part.element.0 == name);
    let has_address = |part: &Part| part.attributes.contains_key("address");
    let is_of_one_family = [source, destination].into_iter().flatten().any(has_address);
    if (is_of_one_family || is("forward-port")) && !has_family {
        return Err("needs `family=ipv4` or `family=ipv6`".to_owned());
    }
    let acts_itself = ["masquerade", "forward-port", "icmp-block", "tcp-mss-clamp"]
        .into_iter()
        .any(is);
    match (acts_itself, action) {
        (true, Some(action)) => {
            let action = action.element.0;
            return Err(format!("has an element that excludes `{action}`"));
        }
        (false, None) if log.is_none() && audit.is_none() => {
            return Err("has no action, log or audit".to_owned());
        }
        _ => {}
    }
    let mut limits = parts
        .iter()
        .flatten()
        .filter_map(|part| part.limit.as_ref());
    if limits.any(|limit| !limit.contains_key("value")) {
        return Err("has a limit without `value`".to_owned());
    }
    Ok(())
}

impl Part {
    /// Takes an attribute, if it is one of this element.
    fn takes(&mut self, name: &str, value: &str) -> Result<bool, String> {
        if self.in_limit {
            if let Some(known) = ["value", "burst"].into_iter().find(|known| *known == name) {
                let limit = self.limit.get_or_insert_default();
                limit.insert(known, limit_value(known, value)?);
                return Ok(true);
            }
            self.in_limit = false;
        }
        let (element, place, attributes) = self.element;
        if name == "invert" && place < 2 {
            self.inverted = true;
            return Ok(true);
        }
        let Some(known) = attributes.iter().find(|known| **known == name) else {
            return Ok(false);
        };
        let fault = || format!("has a wrong `{name}=\"{value}\"`");
        let normal = match (element, *known) {
            (_, "address") => network(value).ok_or_else(fault)?,
            (_, "mac") => mac(value).ok_or_else(fault)?,
            (_, "port" | "to-port") => written_range(port_range(value).ok_or_else(fault)?),
            ("port" | "source-port" | "forward-port", "protocol")
                if !PROTOCOLS.contains(&value) =>
            {
                return Err(fault());
            }
            (_, "to-addr") => network(value).ok_or_else(fault)?,
            ("nflog", "group" | "queue-size") => number(value).ok_or_else(fault)?,
            _ => value.to_owned(),
        };
        self.attributes.insert(*known, normal);
        Ok(true)
    }

    fn write(&self, written: &mut Vec<String>) {
        let (element, _, attributes) = self.element;
        written.push(element.to_owned());
        if self.inverted {
            written.push("NOT".to_owned());
        }
        let is_nothing = |name: &str, value: &str| {
            matches!(name, "group" | "queue-size" | "burst") && value == "0"
                || element == "tcp-mss-clamp" && value == "pmtu"
        };
        let given = |names: &[&str], values: &BTreeMap<&'static str, String>| -> Vec<String> {
            let values = names.iter().filter_map(|name| {
                let value = values.get(*name).filter(|value| !is_nothing(name, value))?;
                Some(attribute(name, value))
            });
            values.collect()
        };
        written.extend(given(attributes, &self.attributes));
        if let Some(limit) = &self.limit {
            written.push("limit".to_owned());
            written.extend(given(&["value", "burst"], limit));
        }
    }
}

fn family(value: &str) -> Result<String, String> {
    match value {
        "ipv4" | "ipv6" => Ok(value.to_owned()),
        _ => Err(format!("has the family `{value}`; there are ipv4 and ipv6")),
    }
}

fn priority(value: &str) -> Result<String, String> {
    let number = value.parse::<i16>();
    let number = number.map_err(|_| format!("has a wrong priority `{value}`"))?;
    Ok(number.to_string())
}

fn number(value: &str) -> Option<String> {
    value.parse::<u32>().ok().map(|number| number.to_string())
}

/// `3/minute` is `3/m`.
fn limit_value(name: &str, value: &str) -> Result<String, String> {
    let fault = || format!("has a wrong limit `{value}`; write one like `3/minute`");
    if name == "burst" {
        return number(value).ok_or_else(fault);
    }
    let (rate, unit) = value.split_once('/').ok_or_else(fault)?;
    let units = [
        ("second", "s"),
        ("minute", "m"),
        ("hour", "h"),
        ("day", "d"),
    ];
    let is_unit = |(long, short): &&(&str, &str)| [*long, *short].contains(&unit.trim());
    let (_, unit) = units.iter().find(is_unit).ok_or_else(fault)?;
    Ok(format!("{}/{unit}", number(rate).ok_or_else(fault)?))
}

fn attribute(name: &str, value: &str) -> String {
    if value.contains(char::is_whitespace) {
        format!("{name}=\"{value}\"")
    } else {
        format!("{name}={value}")
    }
}

/// The words of a rule as a shell splits them; `None` if a quote does not end.
fn words(text: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(letter),
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, '\\') => word.get_or_insert_default().push(letters.next()?),
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    quote.is_none().then_some(words)
}

#[cfg(test)]
#[path = "firewall_tests.rs"]
mod tests;
