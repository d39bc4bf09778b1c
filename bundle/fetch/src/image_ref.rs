//! Full image references.

use std::fmt;

/// The full reference of an image: `registry.k8s.io/coredns/coredns:v1.14.2`. It has no defaults
/// (no implied registry, no implied `latest`), because a bundle serves each image under exactly the
/// name in the Kubernetes manifests.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ImageRef {
    /// Host of the registry, with its port if it has one.
    pub registry: String,
    /// The name within the registry.
    pub repository: String,
    /// The tag.
    pub tag: String,
}

/// The form of a full name, for errors.
const FORM: &str = "a full name is REGISTRY/NAME:TAG";

/// A text that is not a full image reference.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidImageRef {
    /// It does not begin with a registry.
    #[error("{0:?} names no registry; {FORM}")]
    Registry(String),
    /// It has no tag.
    #[error("{0:?} has no tag; {FORM}")]
    NoTag(String),
    /// Its name is invalid in the distribution specification.
    #[error("{0:?} has a name that no registry would accept; {FORM}")]
    Name(String),
    /// Its tag is invalid in the distribution specification.
    #[error("{0:?} has a tag that no registry would accept; {FORM}")]
    Tag(String),
}

impl ImageRef {
    /// Parses a reference.
    ///
    /// # Errors
    /// The text violates the grammar of the distribution specification.
    pub fn parse(text: &str) -> Result<Self, InvalidImageRef> {
        let wrong = |kind: fn(String) -> InvalidImageRef| Err(kind(text.to_owned()));
        let Some((registry, rest)) = text.split_once('/') else {
            return wrong(InvalidImageRef::Registry);
        };
        let host = |c: char| c.is_ascii_alphanumeric() || ".-:".contains(c);
        if !(registry.contains(['.', ':']) || registry == "localhost")
            || !registry.chars().all(host)
        {
            return wrong(InvalidImageRef::Registry);
        }
        let Some((repository, tag)) = rest.split_once(':') else {
            return wrong(InvalidImageRef::NoTag);
        };
        let part = |part: &str| {
            let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
            part.starts_with(|c: char| c.is_ascii_alphanumeric()) && part.chars().all(inner)
        };
        if !repository.split('/').all(part) {
            return wrong(InvalidImageRef::Name);
        }
        let tag_character = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if tag.is_empty()
            || tag.len() > 128
            || !tag.chars().all(tag_character)
            || tag.starts_with(['.', '-'])
        {
            return wrong(InvalidImageRef::Tag);
        }
        Ok(Self {
            registry: registry.to_owned(),
            repository: repository.to_owned(),
            tag: tag.to_owned(),
        })
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}:{}", self.registry, self.repository, self.tag)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_names_are_taken_apart() {
        let reference = ImageRef::parse("registry.k8s.io/coredns/coredns:v1.14.2").unwrap();
        assert_eq!(reference.registry, "registry.k8s.io");
        assert_eq!(reference.repository, "coredns/coredns");
        assert_eq!(reference.tag, "v1.14.2");
        assert_eq!(
            reference.to_string(),
            "registry.k8s.io/coredns/coredns:v1.14.2"
        );
        assert_eq!(
            ImageRef::parse("localhost:5000/a:1").unwrap().registry,
            "localhost:5000"
        );
    }

    #[test]
    fn what_leaves_something_open_is_refused() {
        for (text, why) in [
            ("pause:3.10", "names no registry"),
            ("library/pause:3.10", "names no registry"),
            ("registry.k8s.io/pause", "has no tag"),
            ("registry.k8s.io/Pause:3", "no registry would accept"),
            ("registry.k8s.io/../pause:3", "no registry would accept"),
            ("registry.k8s.io/pause:", "tag"),
            ("registry.k8s.io/pause:\"; }", "tag"),
        ] {
            let answer = ImageRef::parse(text).unwrap_err().to_string();
            assert!(answer.contains(why), "{text}: {answer}");
        }
    }
}
