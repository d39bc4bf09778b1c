//! HTTP requests: one attempt with its redirects and its login, and small responses in memory.

use std::io::Read as _;
use std::sync::Arc;

use jiff::Timestamp;
use ureq::http::{HeaderMap, Response, StatusCode, header};
use ureq::{Agent, Body, http};
use url::Url;

use super::headers::length;
use super::proxy::Proxies;
use super::retry::{Failure, RetryChance};
use super::{Settings, retry, tls};
use crate::error::Error;

/// The number of bytes that are read of an error response.
const SAID: u64 = 4096;

const WANTS_LOGIN: &str = "the proxy requires a login";

/// A client for all servers. Cloning is cheap.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    proxies: Arc<Proxies>,
    settings: Arc<Settings>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A request.
pub(crate) struct Request<'a> {
    /// The URL.
    pub url: Url,
    /// `Accept`, `Range` and the like.
    pub headers: Vec<(header::HeaderName, String)>,
    /// The login to use.
    pub login: &'a dyn Login,
}

/// A small response.
pub(crate) struct Reply {
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// A login of a client.
pub(crate) trait Login: Sync {
    /// The value of `Authorization` for a URL. It is requested again for each redirect, so that a
    /// login is sent only to its own server.
    fn header(&self, url: &Url) -> Option<String>;

    /// Handles a server's request for another login. Returns whether there is a new one, so that a
    /// retry can succeed.
    fn refused(&self, client: &Client, url: &Url, headers: &HeaderMap) -> Result<bool, Error>;
}

/// The logins of the settings, which are sent only over TLS.
impl Login for Settings {
    fn header(&self, url: &Url) -> Option<String> {
        let secret = self
            .credentials
            .find(url.host_str()?, url.port_or_known_default())?;
        (url.scheme() == "https").then(|| secret.basic())
    }

    fn refused(&self, _: &Client, _: &Url, _: &HeaderMap) -> Result<bool, Error> {
        Ok(false)
    }
}

impl Client {
    /// A client with these settings; proxies that they do not set come from the environment.
    ///
    /// # Errors
    /// A setting is not valid, or a certificate cannot be read.
    pub fn new(settings: Settings) -> Result<Self, Error> {
        let proxies = Proxies::new(&settings, |name| std::env::var(name).ok())?;
        let config = Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .tls_config(tls::config(&settings)?)
            .proxy(None)
            .timeout_resolve(Some(settings.connect))
            .timeout_connect(Some(settings.connect))
            .timeout_recv_response(Some(settings.stall))
            .timeout_per_read(Some(settings.stall))
            .timeout_per_write(Some(settings.stall))
            .user_agent(concat!("halite/", env!("CARGO_PKG_VERSION")))
            .accept("*/*")
            .build();
        Ok(Self {
            agent: config.into(),
            proxies: Arc::new(proxies),
            settings: Arc::new(settings),
        })
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Fetches a small file into memory.
    ///
    /// # Errors
    /// It cannot be fetched, or is larger than `limit` bytes.
    pub fn bytes(&self, url: &str, limit: u64) -> Result<Vec<u8>, Error> {
        let request = Request {
            url: address(url)?,
            headers: Vec::new(),
            login: &*self.settings,
        };
        Ok(self.reply(&request, limit)?.body)
    }

    /// Fetches a small file with its headers.
    pub(crate) fn reply(&self, request: &Request, limit: u64) -> Result<Reply, Error> {
        retry::until(&self.settings, || {
            self.reply_once(request, limit)
                .map_err(|failure| (failure, false))
        })
    }

    fn reply_once(&self, request: &Request, limit: u64) -> Result<Reply, Failure> {
        let mut response = self.send(request)?;
        let url = || shown(&request.url);
        if !response.status().is_success() {
            return Err(self.status(&request.url, response));
        }
        let too_large = || {
            Error::server(
                url(),
                format!("it is larger than {limit} bytes, which cannot be right"),
            )
        };
        if length(&response).is_some_and(|length| length > limit) {
            return Err(too_large().into());
        }
        let mut body = Vec::new();
        let mut reader = response
            .body_mut()
            .with_config()
            .limit(u64::MAX)
            .reader()
            .take(limit + 1);
        reader
            .read_to_end(&mut body)
            .map_err(|error| self.broken(&url(), error))?;
        if body.len() as u64 > limit {
            return Err(too_large().into());
        }
        Ok(Reply {
            headers: response.headers().clone(),
            body,
        })
    }

    /// Makes one attempt: follows redirects, and logs in once if a server requires it. Returns
    /// every status except a redirect.
    pub(crate) fn send(&self, request: &Request) -> Result<Response<Body>, Failure> {
        let mut url = request.url.clone();
        let mut passed = Vec::new();
        let mut logged_in = false;
        loop {
            let response = self.ask(&url, request)?;
            if response.status() == StatusCode::UNAUTHORIZED && !logged_in {
                logged_in = true;
                if request.login.refused(self, &url, response.headers())? {
                    continue;
                }
            }
            let Some(next) = redirect(&url, &response)? else {
                return Ok(response);
            };
            passed.push(shown(&url));
            if passed.len() > self.settings.redirects as usize {
                let again = if passed.contains(&shown(&next)) {
                    "in a circle "
                } else {
                    ""
                };
                let last = passed.last().cloned().unwrap_or_default();
                let message = format!(
                    "redirected {again}{} times, at last by {last}",
                    passed.len()
                );
                return Err(Error::server(shown(&request.url), message).into());
            }
            url = next;
        }
    }

    fn ask(&self, url: &Url, request: &Request) -> Result<Response<Body>, Failure> {
        let mut builder = http::Request::get(url.as_str());
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        if let Some(login) = request.login.header(url) {
            builder = builder.header(header::AUTHORIZATION, login);
        }
        let ready = builder
            .body(())
            .map_err(|error| Error::server_because(shown(url), "cannot make the request", error))?;
        let proxy = self.proxies.find(url).cloned();
        let ready = self.agent.configure_request(ready).proxy(proxy).build();
        self.agent
            .run(ready)
            .map_err(|error| self.unreached(url, error))
    }

    /// Makes the error of an error response.
    pub(crate) fn status(&self, url: &Url, mut response: Response<Body>) -> Failure {
        let status = response.status();
        let after = response
            .headers()
            .get(header::RETRY_AFTER)
            .and_then(|value| value.to_str().ok());
        let after = after.and_then(|value| retry::retry_after(value, Timestamp::now()));
        let again = match (status.as_u16(), after) {
            (429 | 503, Some(after)) => RetryChance::After(after),
            (408 | 429 | 500 | 502 | 503 | 504, _) => RetryChance::Yes,
            _ => RetryChance::No,
        };
        let mut said = Vec::new();
        // The body is only for the message; a truncated one is not another error.
        let _ = response
            .body_mut()
            .as_reader()
            .take(SAID)
            .read_to_end(&mut said);
        let html = said.trim_ascii_start().starts_with(b"<");
        let said = if html {
            String::new()
        } else {
            one_line(&String::from_utf8_lossy(&said))
        };
        let message = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                format!(
                    "{said}{}a login for {} may be missing or wrong",
                    if said.is_empty() { "" } else { "; " },
                    host(url)
                )
            }
            StatusCode::PROXY_AUTHENTICATION_REQUIRED => WANTS_LOGIN.to_owned(),
            _ => said,
        };
        Failure {
            error: Error::Status {
                url: shown(url),
                status: status.to_string(),
                message,
            },
            again,
        }
    }

    /// Makes the error of a connection that broke or stalled during a response.
    pub(crate) fn broken(&self, url: &str, error: std::io::Error) -> Failure {
        let inner = error
            .get_ref()
            .and_then(|inner| inner.downcast_ref::<ureq::Error>());
        let stalled = matches!(inner, Some(ureq::Error::Timeout(_)))
            || error.kind() == std::io::ErrorKind::TimedOut;
        Failure::again(if stalled {
            Error::server(url, self.stalled())
        } else {
            Error::server_because(url, "the connection broke off", error)
        })
    }

    fn stalled(&self) -> String {
        format!(
            "nothing was received for {} seconds",
            self.settings.stall.as_secs_f32()
        )
    }

    /// Makes the error of a request without a response.
    fn unreached(&self, url: &Url, error: ureq::Error) -> Failure {
        let hopeless = match &error {
            ureq::Error::ConnectProxyFailed(said) => matches!(refusal(said), Some(403 | 407)),
            ureq::Error::Io(error) => error.kind() == std::io::ErrorKind::InvalidData,
            ureq::Error::Timeout(_)
            | ureq::Error::HostNotFound
            | ureq::Error::ConnectionFailed
            | ureq::Error::Protocol(_) => false,
            _ => true,
        };
        let proxy = match &error {
            ureq::Error::ConnectProxyFailed(said) => refusal(said),
            _ => None,
        };
        let error = match (error, proxy) {
            (_, Some(407)) => Error::server(shown(url), WANTS_LOGIN),
            (_, Some(403)) => Error::server(shown(url), "the proxy does not allow it (403)"),
            (_, Some(status)) => Error::server(shown(url), format!("the proxy answers {status}")),
            (ureq::Error::Timeout(ureq::Timeout::RecvResponse | ureq::Timeout::RecvBody), _) => {
                Error::server(shown(url), self.stalled())
            }
            (ureq::Error::HostNotFound, _) => Error::server(
                shown(url),
                format!(
                    "no address is known for {} (name resolution, or a proxy that is not set?)",
                    host(url)
                ),
            ),
            (ureq::Error::Io(inner), _) if hopeless => Error::server_because(
                shown(url),
                "no trusted connection (is the authority that signed its certificate trusted here?)",
                inner,
            ),
            (error, _) => Error::server_because(shown(url), "cannot get an answer", error),
        };
        Failure {
            error,
            again: if hopeless {
                RetryChance::No
            } else {
                RetryChance::Yes
            },
        }
    }
}

/// Parses a URL. A URL with a login is refused, because the login would end up in logs and locks.
///
/// # Errors
/// The text is not a URL, or contains a login.
pub fn address(text: &str) -> Result<Url, Error> {
    let wrong = |why: &str| {
        let bare = text.rsplit_once('@').map_or(text, |(_, rest)| rest);
        Error::Setting(format!("{bare}: {why}"))
    };
    let url =
        Url::parse(text).map_err(|error| wrong(&format!("not the address of a file: {error}")))?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong(
            "an address must not contain a login; put it into the file with credentials",
        ));
    }
    match url.scheme() {
        "https" | "http" => Ok(url),
        scheme => Err(wrong(&format!(
            "{scheme}: is not supported, only https and http"
        ))),
    }
}

/// A URL for display: without the login, and without the query, which may contain a signature that
/// grants access.
#[must_use]
pub fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    // This fails only for URLs without a host, which have no login either.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    url.to_string()
}

/// The status with which a proxy refused a tunnel, parsed from the library's message: `proxy server
/// responded 502/502`.
fn refusal(said: &str) -> Option<u16> {
    said.rsplit_once(' ')?.1.split_once('/')?.0.parse().ok()
}

/// `HOST`, or `HOST:PORT` if the port is not the default one.
pub(crate) fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port()
        .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

fn redirect(url: &Url, response: &Response<Body>) -> Result<Option<Url>, Error> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let location = response
        .headers()
        .get(header::LOCATION)
        .and_then(|value| value.to_str().ok());
    let next = location.and_then(|location| url.join(location).ok());
    let Some(next) = next else {
        return Err(Error::server(shown(url), "it redirects without a target"));
    };
    if !matches!(
        (url.scheme(), next.scheme()),
        (_, "https") | ("http", "http")
    ) {
        let message = format!(
            "it redirects to {}, which is not protected by TLS",
            shown(&next)
        );
        return Err(Error::server(shown(url), message));
    }
    Ok(Some(next))
}

fn one_line(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text: String = text.chars().filter(|c| !c.is_control()).take(300).collect();
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_carry_no_logins() {
        let error = address("https://user:secret@a.example/x")
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("must not contain a login") && !error.contains("secret"),
            "{error}"
        );
        let error = address("ftp://a.example/").unwrap_err().to_string();
        assert!(error.contains("only https and http"), "{error}");
        let url = Url::parse("https://u:p@a.example:8443/x?sig=secret#y").unwrap();
        assert_eq!(shown(&url), "https://a.example:8443/x");
        assert_eq!(host(&url), "a.example:8443");
    }
}
