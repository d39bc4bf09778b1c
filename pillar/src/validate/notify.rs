//! The receivers of notifications: their addresses and secrets.

use halite_document::source::join;
use url::Url;

use super::Check;
use super::external::pem;
use crate::notify::{NotifySink, SinkForm};

const EXAMPLE: &str = "for example https://alerts.example.com:9093";

/// A value that does not fit, and the remedy.
type Unfit = (&'static str, &'static str);

pub(super) fn check(check: &mut Check<'_>) {
    for (name, sink) in &check.declaration.cluster.notify.sinks {
        let path = join("notify.sinks", name);
        secrets(check, &path, sink);
        address(check, &path, sink);
        if let Some(text) = &sink.ca {
            pem(check, &join(&path, "ca"), text);
        }
        if sink.form == SinkForm::Alertmanager && sink.repeat.is_some() {
            check.unseen(
                &join(&path, "repeat"),
                "an Alertmanager repeats by its own configuration",
                "remove it, and set `repeat_interval` in the Alertmanager",
            );
        }
    }
}

/// Checks the secrets that a sink names. Their own lines are never displayed.
fn secrets(check: &mut Check<'_>, path: &str, sink: &NotifySink) {
    let named = [
        ("urlSecret", sink.url_secret.as_ref()),
        ("header.secret", sink.header.as_ref().map(|own| &own.secret)),
    ];
    for (field, name) in named {
        let Some(name) = name else { continue };
        let path = format!("{path}.{field}");
        let Some(secret) = check.declaration.cluster.secrets.get(name) else {
            check.unseen(
                &path,
                format!("there is no secret `{name}`"),
                format!("declare it: `secrets: {{{name}: {{value: …}}}}`"),
            );
            continue;
        };
        let value = secret.known().unwrap_or_default();
        let printable = value.bytes().all(|b| b == b' ' || b.is_ascii_graphic());
        if field == "header.secret" && !(printable && value.trim() == value) {
            check.unseen(
                &path,
                format!("the secret `{name}` cannot be the value of a header"),
                "it may only have ASCII characters, on one line and without spaces at its ends",
            );
        }
    }
}

fn address(check: &mut Check<'_>, path: &str, sink: &NotifySink) {
    let secret = sink.url_secret.as_ref();
    let (field, url) = match (&sink.url, secret) {
        (Some(_), Some(_)) => {
            return check.unseen(
                &join(path, "urlSecret"),
                "the sink has two addresses",
                "remove `url` or `urlSecret`",
            );
        }
        (None, None) => {
            return check.unseen(
                path,
                "the sink has no address",
                format!("name it as `url`, {EXAMPLE}"),
            );
        }
        (Some(url), None) => ("url", url.as_str()),
        (None, Some(name)) => match check.declaration.cluster.secrets.get(name) {
            Some(secret) => match secret.known() {
                Some(url) => ("urlSecret", url),
                None => return,
            },
            None => return,
        },
    };
    let is_secret = secret.is_some() || sink.header.is_some();
    if let Err((message, hint)) = usable(url, is_secret, sink.ca.is_some()) {
        // The address may contain a key.
        check.unseen(&join(path, field), message, hint);
    }
}

/// Checks an address; `is_secret`: it is one, or a secret is sent to it.
fn usable(text: &str, is_secret: bool, has_ca: bool) -> Result<(), Unfit> {
    let plain = text.bytes().all(|b| b.is_ascii_graphic());
    // `Url` completes `https:host`; the client does not.
    let is_web = text.starts_with("http://") || text.starts_with("https://");
    let url = Url::parse(text).ok().filter(|_| plain && is_web);
    let Some(url) = url.filter(|url| url.host_str().is_some_and(|host| !host.is_empty())) else {
        return Err((
            "this is not an address that begins with http:// or https://",
            EXAMPLE,
        ));
    };
    if !url.username().is_empty() || url.password().is_some() {
        return Err((
            "this address contains a login",
            "send it as a header: `header: {secret: NAME}`, with `Basic` and the login in base64 as the secret",
        ));
    }
    if url.fragment().is_some() {
        return Err(("this address has a part after `#`", "remove it"));
    }
    if url.scheme() == "http" && is_secret {
        return Err((
            "a secret would be sent without encryption",
            "take an address that begins with https://",
        ));
    }
    if url.scheme() == "http" && has_ca {
        return Err((
            "no certificate is checked at an address that begins with http://",
            "take one that begins with https://, or remove `ca`",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_begins_with_http_or_https_and_two_slashes() {
        for url in ["https://a.corp", "https://a.corp:9093/hook?key=1"] {
            assert_eq!(usable(url, true, true), Ok(()), "{url}");
        }
        for url in ["https:a.corp", "https:/a.corp", "a.corp:9093", "ftp://a"] {
            let (message, _) = usable(url, true, false).unwrap_err();
            assert!(message.contains("begins with http:// or"), "{url}");
        }
    }
}
