//! Logins at registries: `Basic`, and tokens
//! (<https://distribution.github.io/distribution/spec/auth/token/>).

use std::sync::{Mutex, PoisonError};

use serde::Deserialize;
use ureq::http::{HeaderMap, header};
use url::Url;

use crate::error::Error;
use crate::http::{Client, Login, Request, Secret, host, shown};

/// The largest response with a token, in bytes.
const LIMIT: u64 = 1 << 20;

/// The login state at one server for one repository.
#[derive(Debug)]
pub struct Session {
    base: Url,
    scope: String,
    secret: Option<Secret>,
    /// The value of `Authorization`, once a server has required it.
    header: Mutex<Option<String>>,
}

/// A server's challenge: `Bearer realm="https://…",service="…"`.
#[derive(Debug, PartialEq, Eq)]
struct Challenge {
    scheme: String,
    parameters: Vec<(String, String)>,
}

#[derive(Deserialize)]
struct Token {
    token: Option<String>,
    access_token: Option<String>,
}

impl Session {
    pub fn new(base: &Url, repository: &str, secret: Option<Secret>) -> Self {
        let scope = format!("repository:{repository}:pull");
        Self {
            base: base.clone(),
            scope,
            secret,
            header: Mutex::default(),
        }
    }

    fn set(&self, value: String) -> bool {
        let mut header = self.header.lock().unwrap_or_else(PoisonError::into_inner);
        header.replace(value.clone()).as_ref() != Some(&value)
    }

    fn token(&self, client: &Client, challenge: &Challenge) -> Result<String, Error> {
        let find = |name: &str| {
            challenge
                .parameters
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value)
        };
        let who = host(&self.base);
        let wrong = |message: String| Error::server(shown(&self.base), message);
        let no_token = |error: Error| {
            Error::server_because(shown(&self.base), format!("no token for {who}"), error)
        };
        let realm = find("realm").and_then(|realm| Url::parse(realm).ok());
        let mut url =
            realm.ok_or_else(|| wrong("it requires a token but does not say from where".into()))?;
        if url.scheme() != "https" && self.base.scheme() == "https" {
            return Err(wrong(format!(
                "it sends logins to {}, which is not protected by TLS",
                shown(&url)
            )));
        }
        if let Some(service) = find("service") {
            url.query_pairs_mut().append_pair("service", service);
        }
        let scope = find("scope").unwrap_or(&self.scope);
        url.query_pairs_mut().append_pair("scope", scope);
        let once = Once {
            origin: url.origin(),
            header: self.secret.as_ref().map(Secret::basic),
        };
        let reply = client.reply(
            &Request {
                url: url.clone(),
                headers: Vec::new(),
                login: &once,
            },
            LIMIT,
        );
        let reply = reply.map_err(no_token)?;
        // The response is never displayed: it may contain a token.
        let token: Option<Token> = serde_json::from_slice(&reply.body).ok();
        let token = token
            .and_then(|token| token.token.or(token.access_token))
            .filter(|token| !token.is_empty());
        token.ok_or_else(|| {
            Error::server(
                shown(&url),
                format!("its answer contains no token for {who}"),
            )
        })
    }
}

impl Login for Session {
    fn header(&self, url: &Url) -> Option<String> {
        // Blobs are often redirected to other storage servers, which need no login and must not
        // receive this one.
        let ours = url.origin() == self.base.origin();
        self.header
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
            .filter(|_| ours)
    }

    fn refused(&self, client: &Client, url: &Url, headers: &HeaderMap) -> Result<bool, Error> {
        if url.origin() != self.base.origin() {
            return Ok(false);
        }
        let values = headers
            .get_all(header::WWW_AUTHENTICATE)
            .iter()
            .filter_map(|value| value.to_str().ok());
        let challenges: Vec<_> = values.filter_map(parse).collect();
        if let Some(bearer) = challenges
            .iter()
            .find(|challenge| challenge.scheme == "bearer")
        {
            let token = self.token(client, bearer)?;
            self.set(format!("Bearer {token}"));
            return Ok(true);
        }
        match (
            &self.secret,
            challenges
                .iter()
                .any(|challenge| challenge.scheme == "basic"),
        ) {
            (Some(secret), true) => Ok(self.set(secret.basic())),
            _ => Ok(false),
        }
    }
}

/// A login for one request.
struct Once {
    origin: url::Origin,
    header: Option<String>,
}

impl Login for Once {
    fn header(&self, url: &Url) -> Option<String> {
        self.header.clone().filter(|_| url.origin() == self.origin)
    }

    fn refused(&self, _: &Client, _: &Url, _: &HeaderMap) -> Result<bool, Error> {
        Ok(false)
    }
}

/// Parses one challenge (RFC 9110, 11.6.1): a scheme, and parameters whose values may be quoted and
/// contain commas.
fn parse(text: &str) -> Option<Challenge> {
    let (scheme, mut rest) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    let mut parameters = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', ',']);
        if rest.is_empty() {
            return Some(Challenge {
                scheme: scheme.to_ascii_lowercase(),
                parameters,
            });
        }
        let (key, after) = rest.split_once('=')?;
        let mut value = String::new();
        if let Some(quoted) = after.strip_prefix('"') {
            let mut characters = quoted.char_indices();
            loop {
                match characters.next()? {
                    (end, '"') => {
                        rest = &quoted[end + 1..];
                        break;
                    }
                    (_, '\\') => value.push(characters.next()?.1),
                    (_, character) => value.push(character),
                }
            }
        } else {
            let end = after.find(',').unwrap_or(after.len());
            value.push_str(after[..end].trim());
            rest = &after[end..];
        }
        parameters.push((key.trim().to_ascii_lowercase(), value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_are_understood() {
        let challenge = parse(
            r#"Bearer realm="https://a.example/t?x=1",service=r, Scope="repository:a/b:pull,push""#,
        );
        let parameters = [
            ("realm", "https://a.example/t?x=1"),
            ("service", "r"),
            ("scope", "repository:a/b:pull,push"),
        ];
        let parameters = parameters
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .to_vec();
        assert_eq!(
            challenge.unwrap(),
            Challenge {
                scheme: "bearer".into(),
                parameters
            }
        );
        assert_eq!(
            parse("Basic realm=\"a \\\"b\\\"\"").unwrap().parameters[0].1,
            "a \"b\""
        );
        assert_eq!(parse("Negotiate").unwrap().scheme, "negotiate");
        assert_eq!(parse("Bearer realm=\"open"), None);
    }
}
