//! A package of a yum repository.

use std::cmp::Ordering;
use std::fmt;

use halite_durable::Digest;
use halite_versions::rpm::compare;

use crate::fetcher::Artifact;

/// A package in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: Version,
    /// `x86_64` …, or `noarch`.
    pub architecture: String,
    /// The URL of its file.
    pub url: String,
    /// The digest of its file.
    pub digest: Digest,
    /// The size of its file in bytes.
    pub size: u64,
    /// Its licence.
    pub licence: String,
    /// Its requirements: packages by name, capabilities of packages, files.
    pub requires: Vec<Need>,
    /// Its capabilities, including its own name.
    pub provides: Vec<Need>,
    /// The capabilities that it conflicts with.
    pub conflicts: Vec<Need>,
    /// The packages that it replaces.
    pub obsoletes: Vec<Need>,
    /// The files that other packages may require: programs, configuration.
    pub files: Vec<String>,
}

/// An rpm version.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Version {
    /// The epoch.
    pub epoch: u64,
    /// The version.
    pub version: String,
    /// The release; empty if a requirement names none.
    pub release: String,
}

/// A name, optionally with a bound on its version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// `libc.so.6(GLIBC_2.34)(64bit)`, `/usr/bin/sh`, `bash` …
    pub name: String,
    /// The bound.
    pub version: Option<(Flag, Version)>,
}

/// The kind of a version's bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flag {
    /// Less than.
    Lt,
    /// At most.
    Le,
    /// Exactly.
    Eq,
    /// At least.
    Ge,
    /// More than.
    Gt,
}

impl Version {
    /// Returns whether it matches the text `[EPOCH:]VERSION[-RELEASE]`; omitted parts are ignored.
    pub fn is(&self, text: &str) -> bool {
        let (epoch, rest) = match text.split_once(':') {
            Some((epoch, rest)) => (epoch.parse().ok(), rest),
            None => (Some(self.epoch), text),
        };
        let (version, release) = rest.split_once('-').unwrap_or((rest, &self.release));
        epoch == Some(self.epoch) && version == self.version && release == self.release
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.epoch > 0 {
            write!(f, "{}:", self.epoch)?;
        }
        f.write_str(&self.version)?;
        if self.release.is_empty() {
            Ok(())
        } else {
            write!(f, "-{}", self.release)
        }
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((flag, version)) = &self.version else {
            return f.write_str(&self.name);
        };
        let sign = match flag {
            Flag::Lt => "<",
            Flag::Le => "<=",
            Flag::Eq => "=",
            Flag::Ge => ">=",
            Flag::Gt => ">",
        };
        write!(f, "{} {sign} {version}", self.name)
    }
}

impl Version {
    /// Compares as rpm does; the release counts only if both have one.
    #[must_use]
    pub fn order(&self, other: &Self) -> Ordering {
        let version = self
            .epoch
            .cmp(&other.epoch)
            .then_with(|| compare(&self.version, &other.version));
        let bound = self.release.is_empty() || other.release.is_empty();
        version.then_with(|| {
            if bound {
                Ordering::Equal
            } else {
                compare(&self.release, &other.release)
            }
        })
    }
}

impl Package {
    /// The package's file as an artifact to fetch.
    #[must_use]
    pub fn artifact(&self) -> Artifact {
        Artifact {
            name: format!("{} {} ({})", self.name, self.version, self.architecture),
            url: self.url.clone(),
            digest: Some(self.digest.clone()),
            size: Some(self.size),
            limit: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_named_in_part_or_whole() {
        let version = Version {
            epoch: 2,
            version: "1.4".into(),
            release: "3.el9".into(),
        };
        for text in ["2:1.4-3.el9", "1.4-3.el9", "1.4", "2:1.4"] {
            assert!(version.is(text), "{text}");
        }
        for text in ["1:1.4", "1.4-3", "1.40", "x:1.4"] {
            assert!(!version.is(text), "{text}");
        }
        assert_eq!(version.to_string(), "2:1.4-3.el9");
        let bound = Version {
            release: String::new(),
            ..version.clone()
        };
        let newer = Version {
            release: "10.el9".into(),
            ..version.clone()
        };
        assert_eq!(
            (version.order(&bound), version.order(&newer)),
            (Ordering::Equal, Ordering::Less)
        );
    }
}
