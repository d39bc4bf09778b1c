//! Names in an index that become names of files: not every index is signed, and what is signed can
//! be wrong.

/// What stands in names of packages and in architectures beside letters and digits.
pub const NAME: &str = "+._-";

/// What stands in versions and releases of rpm (rpm-version(7)); a hyphen is between them.
pub const RPM_VERSION: &str = "+._~^";

/// What stands in versions of Debian (deb-version(7)), and in some that are none.
pub const DEBIAN_VERSION: &str = "+._~^-:";

/// What stands in names of packages' files.
pub const FILE: &str = "+._~^-";

/// Whether a text can be that part of a package's name: of letters, digits and what is listed, and
/// not hidden.
pub fn fits(text: &str, besides: &str) -> bool {
    let right = |c: char| c.is_ascii_alphanumeric() || besides.contains(c);
    !text.is_empty() && !text.starts_with('.') && text.chars().all(right)
}

/// The same, with what to say.
pub fn check(what: &str, text: &str, besides: &str) -> Result<(), String> {
    if fits(text, besides) {
        Ok(())
    } else {
        Err(format!("{text:?} cannot be the {what} of a package"))
    }
}
