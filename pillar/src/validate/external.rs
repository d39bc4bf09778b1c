//! External services: certificates that hosts trust, registries and the proxy of containerd, time
//! servers.

use std::collections::BTreeSet;

use halite_document::source::join;
use serde_json::Value;
use url::Url;

use super::Check;
use crate::registry;
use crate::trust::{Unfit, certificates};

/// The package that keeps the clock.
const CHRONY: &str = "chrony";

pub(super) fn check(check: &mut Check<'_>) {
    let cluster = &check.declaration.cluster;
    for (name, text) in &cluster.trust.certificates {
        pem(check, &join("trust.certificates", name), text);
    }
    registries(check);
    proxy(check);
    time(check);
}

/// Reports nulls: TOML has none, and containerd would not start.
fn nulls(check: &mut Check<'_>, path: &str, value: &Value) {
    match value {
        Value::Null => check.cluster(
            path,
            "null has no meaning in containerd's configuration",
            "leave the key out",
        ),
        Value::Object(fields) => {
            for (key, inner) in fields {
                nulls(check, &join(path, key), inner);
            }
        }
        Value::Array(items) => {
            for (at, inner) in items.iter().enumerate() {
                nulls(check, &format!("{path}[{at}]"), inner);
            }
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Reports a text that is not a list of certificates.
pub(super) fn pem(check: &mut Check<'_>, path: &str, text: &str) {
    let Err(unfit) = certificates(text) else {
        return;
    };
    let hint = match unfit {
        Unfit::Other(_) => {
            "only certificates belong here: every host and every reader of this document sees them"
        }
        Unfit::Nothing | Unfit::Damaged | Unfit::Certificate(_) => {
            "write it as PEM: from -----BEGIN CERTIFICATE----- to -----END CERTIFICATE-----, after `|` on lines of its own"
        }
    };
    // The line is not displayed: it may be from a private key.
    check.unseen(path, unfit.to_string(), hint);
}

fn registries(check: &mut Check<'_>) {
    let cluster = &check.declaration.cluster;
    let own = format!("{}:{}", cluster.registry_name(), registry::PORT);
    nulls(
        check,
        "containerd.config",
        &Value::Object(cluster.containerd.config.clone()),
    );
    for (host, foreign) in &cluster.containerd.registries {
        let path = join("containerd.registries", host);
        if *host == own {
            check.cluster(
                &path,
                format!(
                    "`{host}` is the site registry, which Halite itself configures in containerd"
                ),
                "remove it, and set `siteRegistry`",
            );
        }
        let mut seen = BTreeSet::new();
        for (at, mirror) in foreign.mirrors.iter().enumerate() {
            let path = format!("{path}.mirrors[{at}]");
            if !seen.insert(mirror.trim_end_matches('/')) {
                check.unseen(
                    &path,
                    "this mirror is listed twice",
                    "name it once: it is asked once",
                );
            }
            address(check, &path, mirror, true);
        }
        if let Some(text) = &foreign.ca {
            pem(check, &join(&path, "ca"), text);
        }
    }
}

fn proxy(check: &mut Check<'_>) {
    let proxy = &check.declaration.cluster.proxy;
    for (path, url) in [("proxy.http", &proxy.http), ("proxy.https", &proxy.https)] {
        if let Some(url) = url {
            address(check, path, url, false);
        }
    }
    if !proxy.is_there() && !proxy.no_proxy.is_empty() {
        check.cluster(
            "proxy.noProxy",
            "no proxy is declared",
            "declare `proxy.http` or `proxy.https`, or remove it",
        );
    }
}

/// Checks the URL of a mirror or a proxy; only a mirror may have a path (`below`).
fn address(check: &mut Check<'_>, path: &str, text: &str, below: bool) {
    let example = if below {
        "https://mirror.corp/hub"
    } else {
        "http://proxy.corp:3128"
    };
    let plain = text
        .bytes()
        .all(|b| b.is_ascii_graphic() && !matches!(b, b'"' | b'\\'));
    let url = Url::parse(text)
        .ok()
        .filter(|url| plain && matches!(url.scheme(), "http" | "https"));
    let Some(url) = url.filter(|url| url.host_str().is_some_and(|host| !host.is_empty())) else {
        // A text that cannot be parsed may contain a login too.
        let message = "this is not an address that begins with http:// or https://";
        return check.unseen(path, message, format!("for example {example}"));
    };
    if !url.username().is_empty() || url.password().is_some() || text.contains('@') {
        return check.unseen(
            path,
            "this address contains a login",
            "every host would store it where all users can read it: give the hosts access without a login",
        );
    }
    if url.query().is_some() || url.fragment().is_some() || !(below || url.path() == "/") {
        let message = "this address has parts after its host that cannot be used";
        check.unseen(path, message, format!("for example {example}"));
    }
}

fn time(check: &mut Check<'_>) {
    let cluster = &check.declaration.cluster;
    if cluster.host.manage_time {
        if cluster.time.servers.is_empty() && check.sound("time.servers") {
            check.cluster(
                "host.manageTime",
                "no time server is declared",
                "name some: `time: {servers: [ntp.example.com]}`",
            );
        }
        if let Some(bundle) = check.context.bundle
            && !bundle.packages.contains_key(CHRONY)
            && !bundle.rpms.contains_key(CHRONY)
        {
            check.cluster(
                "host.manageTime",
                format!("the bundle {} lacks the package `{CHRONY}`", bundle.path),
                "switch it off, or use a bundle that was made with it; `ctl bundle show` shows what this one has",
            );
        }
    } else if !cluster.time.servers.is_empty() {
        check.cluster(
            "time.servers",
            "no host uses these servers",
            "set `host.manageTime: true`, or remove them if another program keeps the clocks",
        );
    }
}
