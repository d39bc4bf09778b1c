//! Reading what a package says of itself.

use std::path::Path;
use std::process::Command;

use super::program;
use crate::error::Error;
use crate::iso::portable;

/// The control fields of a package, as they stand in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Control {
    text: String,
}

impl Control {
    /// Reads them from an archive.
    pub fn read(archive: &Path) -> Result<Self, Error> {
        let what = format!("reading {}", archive.display());
        let text = program::run(Command::new("dpkg-deb").arg("--field").arg(archive), &what)?;
        Ok(Self::parse(&text))
    }

    /// Understands a stanza.
    pub fn parse(text: &str) -> Self {
        Self {
            text: text.trim_end().to_owned(),
        }
    }

    /// The stanza, without a line end after the last field.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The first line of a field; empty when it is not there.
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

    /// The names that it needs: every alternative of `Depends` and `Pre-Depends`.
    pub fn needs(&self) -> Vec<&str> {
        let fields = [self.field("Pre-Depends"), self.field("Depends")];
        let names = fields.into_iter().flat_map(|field| field.split([',', '|']));
        names
            .filter_map(|name| name.trim().split([' ', '(', ':']).next())
            .filter(|name| !name.is_empty())
            .collect()
    }

    /// The name of its file in a repository: without the epoch, whose colon not every medium and
    /// server can carry, and cut where no medium could carry it.
    pub fn file_name(&self) -> String {
        let version = self.field("Version");
        let version = version.split_once(':').map_or(version, |(_, rest)| rest);
        portable::fit(&format!(
            "{}_{version}_{}.deb",
            self.field("Package"),
            self.field("Architecture")
        ))
    }
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
        assert_eq!(control.file_name(), "conntrack_1.4.7-1+b2_amd64.deb");
        assert_eq!(control.field("Suggests"), "");
    }
}
