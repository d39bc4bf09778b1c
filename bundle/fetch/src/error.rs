//! Errors of fetching.

use std::io;
use std::path::PathBuf;

use halite_durable::Digest;
use halite_errors::chain;

/// The error of a library or of a part of the request.
type Cause = Box<dyn std::error::Error + Send + Sync>;

/// A failed fetch. URLs in the error contain neither logins nor query strings.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file on this machine could not be read or written.
    #[error("cannot {action} {}", path.display())]
    File {
        /// `read`, `write` …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// A setting is invalid; the error and the remedy.
    #[error("{0}")]
    Setting(String),
    /// A server could not be reached, or its response is invalid.
    #[error("{url}: {message}")]
    Server {
        /// The requested URL.
        url: String,
        /// The failed action or the wrong response, and the remedy.
        message: String,
        /// The cause, where there is one.
        source: Option<Cause>,
    },
    /// A server responded with an error.
    #[error("{url}: the server answers {status}{}{message}", if message.is_empty() { "" } else { ": " })]
    Status {
        /// The requested URL.
        url: String,
        /// The HTTP status with its name.
        status: String,
        /// The server's message in one line; empty if there was none.
        message: String,
    },
    /// The received content has another digest. It was removed.
    #[error("{url}: expected SHA-256 {expected}, found {found}; the received data was removed")]
    Digest {
        /// The URL of the content.
        url: String,
        /// The expected digest.
        expected: Digest,
        /// The digest of the received content.
        found: Digest,
    },
    /// The received content has another size. It was removed.
    #[error("{url}: expected {expected} bytes, found {found}; the received data was removed")]
    Size {
        /// The URL of the content.
        url: String,
        /// The expected size in bytes.
        expected: u64,
        /// The received size: a number, or `more`.
        found: String,
    },
    /// The received content is larger than the limit for its kind. It was removed.
    #[error(
        "{url}: it is larger than {limit} bytes, which cannot be right; the received data was removed"
    )]
    Limit {
        /// The URL of the content.
        url: String,
        /// The limit in bytes.
        limit: u64,
    },
    /// A signature is missing, wrong, or not by a trusted key.
    #[error("{what}: {message}")]
    Signature {
        /// The content that should be signed.
        what: String,
        /// The error.
        message: String,
    },
    /// The content is invalid, or lacks the requested item.
    #[error("{what}: {message}")]
    Content {
        /// The source of the content.
        what: String,
        /// The error.
        message: String,
    },
    /// The content is refused by its reader.
    #[error("{what}")]
    Invalid {
        /// The source of the content.
        what: String,
        /// The reader's reason.
        source: Cause,
    },
    /// All files that are not in the cache, while there is no network.
    #[error(
        "offline, and {} not in the cache:\n  {}\nfetch once without `--offline` to have {}",
        if .0.len() == 1 { "this is".to_owned() } else { format!("these {} are", .0.len()) },
        .0.join("\n  "),
        if .0.len() == 1 { "it" } else { "them" }
    )]
    Missing(Vec<String>),
    /// Several of the above errors.
    #[error("{}", .0.iter().map(|error| chain(error)).collect::<Vec<_>>().join("\n"))]
    Several(Vec<Error>),
}

impl Error {
    /// Makes the error of a system call, for `map_err`, from the action and the file's path.
    pub fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File {
            action,
            path,
            source,
        }
    }

    /// Makes the error of invalid content.
    pub fn content(what: impl Into<String>, message: impl ToString) -> Self {
        Self::Content {
            what: what.into(),
            message: message.to_string(),
        }
    }

    /// Makes the error of invalid content from the error of its reader.
    pub fn invalid(what: impl Into<String>, source: impl Into<Cause>) -> Self {
        Self::Invalid {
            what: what.into(),
            source: source.into(),
        }
    }

    pub(crate) fn server(url: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Server {
            url: url.into(),
            message: message.into(),
            source: None,
        }
    }

    pub(crate) fn server_because(
        url: impl Into<String>,
        message: impl Into<String>,
        source: impl Into<Cause>,
    ) -> Self {
        Self::Server {
            url: url.into(),
            message: message.into(),
            source: Some(source.into()),
        }
    }

    /// The error of a package that a repository lacks; `there` lists its packages of that name.
    pub(crate) fn no_package(
        repository: &str,
        name: &str,
        version: Option<&str>,
        architecture: &str,
        there: impl Iterator<Item = String>,
    ) -> Self {
        let there: Vec<_> = there
            .collect::<std::collections::BTreeSet<_>>()
            .into_iter()
            .collect();
        let there = if there.is_empty() {
            "no version of it".to_owned()
        } else {
            there.join(", ")
        };
        let asked = version.map_or_else(String::new, |version| format!(" {version}"));
        Self::content(
            repository,
            format!("there is no {name}{asked} for {architecture}; there is {there}"),
        )
    }

    /// Combines many errors into one: nested reports are flattened, files missing offline become
    /// one list, and duplicates are removed.
    ///
    /// # Errors
    /// The combined report, unless there are no errors.
    pub fn all(errors: impl IntoIterator<Item = Self>) -> Result<(), Self> {
        let (mut flat, mut missing) = (Vec::new(), Vec::new());
        for error in errors {
            error.flatten(&mut flat, &mut missing);
        }
        let mut said = std::collections::BTreeSet::new();
        flat.retain(|error| said.insert(chain(error)));
        if !missing.is_empty() {
            missing.sort_unstable();
            missing.dedup();
            flat.push(Self::Missing(missing));
        }
        match flat.len() {
            0 => Ok(()),
            1 => Err(flat.remove(0)),
            _ => Err(Self::Several(flat)),
        }
    }

    fn flatten(self, flat: &mut Vec<Self>, missing: &mut Vec<String>) {
        match self {
            Self::Several(inner) => inner
                .into_iter()
                .for_each(|error| error.flatten(flat, missing)),
            Self::Missing(names) => missing.extend(names),
            error => flat.push(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_a_failed_call_is_printed_once() {
        let error = Error::file("read", "/a/b")(io::Error::other("the disk is gone"));
        assert_eq!(error.to_string(), "cannot read /a/b");
        assert_eq!(chain(&error), "cannot read /a/b: the disk is gone");
    }

    #[test]
    fn many_become_one_report() {
        assert!(Error::all([]).is_ok());
        let one = Error::all([Error::Setting("a".into())]).unwrap_err();
        assert_eq!(one.to_string(), "a");
        let report = Error::all([
            Error::Missing(vec!["z".into()]),
            Error::Several(vec![
                Error::server("https://x/", "b"),
                Error::Missing(vec!["y".into()]),
            ]),
            Error::server("https://x/", "b"),
        ]);
        assert_eq!(
            report.unwrap_err().to_string(),
            "https://x/: b\noffline, and these 2 are not in the cache:\n  y\n  z\nfetch once without \
             `--offline` to have them"
        );
    }
}
