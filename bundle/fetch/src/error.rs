//! What can go wrong while fetching.

use std::io;
use std::path::PathBuf;

use halite_durable::Digest;

/// Why something could not be fetched. Addresses in it carry neither logins nor query strings.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of this machine could not be read or written.
    #[error("cannot {action} {}: {cause}", path.display())]
    File {
        /// `read`, `write` …
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// A setting cannot be meant so; what is wrong, and what to do.
    #[error("{0}")]
    Setting(String),
    /// A server could not be reached, or what it does is not what was asked of it.
    #[error("{url}: {message}")]
    Server {
        /// What was asked for.
        url: String,
        /// What it did, and what to do.
        message: String,
    },
    /// A server answered with an error.
    #[error("{url}: the server answers {status}{}{message}", if message.is_empty() { "" } else { ": " })]
    Status {
        /// What was asked for.
        url: String,
        /// The status of HTTP, with its name.
        status: String,
        /// What it said, in one line; empty if it said nothing.
        message: String,
    },
    /// What came has another digest. It was removed.
    #[error("{url}: expected SHA-256 {expected}, found {found}; what came was removed")]
    Digest {
        /// Where it came from.
        url: String,
        /// What was asked for.
        expected: Digest,
        /// What came.
        found: Digest,
    },
    /// What came has another size. It was removed.
    #[error("{url}: expected {expected} bytes, found {found}; what came was removed")]
    Size {
        /// Where it came from.
        url: String,
        /// What was asked for.
        expected: u64,
        /// What came: a number, or `more`.
        found: String,
    },
    /// What came is larger than anything of its kind. It was removed.
    #[error("{url}: it is larger than {limit} bytes, which cannot be right; what came was removed")]
    Limit {
        /// Where it came from.
        url: String,
        /// How many bytes it may have.
        limit: u64,
    },
    /// A signature is missing, wrong, or not by a key that is trusted.
    #[error("{what}: {message}")]
    Signature {
        /// What should be signed.
        what: String,
        /// What is wrong with it.
        message: String,
    },
    /// Something has a content that is not understood, or lacks what was looked for.
    #[error("{what}: {message}")]
    Content {
        /// Where it comes from.
        what: String,
        /// What is wrong.
        message: String,
    },
    /// Without network, and these are not in the cache; all of them.
    #[error(
        "offline, and {} not in the cache:\n  {}\nfetch once without `--offline` to have {}",
        if .0.len() == 1 { "this is".to_owned() } else { format!("these {} are", .0.len()) },
        .0.join("\n  "),
        if .0.len() == 1 { "it" } else { "them" }
    )]
    Missing(Vec<String>),
    /// Several of the above.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Several(Vec<Error>),
}

impl Error {
    /// For `map_err`: what was being done to which file.
    pub fn file(action: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |cause| Self::File {
            action,
            path,
            cause,
        }
    }

    /// Makes the error of a content that is not understood.
    pub fn content(what: impl Into<String>, message: impl ToString) -> Self {
        Self::Content {
            what: what.into(),
            message: message.to_string(),
        }
    }

    pub(crate) fn server(url: impl Into<String>, message: impl ToString) -> Self {
        Self::Server {
            url: url.into(),
            message: message.to_string(),
        }
    }

    /// A package that a repository does not have; `there` is what it has of that name.
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

    /// One report of many: nested reports become flat, what is missing offline becomes one list,
    /// and what is said twice is said once.
    ///
    /// # Errors
    /// That report, unless there is nothing to report.
    pub fn all(errors: impl IntoIterator<Item = Self>) -> Result<(), Self> {
        let (mut flat, mut missing) = (Vec::new(), Vec::new());
        for error in errors {
            error.flatten(&mut flat, &mut missing);
        }
        let mut said = std::collections::BTreeSet::new();
        flat.retain(|error| said.insert(error.to_string()));
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
