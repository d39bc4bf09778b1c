//! The version of a bundle.

use serde::{Deserialize, Serialize};

use crate::{REPEATED, text_id};

/// The longest version, in characters.
const LONGEST: usize = 64;

/// The version of a bundle. On a site it is the name of the bundle's directory and a part of URLs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BundleVersion(String);

/// A text that is not a valid bundle version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a valid bundle version: letters, digits, `.`, `-`, `_`, `+` and `~`, beginning with a letter or \
     digit, at most {LONGEST}"
)]
pub struct BundleVersionError(String);

impl BundleVersion {
    fn check(text: &str) -> Result<(), BundleVersionError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b".-_+~".contains(&byte);
        let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric());
        if begins && text.len() <= LONGEST && text.bytes().all(is_allowed) {
            return Ok(());
        }
        Err(BundleVersionError(text.chars().take(REPEATED).collect()))
    }
}

text_id!(BundleVersion, BundleVersionError);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_one_name() {
        for good in ["0.1.0", "1", "2026.11-rc1+site_3~x", "a"] {
            assert_eq!(good.parse::<BundleVersion>().unwrap(), good);
        }
        for bad in [
            "",
            ".",
            "..",
            ".new",
            "a/b",
            "../x",
            "a b",
            "ä",
            "-1",
            &"x".repeat(65),
        ] {
            let error = bad.parse::<BundleVersion>().unwrap_err().to_string();
            assert!(error.contains("at most 64"), "{error}");
        }
    }
}
