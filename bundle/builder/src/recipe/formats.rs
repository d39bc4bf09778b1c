//! The formats of texts in a recipe, which the schema names.

use halite_document::schema::{Misfit, Rules};
use halite_names::BundleVersion;

use super::network::is_host;
use crate::package::made;

/// The rules of recipes.
pub(super) struct Formats;

impl Rules for Formats {
    fn placeholder(&self, format: &str) -> Option<&'static str> {
        (format == "bundle-version").then_some("0")
    }

    fn check(&self, format: &str, text: &str) -> Result<(), Misfit> {
        let (fits, message, hint) = match format {
            "bundle-version" => (
                text.parse::<BundleVersion>().is_ok(),
                "is not a valid bundle version",
                "letters, digits, `.`, `-`, `_`, `+` and `~`, beginning with a letter or digit, at most 64",
            ),
            "package-name" => (
                made::is_package_name(text),
                "is not a package name",
                "lower-case letters, digits, `+`, `-` and `.`, beginning with a letter or digit",
            ),
            "codename" => (
                !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase()),
                "is not a release's codename",
                "lower-case letters, like trixie",
            ),
            "program-name" => (
                made::is_package_name(text),
                "is not a program name",
                "lower-case letters, digits, `+`, `-` and `.`, beginning with a letter or digit",
            ),
            "rpm-name" => (
                text.chars()
                    .all(|c| c.is_ascii_alphanumeric() || "+._-=:~^".contains(c)),
                "is not a package",
                "write NAME or NAME=VERSION",
            ),
            "package-version" => (
                made::is_version(text),
                "is not a package version",
                "write the version and the packaging revision, like 1.36.3-1",
            ),
            "package-path" => (
                made::is_path(text),
                "is not a file's path in a package",
                "write it like usr/share/doc/x",
            ),
            "archive-member" => (
                !text.starts_with('/') && text.split('/').all(|part| part != ".."),
                "is not a path inside an archive",
                "write it relative and without `..`, like bin/containerd",
            ),
            "release-name" => (
                is_label(text, LONGEST_RELEASE),
                "is not a release name",
                "a-z, 0-9 and -, with a letter or digit at both ends, 53 characters at most",
            ),
            "namespace" => (
                is_label(text, 63),
                "is not a namespace name",
                "a-z, 0-9 and -, with a letter or digit at both ends, 63 characters at most",
            ),
            "host" => (is_host(text), "is not a host", "write HOST or HOST:PORT"),
            "mirror" => (
                is_host(text.split('/').next().unwrap_or_default()),
                "is not a mirror",
                "write HOST, HOST:PORT or either with a path",
            ),
            _ => return Ok(()),
        };
        if fits {
            Ok(())
        } else {
            Err(Misfit::new(message, hint))
        }
    }
}

/// Helm's own limit for the name of a release.
const LONGEST_RELEASE: usize = 53;

fn is_label(text: &str, longest: usize) -> bool {
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=longest).contains(&text.len())
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-')
}
