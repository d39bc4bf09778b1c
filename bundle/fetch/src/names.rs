//! Names from an index that become file names: not every index is signed, and a signed one can be
//! wrong.

/// Characters that names of packages and architectures may have in addition to letters and digits.
pub const NAME: &str = "+._-";

/// Characters that versions and releases of rpm may have (rpm-version(7)); a hyphen separates the
/// two.
pub const RPM_VERSION: &str = "+._~^";

/// Characters that versions of Debian may have (deb-version(7)), including some that break the
/// rules.
pub const DEBIAN_VERSION: &str = "+._~^-:";

/// Characters that names of package files may have.
pub const FILE: &str = "+._~^-";

/// Returns whether a text is valid as that part of a package's name: letters, digits and the listed
/// characters, with no dot at the beginning.
pub fn fits(text: &str, further: &str) -> bool {
    let right = |c: char| c.is_ascii_alphanumeric() || further.contains(c);
    !text.is_empty() && !text.starts_with('.') && text.chars().all(right)
}

/// A text that cannot be a part of a package's name.
#[derive(Debug, thiserror::Error)]
#[error("{text:?} cannot be the {what} of a package")]
pub struct InvalidName {
    what: &'static str,
    text: String,
}

/// Checks the same rule as [`fits`], and returns an error.
pub fn check(what: &'static str, text: &str, further: &str) -> Result<(), InvalidName> {
    if fits(text, further) {
        Ok(())
    } else {
        Err(InvalidName {
            what,
            text: text.to_owned(),
        })
    }
}
