//! Reads the control fields of a Debian archive.

use std::path::Path;
use std::process::Command;

use halite_fetch::apt_index::Control;
use halite_iso9660::portable;

use crate::error::Error;
use crate::process;

/// Reads the control fields of an archive.
pub fn read(archive: &Path) -> Result<Control, Error> {
    let what = format!("reading {}", archive.display());
    let text = process::run(Command::new("dpkg-deb").arg("--field").arg(archive), &what)?;
    Ok(Control::parse(&text))
}

/// The name of a package's file in a repository. The epoch is omitted, because not every file
/// system and server accepts its colon; a name that is too long for an image is shortened.
pub fn file_name(control: &Control) -> String {
    let version = control.field("Version");
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    portable::fit(&format!(
        "{}_{version}_{}.deb",
        control.field("Package"),
        control.field("Architecture")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_is_not_in_the_name_of_a_file() {
        let control =
            Control::parse("Package: conntrack\nVersion: 1:1.4.7-1+b2\nArchitecture: amd64\n");
        assert_eq!(file_name(&control), "conntrack_1.4.7-1+b2_amd64.deb");
    }
}
