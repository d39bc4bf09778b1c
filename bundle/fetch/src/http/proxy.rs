//! The choice of a proxy: `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and `NO_PROXY`, as curl
//! interprets them (<https://curl.se/docs/manpage.html#ENVIRONMENT>), or the settings that replace
//! them.
//!
//! The client requests a tunnel (`CONNECT`) from a proxy, even for `http`. For `https`, a proxy
//! that allows tunnels only to port 443 is enough.

use std::net::IpAddr;

use ipnet::IpNet;
use url::Url;

use super::Settings;
use crate::error::Error;

/// The configured proxies.
#[derive(Debug)]
pub struct Proxies {
    https: Option<ureq::Proxy>,
    http: Option<ureq::Proxy>,
    none: Vec<Direct>,
}

/// A rule for requests without a proxy.
#[derive(Debug, PartialEq)]
enum Direct {
    All,
    Net(IpNet),
    /// A domain and its subdomains, optionally on one port only.
    Host(String, Option<u16>),
}

impl Proxies {
    /// Reads the settings and the environment, which is passed as a function.
    pub fn new(
        settings: &Settings,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, Error> {
        let variable = |name: &str| {
            let either = environment(&name.to_lowercase()).filter(|value| !value.is_empty());
            either.or_else(|| environment(name).filter(|value| !value.is_empty()))
        };
        let find = |name: &str| match &settings.proxy {
            Some(proxy) if proxy.is_empty() => Ok(None),
            Some(proxy) => parse(proxy, "the proxy in the settings").map(Some),
            None => ["ALL_PROXY", name]
                .into_iter()
                .rev()
                .find_map(|name| Some((name, variable(name)?)))
                .map(|(name, value)| parse(&value, name))
                .transpose(),
        };
        let none = settings
            .no_proxy
            .clone()
            .or_else(|| variable("NO_PROXY"))
            .unwrap_or_default();
        let none = none
            .split([',', ' '])
            .filter(|part| !part.is_empty())
            .map(direct)
            .collect();
        Ok(Self {
            https: find("HTTPS_PROXY")?,
            http: find("HTTP_PROXY")?,
            none,
        })
    }

    /// The proxy for a request.
    pub fn find(&self, url: &Url) -> Option<&ureq::Proxy> {
        let proxy = if url.scheme() == "https" {
            &self.https
        } else {
            &self.http
        };
        proxy
            .as_ref()
            .filter(|_| !self.none.iter().any(|direct| direct.covers(url)))
    }
}

impl Direct {
    fn covers(&self, url: &Url) -> bool {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        match self {
            Self::All => true,
            Self::Net(net) => host
                .parse::<IpAddr>()
                .is_ok_and(|address| net.contains(&address)),
            Self::Host(name, port) => {
                let below = host.strip_suffix(name.as_str());
                below.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
                    && port.is_none_or(|port| url.port_or_known_default() == Some(port))
            }
        }
    }
}

fn direct(text: &str) -> Direct {
    if text == "*" {
        return Direct::All;
    }
    if let Ok(net) = text.parse::<IpNet>() {
        return Direct::Net(net);
    }
    if let Ok(address) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Direct::Net(address.into());
    }
    let (name, port) = match text
        .rsplit_once(':')
        .map(|(name, port)| (name, port.parse()))
    {
        Some((name, Ok(port))) => (name, Some(port)),
        _ => (text, None),
    };
    Direct::Host(
        name.trim_start_matches('*')
            .trim_start_matches('.')
            .to_ascii_lowercase(),
        port,
    )
}

fn parse(text: &str, from: &str) -> Result<ureq::Proxy, Error> {
    // The value is not displayed: it may contain a password.
    let wrong = |why: &str| Error::Setting(format!("{from} {why}; write http://HOST:PORT"));
    let proxy = ureq::Proxy::new(text).map_err(|_| wrong("is not the address of a proxy"))?;
    match proxy.protocol() {
        ureq::ProxyProtocol::Http | ureq::ProxyProtocol::Https => Ok(proxy),
        _ => Err(wrong("is a SOCKS proxy, which is not supported")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(settings: &Settings, environment: &[(&str, &str)], url: &str) -> Option<String> {
        let find = |name: &str| {
            environment
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, v)| (*v).to_owned())
        };
        let proxies = Proxies::new(settings, find).unwrap();
        proxies
            .find(&Url::parse(url).unwrap())
            .map(|proxy| format!("{}:{}", proxy.host(), proxy.port()))
    }

    #[test]
    fn the_environment_is_followed() {
        let environment = [
            ("https_proxy", "http://s:1"),
            ("HTTP_PROXY", "p:2"),
            (
                "NO_PROXY",
                "localhost, .corp.example,10.0.0.0/8,::1 one.example:8443",
            ),
        ];
        let chosen = |url: &str| chosen(&Settings::default(), &environment, url);
        assert_eq!(chosen("https://a.example/").unwrap(), "s:1");
        assert_eq!(chosen("http://a.example/").unwrap(), "p:2");
        for direct in [
            "https://localhost:5000/",
            "https://x.corp.example/",
            "https://corp.example/",
            "http://10.1.2.3/",
            "https://[::1]:4/",
            "https://one.example:8443/",
        ] {
            assert_eq!(chosen(direct), None, "{direct}");
        }
        for through in [
            "https://notcorp.example/",
            "https://11.1.2.3/",
            "https://one.example/",
        ] {
            assert_eq!(chosen(through).unwrap(), "s:1", "{through}");
        }
    }

    #[test]
    fn settings_come_first() {
        let environment = [
            ("HTTPS_PROXY", "http://s:1"),
            ("NO_PROXY", "*"),
            ("ALL_PROXY", "http://all:3"),
        ];
        let set = |proxy: Option<&str>, none: Option<&str>| Settings {
            proxy: proxy.map(str::to_owned),
            no_proxy: none.map(str::to_owned),
            ..Settings::default()
        };
        let url = "https://a.example/";
        assert_eq!(chosen(&set(None, None), &environment, url), None);
        assert_eq!(
            chosen(&set(None, Some("")), &environment, url).unwrap(),
            "s:1"
        );
        assert_eq!(
            chosen(&set(None, Some("")), &environment, "http://a.example/").unwrap(),
            "all:3"
        );
        assert_eq!(
            chosen(&set(Some("http://t:9"), Some("b")), &environment, url).unwrap(),
            "t:9"
        );
        assert_eq!(chosen(&set(Some(""), Some("")), &environment, url), None);
    }

    #[test]
    fn a_wrong_proxy_is_an_error_that_does_not_show_it() {
        for (value, why) in [
            ("socks5://u:secret@h:1", "SOCKS"),
            ("ftp://u:secret@h", "not the address of a proxy"),
        ] {
            let find = |name: &str| (name == "https_proxy").then(|| value.to_owned());
            let error = Proxies::new(&Settings::default(), find)
                .unwrap_err()
                .to_string();
            assert!(
                error.contains(why) && error.contains("HTTPS_PROXY") && !error.contains("secret"),
                "{error}"
            );
        }
    }
}
