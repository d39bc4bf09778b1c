//! The index of an apt repository in a directory, as in a bundle
//! (<https://wiki.debian.org/DebianRepository/Format>).

use std::fs;
use std::path::Path;

use halite_durable::Error;

/// Path of the index below the repository's root.
pub const INDEX: &str = "dists/stable/main/binary-amd64/Packages";

/// The control fields of a package, with their original text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    text: String,
}

impl Control {
    /// Parses a stanza.
    pub fn parse(text: &str) -> Self {
        Self {
            text: text.trim_end().to_owned(),
        }
    }

    /// The stanza, without a line end after the last field.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first line of a field; empty if there is no such field.
    pub fn field(&self, name: &str) -> &str {
        let fields = self
            .text
            .lines()
            .filter(|line| !line.starts_with([' ', '\t']));
        let mut named = fields.filter_map(|line| line.split_once(':'));
        named
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map_or("", |(_, value)| value.trim())
    }

    /// The names of the packages that it needs: every alternative of `Depends` and `Pre-Depends`.
    pub fn needs(&self) -> Vec<&str> {
        let fields = [self.field("Pre-Depends"), self.field("Depends")];
        let names = fields.into_iter().flat_map(|field| field.split([',', '|']));
        names
            .filter_map(|name| name.trim().split([' ', '(', ':']).next())
            .filter(|name| !name.is_empty())
            .collect()
    }
}

/// A package file as the index of a repository lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexedPackage {
    /// The package's name.
    pub package: String,
    /// Its version.
    pub version: String,
    /// Its path below the repository's root.
    pub file: String,
    /// Its SHA-256.
    pub sha256: String,
    /// Its size in bytes.
    pub size: u64,
}

/// The stanzas of the index of a repository.
pub fn stanzas(root: &Path) -> Result<Vec<Control>, Error> {
    let path = root.join(INDEX);
    let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    Ok(text
        .split("\n\n")
        .filter(|stanza| !stanza.trim().is_empty())
        .map(Control::parse)
        .collect())
}

/// The package files that the index of a repository lists.
pub fn parse_index(root: &Path) -> Result<Vec<IndexedPackage>, Error> {
    let listed = stanzas(root)?.into_iter().map(|control| IndexedPackage {
        package: control.field("Package").to_owned(),
        version: control.field("Version").to_owned(),
        file: control.field("Filename").to_owned(),
        sha256: control.field("SHA256").to_owned(),
        size: control.field("Size").parse().unwrap_or_default(),
    });
    Ok(listed.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let control = Control::parse(
            "Package: conntrack\nVersion: 1:1.4.7-1+b2\nArchitecture: amd64\nPre-Depends: init (>= 1)\nDepends: libc6 \
             (>= 2.33), libmnl0 | libmnl1:any\nDescription: a\n Depends: not this\n",
        );
        assert_eq!(control.field("version"), "1:1.4.7-1+b2");
        assert_eq!(control.needs(), ["init", "libc6", "libmnl0", "libmnl1"]);
        assert_eq!(control.field("Suggests"), "");
    }
}
