//! Logins from a `.netrc` file and from docker's `config.json`.

use std::collections::BTreeMap;
use std::path::Path;
use std::{fmt, fs};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use crate::error::Error;

/// A name and a password. Neither is ever displayed.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    /// The name.
    pub user: String,
    /// The password, or a token in its place.
    pub password: String,
}

impl Secret {
    /// The value of the header `Authorization`.
    pub(crate) fn basic(&self) -> String {
        format!(
            "Basic {}",
            STANDARD.encode(format!("{}:{}", self.user, self.password))
        )
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Logins by host.
#[derive(Debug, Clone, Default)]
pub struct Credentials {
    hosts: BTreeMap<String, Secret>,
}

/// The part of a file with logins that is invalid. No variant has a word of the file except the
/// names of servers: a misplaced word may be a password.
#[derive(Debug, thiserror::Error)]
enum InvalidLogins {
    #[error("machine {0} lacks its login or its password")]
    Incomplete(String),
    #[error("nothing follows the last {0}")]
    NoValue(&'static str),
    #[error("`default` would send a login to every server; name each machine")]
    Default,
    #[error("it does not have the form `machine HOST login USER password PASSWORD`")]
    Form,
    #[error("it is not a docker configuration (line {line})")]
    Docker { line: usize },
    #[error("the `auth` of {0} is not the base64 of USER:PASSWORD")]
    Auth(String),
}

impl Credentials {
    /// Reads a file of lines `machine HOST login USER password PASSWORD` (a host may have a port; a
    /// word may be on its own line; `#` begins a comment).
    ///
    /// # Errors
    /// The file cannot be read, is open to other users, or does not have that form.
    pub fn netrc(path: &Path) -> Result<Self, Error> {
        private(path)?;
        let text = fs::read_to_string(path).map_err(Error::file("read", path))?;
        Self::parse_netrc(&text).map_err(|error| Error::invalid(path.to_string_lossy(), error))
    }

    /// Reads the `auths` of docker's `config.json`. Credential helpers, which are separate
    /// programs, are not run.
    ///
    /// # Errors
    /// The file cannot be read, is open to other users, or does not have that form.
    pub fn docker(path: &Path) -> Result<Self, Error> {
        private(path)?;
        let bytes = fs::read(path).map_err(Error::file("read", path))?;
        Self::parse_docker(&bytes).map_err(|error| Error::invalid(path.to_string_lossy(), error))
    }

    /// Adds the login for a host, or for `HOST:PORT`.
    #[must_use]
    pub fn with(mut self, host: &str, secret: Secret) -> Self {
        self.hosts.insert(host.to_ascii_lowercase(), secret);
        self
    }

    /// Adds the logins of another set, which take precedence.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.hosts.extend(other.hosts);
        self
    }

    /// The login for a host; one with the port takes precedence over one without.
    #[must_use]
    pub fn find(&self, host: &str, port: Option<u16>) -> Option<&Secret> {
        let host = host.to_ascii_lowercase();
        let with_port = port.and_then(|port| self.hosts.get(&format!("{host}:{port}")));
        with_port.or_else(|| self.hosts.get(&host))
    }

    fn parse_netrc(text: &str) -> Result<Self, InvalidLogins> {
        let lines = text.lines().map(|line| match line.trim_start() {
            comment if comment.starts_with('#') => "",
            line => line.split_once(" #").map_or(line, |(before, _)| before),
        });
        let mut words = lines.flat_map(str::split_whitespace);
        let mut found = Self::default();
        let mut machine: Option<(String, Option<String>, Option<String>)> = None;
        loop {
            let word = words.next();
            if matches!(word, None | Some("machine" | "default")) {
                match machine.take() {
                    Some((host, Some(user), Some(password))) => {
                        found = found.with(&host, Secret { user, password });
                    }
                    Some((host, ..)) => {
                        return Err(InvalidLogins::Incomplete(host));
                    }
                    None => {}
                }
            }
            let mut value = |key: &'static str| {
                words
                    .next()
                    .map(str::to_owned)
                    .ok_or(InvalidLogins::NoValue(key))
            };
            match (word, &mut machine) {
                (None, _) => return Ok(found),
                (Some("machine"), _) => machine = Some((value("machine")?, None, None)),
                (Some("login"), Some((_, login, _))) => *login = Some(value("login")?),
                (Some("password"), Some((.., password))) => *password = Some(value("password")?),
                (Some("account"), Some(_)) => drop(value("account")?),
                (Some("default"), _) => return Err(InvalidLogins::Default),
                _ => return Err(InvalidLogins::Form),
            }
        }
    }

    fn parse_docker(bytes: &[u8]) -> Result<Self, InvalidLogins> {
        #[derive(Deserialize)]
        struct Config {
            #[serde(default)]
            auths: BTreeMap<String, Auth>,
        }
        #[derive(Deserialize)]
        struct Auth {
            auth: Option<String>,
            username: Option<String>,
            password: Option<String>,
        }
        // The message of a parser's error may quote the text at its position.
        let config: Config = serde_json::from_slice(bytes)
            .map_err(|error| InvalidLogins::Docker { line: error.line() })?;
        let mut found = Self::default();
        for (server, auth) in config.auths {
            let secret = match auth {
                Auth {
                    auth: Some(auth), ..
                } if !auth.is_empty() => {
                    let text = STANDARD
                        .decode(auth.trim())
                        .ok()
                        .and_then(|bytes| String::from_utf8(bytes).ok());
                    let pair = text.as_deref().and_then(|text| text.split_once(':'));
                    let (user, password) =
                        pair.ok_or_else(|| InvalidLogins::Auth(server.clone()))?;
                    Secret {
                        user: user.to_owned(),
                        password: password.to_owned(),
                    }
                }
                Auth {
                    username: Some(user),
                    password: Some(password),
                    ..
                } => Secret { user, password },
                // A credential helper holds the login.
                _ => continue,
            };
            let host = server
                .split_once("://")
                .map_or(server.as_str(), |(_, rest)| rest);
            let host = host.split('/').next().unwrap_or_default();
            found = found.with(
                if host == "index.docker.io" {
                    "docker.io"
                } else {
                    host
                },
                secret,
            );
        }
        Ok(found)
    }
}

/// Checks that only its owner can read a file with passwords.
fn private(path: &Path) -> Result<(), Error> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = fs::metadata(path)
        .map_err(Error::file("read", path))?
        .permissions()
        .mode();
    if mode & 0o077 == 0 {
        return Ok(());
    }
    let message = "it contains passwords and others can read it: chmod 600 it";
    Err(Error::content(path.to_string_lossy(), message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn netrc_is_read() {
        let text = "# mine\nmachine A.example login u password p # it\nmachine b.example:8443\n  login v\n  \
                    account x\n  password q#r\n";
        let found = Credentials::parse_netrc(text).unwrap();
        assert_eq!(found.find("a.EXAMPLE", Some(443)).unwrap().password, "p");
        assert_eq!(found.find("b.example", Some(8443)).unwrap().password, "q#r");
        assert!(
            found.find("b.example", Some(443)).is_none() && found.find("c.example", None).is_none()
        );
        assert_eq!(found.find("a.example", None).unwrap().basic(), "Basic dTpw");
        assert!(!format!("{found:?}").contains("q#r"));
    }

    #[test]
    fn what_is_wrong_in_a_netrc_is_said_without_its_passwords() {
        for (text, why) in [
            (
                "machine a login u",
                "machine a lacks its login or its password",
            ),
            ("machine a login", "nothing follows the last login"),
            ("default login u password secret", "`default` would send"),
            ("machine a user secret", "not have the form"),
            ("login u password secret", "not have the form"),
        ] {
            let answer = Credentials::parse_netrc(text).unwrap_err().to_string();
            assert!(
                answer.contains(why) && !answer.contains("secret"),
                "{text}: {answer}"
            );
        }
    }

    #[test]
    fn docker_logins_are_read() {
        let json = br#"{"auths": {
            "https://index.docker.io/v1/": {"auth": "dTpwOnE="},
            "r.example:5000": {"username": "v", "password": "w"},
            "helped.example": {}
        }, "credsStore": "x"}"#;
        let found = Credentials::parse_docker(json).unwrap();
        assert_eq!(found.find("docker.io", None).unwrap().password, "p:q");
        assert_eq!(found.find("r.example", Some(5000)).unwrap().user, "v");
        assert!(found.find("helped.example", None).is_none());
        for (json, why) in [
            ("[", "line 1"),
            (
                r#"{"auths": {"r": {"auth": "c2VjcmV0"}}}"#,
                "not the base64 of USER",
            ),
        ] {
            assert!(
                Credentials::parse_docker(json.as_bytes())
                    .unwrap_err()
                    .to_string()
                    .contains(why)
            );
        }
    }
}
