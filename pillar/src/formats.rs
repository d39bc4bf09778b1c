//! The formats of texts in documents: the schema names a format, and one function here checks it.

mod times;

use std::net::Ipv4Addr;
use std::str::FromStr as _;

use halite_document::schema::{Misfit, Rules};
use halite_names::{AgeRecipient, BundleVersion, Misnomer};
use ipnet::Ipv4Net;

use self::times::{
    check_batch, check_day, check_interval, check_percent, check_time, check_times, check_weekly,
};

pub use self::times::Weekly;
pub(crate) use self::times::{NEVER, interval, percent, weekly};

/// A rule for texts.
type Rule = fn(&str) -> Result<(), Misfit>;

/// A misfit of `text` whose hint names another value if the rule accepts that value; otherwise the
/// hint is `rule_in_words`. A refused suggestion would cost the operator a second round.
fn suggesting(
    message: impl Into<String>,
    text: &str,
    (rule, rule_in_words): (Rule, &str),
    value: String,
) -> Misfit {
    // The rule itself suggests: with the same text this would not terminate.
    if value == text || rule(&value).is_err() {
        return Misfit::new(message, rule_in_words);
    }
    Misfit {
        message: message.into(),
        hint: format!("write {value}"),
        suggestion: Some(value),
    }
}

/// The rules of the operator's documents.
pub(crate) struct Documents;

impl Rules for Documents {
    fn check(&self, format: &str, text: &str) -> Result<(), Misfit> {
        check(format, text)
    }

    fn placeholder(&self, format: &str) -> Option<&'static str> {
        match format {
            "ipv4-address" => Some("0.0.0.0"),
            "ipv4-network" => Some("0.0.0.0/32"),
            "bundle-version" => Some("0"),
            _ => None,
        }
    }

    fn secret_paths(&self) -> &'static [&'static str] {
        // A secret key in place of its public half must not be repeated.
        &["secrets.", "backup.recipients", "notify.sinks."]
    }
}

/// Checks a text by the name of a format. An unknown format accepts every text.
///
/// # Errors
/// The text does not have the format.
pub fn check(format: &str, text: &str) -> Result<(), Misfit> {
    match format {
        "ipv4-network" => check_network(text),
        "ipv4-address" => check_address(text),
        "dns-subdomain" => check_subdomain(text),
        "bundle-version" => check_bundle_version(text),
        "certificate-name" => check_san(text),
        "kubernetes-version" => check_version(text),
        "flag-name" => check_flag(text),
        "label-key" => check_label_key(text),
        "label-value" => check_label_value(text),
        "sysctl-key" => check_words(
            text,
            "a kernel parameter",
            "./_-",
            "its name has the form net.ipv4.ip_forward",
        ),
        "module-name" => check_words(
            text,
            "a kernel module",
            "_-",
            "its name has the form br_netfilter",
        ),
        "package-name" => check_words(text, "a package name", "+._-", "for example chrony"),
        "secret-name" => check_words(
            text,
            "a name for a secret",
            "_-",
            "use letters, digits, `-` and `_`",
        ),
        "user-name" => check_words(
            text,
            "a user's name",
            "._-",
            "use letters, digits, `.`, `-` and `_`",
        ),
        "certificates-name" => check_words(
            text,
            "a name for certificates",
            "_-",
            "it becomes a file name: letters, digits, `-` and `_`",
        ),
        "feature-gate" => check_words(
            text,
            "a feature gate",
            "",
            "letters and digits, for example InPlacePodVerticalScaling",
        ),
        "sink-name" => check_words(
            text,
            "a name for a sink",
            "_-",
            "use letters, digits, `-` and `_`",
        ),
        "header-name" => check_header(text),
        "etcd-id" => check_words(
            text,
            "an etcd id",
            "",
            "it is hexadecimal, as etcd prints it",
        ),
        "registry-host" => check_registry(text),
        "etcd-endpoint" => check_etcd_endpoint(text),
        "no-proxy" => check_no_proxy(text),
        "time-server" => check_time_server(text),
        "absolute-path" => check_path(text),
        "time-of-day" => check_time(text),
        "times-of-day" => check_times(text),
        "age-recipient" => check_recipient(text),
        "day-of-week" => check_day(text),
        "weekly" => check_weekly(text),
        "percent" => check_percent(text),
        "batch" => check_batch(text),
        "interval" => check_interval(text),
        "auto" if text != "auto" => Err(Misfit::new(
            "is neither `auto` nor a list of names",
            "for example auto, or [cp-2, cp-3]; [] for none",
        )),
        _ => Ok(()),
    }
}

fn check_network(text: &str) -> Result<(), Misfit> {
    if text.contains(':') {
        return Err(Misfit::new(
            "is an IPv6 network",
            "this version of Halite builds IPv4 clusters",
        ));
    }
    let Ok(network) = Ipv4Net::from_str(text) else {
        return Err(Misfit::new(
            "is not an IPv4 network",
            "write it as address and prefix length, for example 10.233.0.0/16",
        ));
    };
    if network.network() != network.addr() {
        let containing = network.trunc().to_string();
        return Err(Misfit {
            hint: format!("the network that contains it is {containing}"),
            suggestion: Some(containing),
            ..Misfit::new("has bits set behind its prefix", "")
        });
    }
    Ok(())
}

fn check_address(text: &str) -> Result<(), Misfit> {
    if text.contains(':') {
        return Err(Misfit::new(
            "is an IPv6 address",
            "this version of Halite builds IPv4 clusters",
        ));
    }
    if text.contains('/') {
        return Err(Misfit::new(
            "is a network, not an address",
            "leave out the prefix length",
        ));
    }
    match Ipv4Addr::from_str(text) {
        Err(_) => Err(Misfit::new(
            "is not an IPv4 address",
            "for example 10.0.0.11",
        )),
        Ok(address)
            if address.is_unspecified()
                || address.is_loopback()
                || address.is_multicast()
                || address.is_broadcast() =>
        {
            Err(Misfit::new(
                "cannot be the address of a host",
                "take one that other hosts can reach",
            ))
        }
        Ok(_) => Ok(()),
    }
}

/// RFC 1123 subdomain, as Kubernetes requires for node names.
fn check_subdomain(text: &str) -> Result<(), Misfit> {
    let Err(error) = halite_names::check_subdomain(text) else {
        return Ok(());
    };
    let message = format!("is not a usable name: {}", error.misnomer);
    let hint = match error.misnomer {
        Misnomer::EmptyPart => "for example worker-1",
        Misnomer::LongPart(_) => "at most 63 between dots (RFC 1123)",
        Misnomer::Hyphen => "begin and end with a letter or digit",
        Misnomer::Long(_) => "at most 253 (RFC 1123)",
        Misnomer::Character(_) => {
            return Err(suggesting(
                message,
                text,
                (
                    check_subdomain,
                    "use lower-case letters, digits and `-` (RFC 1123)",
                ),
                text.to_ascii_lowercase().replace(['_', ' '], "-"),
            ));
        }
    };
    Err(Misfit::new(message, hint))
}

fn check_bundle_version(text: &str) -> Result<(), Misfit> {
    if text.parse::<BundleVersion>().is_ok() {
        return Ok(());
    }
    Err(Misfit::new(
        "cannot be the version of a bundle on a site",
        "write the version of one of the site's bundles: the name of its directory in /var/lib/halite/bundles",
    ))
}

/// Accepts the same as kubeadm's `ValidateCertSANs`: an address, a name, or a name with a wildcard
/// in front.
fn check_san(text: &str) -> Result<(), Misfit> {
    if text.parse::<std::net::IpAddr>().is_ok()
        || check_subdomain(text.strip_prefix("*.").unwrap_or(text)).is_ok()
    {
        return Ok(());
    }
    Err(Misfit::new(
        "is neither an address nor a DNS name",
        "for example 192.0.2.10 or api.example.com, without port",
    ))
}

fn check_version(text: &str) -> Result<(), Misfit> {
    let parts: Vec<&str> = text.strip_prefix('v').unwrap_or(text).split('.').collect();
    let number = |part: &&str| {
        !part.is_empty() && part.len() < 6 && part.bytes().all(|b| b.is_ascii_digit())
    };
    if (2..=3).contains(&parts.len()) && parts.iter().all(number) {
        Ok(())
    } else {
        Err(Misfit::new(
            "is not a Kubernetes version",
            "for example \"1.36\" or \"1.36.3\"",
        ))
    }
}

fn check_flag(text: &str) -> Result<(), Misfit> {
    const RULE: &str = "lower-case letters, digits and `-`, for example audit-log-maxage";
    let bare = text.trim_start_matches('-');
    if let Some((name, _)) = bare.split_once('=') {
        let found = suggesting(
            "contains the value too",
            text,
            (check_flag, RULE),
            name.to_ascii_lowercase(),
        );
        return Err(match &found.suggestion {
            Some(name) => Misfit {
                hint: format!("write it as `{name}: VALUE`"),
                ..found
            },
            None => found,
        });
    }
    if bare != text {
        return Err(suggesting(
            "begins with a dash",
            text,
            (check_flag, RULE),
            bare.to_ascii_lowercase(),
        ));
    }
    let word = text
        .bytes()
        .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    if word && text.starts_with(|c: char| c.is_ascii_lowercase()) {
        Ok(())
    } else {
        Err(Misfit::new("is not the name of a flag", RULE))
    }
}

fn check_label_key(text: &str) -> Result<(), Misfit> {
    let (prefix, name) = text
        .rsplit_once('/')
        .map_or((None, text), |(prefix, name)| (Some(prefix), name));
    if let Some(prefix) = prefix
        && let Err(why) = check_subdomain(prefix)
    {
        let message = "is not a label's key: the part before the slash is not a DNS name";
        return Err(match why.suggestion {
            // The suggestion of the rule for names is only the part before the slash.
            Some(prefix) => suggesting(
                message,
                text,
                (
                    check_label_key,
                    "take a DNS name, a slash and a name, for example example.com/role",
                ),
                format!("{prefix}/{name}"),
            ),
            None => Misfit::new(message, why.hint),
        });
    }
    if name.is_empty() || check_label_value(name).is_err() {
        return Err(Misfit::new(
            "is not a label's key",
            "at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends",
        ));
    }
    Ok(())
}

fn check_label_value(text: &str) -> Result<(), Misfit> {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let ends = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    if bytes.len() <= 63
        && bytes.iter().all(|b| inner(*b))
        && ends(bytes.first())
        && ends(bytes.last())
    {
        Ok(())
    } else {
        Err(Misfit::new(
            "is not a label's value",
            "at most 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends",
        ))
    }
}

fn check_words(text: &str, what: &str, also: &str, hint: &str) -> Result<(), Misfit> {
    let fits = |c: char| c.is_ascii_alphanumeric() || also.contains(c);
    if text.starts_with(|c: char| c.is_ascii_alphanumeric()) && text.chars().all(fits) {
        Ok(())
    } else {
        Err(Misfit::new(format!("is not {what}"), hint))
    }
}

/// A path that units of systemd and command lines can contain without quotes.
fn check_path(text: &str) -> Result<(), Misfit> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "/._-".contains(c);
    let below = text
        .strip_prefix('/')
        .is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
    if below && text.chars().all(fits) && text.split('/').all(|part| part != "..") {
        Ok(())
    } else {
        Err(Misfit::new(
            "is not a path that can be used here",
            "begin with `/`; letters, digits, `/`, `.`, `_` and `-`; no `..`",
        ))
    }
}

/// The host without its port, if it has one; `None` if the text after the colon is not a port.
fn host_of(text: &str) -> Option<&str> {
    let Some((host, port)) = text.split_once(':') else {
        return Some(text);
    };
    let number =
        port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0);
    number.then_some(host)
}

/// The host of an image's name, in the form in which containerd looks for its directory.
fn check_registry(text: &str) -> Result<(), Misfit> {
    const EXAMPLE: &str = "for example docker.io or registry.corp:5000, as in the names of images";
    if text == "_default" {
        return Err(Misfit::new(
            "is the name that Halite itself writes, for all registries",
            EXAMPLE,
        ));
    }
    match host_of(text) {
        Some(host) if check_subdomain(host).is_ok() => Ok(()),
        _ => Err(Misfit::new("is not the host of a registry", EXAMPLE)),
    }
}

/// The URL of an etcd member for its clients, with its port.
fn check_etcd_endpoint(text: &str) -> Result<(), Misfit> {
    const EXAMPLE: &str = "for example https://10.0.0.21:2379";
    let host = text.strip_prefix("https://").and_then(|rest| {
        let host = host_of(rest)?;
        (host.len() < rest.len()).then_some(host)
    });
    match host {
        Some(host) if check_subdomain(host).is_ok() => Ok(()),
        _ if text.starts_with("http://") => Err(Misfit::new(
            "is not encrypted, so everything in the cluster could be read on the network",
            format!("etcd has to serve with TLS: {EXAMPLE}"),
        )),
        _ => Err(Misfit::new(
            "is not the URL of an etcd member: https, a host and a port",
            EXAMPLE,
        )),
    }
}

/// Accepts the same as Go's `httpproxy` in `NO_PROXY`: a name with or without its subdomains, an
/// address, a network.
fn check_no_proxy(text: &str) -> Result<(), Misfit> {
    let network = text.parse::<ipnet::IpNet>().is_ok();
    let address = text.parse::<std::net::IpAddr>().is_ok();
    let bare = |host: &str| {
        let bare = host
            .strip_prefix("*.")
            .or_else(|| host.strip_prefix('.'))
            .unwrap_or(host);
        check_subdomain(bare).is_ok()
    };
    if network || address || host_of(text).is_some_and(bare) {
        Ok(())
    } else {
        Err(Misfit::new(
            "cannot be excluded from the proxy",
            "one name, address or network each: registry.corp, .corp, 10.7.0.1, 10.7.0.0/16",
        ))
    }
}

fn check_time_server(text: &str) -> Result<(), Misfit> {
    if text.parse::<std::net::IpAddr>().is_ok() || check_subdomain(text).is_ok() {
        Ok(())
    } else {
        Err(Misfit::new(
            "is neither an address nor a DNS name",
            "for example 192.0.2.10 or ntp.example.com",
        ))
    }
}

/// Headers that describe the request itself (RFC 9110).
const OWN_HEADERS: [&str; 5] = [
    "connection",
    "content-length",
    "content-type",
    "host",
    "transfer-encoding",
];

fn check_header(text: &str) -> Result<(), Misfit> {
    const EXAMPLE: &str = "for example Authorization or X-Api-Key";
    check_words(text, "the name of a header", "_-", EXAMPLE)?;
    if OWN_HEADERS.contains(&text.to_ascii_lowercase().as_str()) {
        return Err(Misfit::new("is a header that Halite itself sets", EXAMPLE));
    }
    Ok(())
}

fn check_recipient(text: &str) -> Result<(), Misfit> {
    match text.parse::<AgeRecipient>() {
        Ok(_) => Ok(()),
        Err(_) => Err(Misfit::new(
            "is not an age recipient",
            "the public key that `age-keygen` prints: `age1` and 58 characters; not a secret key, and not an SSH key",
        )),
    }
}

#[cfg(test)]
mod tests;
