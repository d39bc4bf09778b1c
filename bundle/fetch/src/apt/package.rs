//! A stanza of `Packages`.

use halite_durable::Digest;
use halite_durable::digest::InvalidDigest;

use crate::apt_index::Control;
use crate::names;
use crate::names::InvalidName;

/// A package in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// `amd64` …, or `all`.
    pub architecture: String,
    /// The URL of its file.
    pub url: String,
    /// The digest of its file.
    pub digest: Digest,
    /// The size of its file in bytes.
    pub size: u64,
    stanza: Control,
}

/// The part of a stanza that is missing or invalid.
#[derive(Debug, thiserror::Error)]
pub(super) enum InvalidStanza {
    #[error("package {package:?} lacks its {field}")]
    Missing {
        package: String,
        field: &'static str,
    },
    #[error("package {package:?} is outside the repository: {file:?}")]
    Outside { package: String, file: String },
    #[error("package {0:?} has a Size that is not a number")]
    Size(String),
    #[error(transparent)]
    Name(#[from] InvalidName),
    #[error("package {package:?}")]
    Digest {
        package: String,
        source: InvalidDigest,
    },
}

impl Package {
    /// Parses a stanza; `base` is the repository's URL.
    pub(super) fn parse(stanza: &str, base: &str) -> Result<Self, InvalidStanza> {
        let stanza = Control::parse(stanza);
        let name = stanza.field("Package").to_owned();
        let field = |key: &'static str| match stanza.field(key) {
            "" => Err(InvalidStanza::Missing {
                package: name.clone(),
                field: key,
            }),
            value => Ok(value.to_owned()),
        };
        let file = field("Filename")?;
        // A signed repository can be wrong, too; its packages must be in the repository itself.
        if file.starts_with('/') || file.contains("://") || file.split('/').any(|part| part == "..")
        {
            return Err(InvalidStanza::Outside {
                package: name,
                file,
            });
        }
        let size = field("Size")?
            .parse()
            .map_err(|_| InvalidStanza::Size(name.clone()))?;
        let (version, architecture) = (field("Version")?, field("Architecture")?);
        names::check("name", &name, names::NAME)?;
        names::check("version", &version, names::DEBIAN_VERSION)?;
        names::check("architecture", &architecture, names::NAME)?;
        Ok(Self {
            version,
            architecture,
            // Names may contain characters that a URL must escape (`a 1%b.deb`); plus sign and
            // tilde need no escape.
            url: format!(
                "{base}{}",
                file.trim_start_matches("./")
                    .replace('%', "%25")
                    .replace('#', "%23")
                    .replace('?', "%3F")
            ),
            digest: field("SHA256")?
                .parse()
                .map_err(|source| InvalidStanza::Digest {
                    package: name.clone(),
                    source,
                })?,
            size,
            name,
            stanza,
        })
    }

    /// Its stanza.
    pub fn control(&self) -> &Control {
        &self.stanza
    }

    /// The first line of a field of its stanza (`Depends` …); empty if there is no such field.
    #[must_use]
    pub fn field(&self, name: &str) -> &str {
        self.stanza.field(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stanza(file: &str) -> String {
        format!(
            "Package: a\nVersion: 1:2~x\nArchitecture: amd64\nFilename: {file}\nSize: 3\nSHA256: {}\n",
            Digest::of(b"x")
        )
    }

    #[test]
    fn stanzas_are_understood() {
        let package = Package::parse(&stanza("./pool/a_1%3a2.deb"), "https://h/d/").unwrap();
        assert_eq!(package.url, "https://h/d/pool/a_1%253a2.deb");
        assert_eq!((package.size, package.field("version")), (3, "1:2~x"));
    }

    #[test]
    fn what_lacks_something_or_leads_elsewhere_is_refused() {
        for file in ["../../x.deb", "/x.deb", "https://other/x.deb"] {
            assert!(
                Package::parse(&stanza(file), "b/")
                    .unwrap_err()
                    .to_string()
                    .contains("outside the repository")
            );
        }
        for (part, wrong) in [
            ("Package: a", "Package: ../a"),
            ("Package: a", "Package: .a"),
            ("1:2~x", "1/../../x"),
            ("amd64", "a/b"),
        ] {
            let error = Package::parse(&stanza("x.deb").replace(part, wrong), "b/")
                .unwrap_err()
                .to_string();
            assert!(error.contains("cannot be the"), "{error}");
        }
        let text = stanza("x.deb");
        for (line, why) in [
            ("SHA256", "lacks its SHA256"),
            ("Size", "lacks its Size"),
            ("Version", "lacks its Version"),
        ] {
            let without: String = text
                .lines()
                .filter(|l| !l.starts_with(line))
                .map(|l| format!("{l}\n"))
                .collect();
            assert_eq!(
                Package::parse(&without, "b/").unwrap_err().to_string(),
                format!("package \"a\" {why}")
            );
        }
    }
}
