//! The indexes of an apt repository (<https://wiki.debian.org/DebianRepository/Format>).

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use flate2::{Compression, GzBuilder};
use halite_durable::files;
use halite_fetch::apt_index::INDEX;
use jiff::Timestamp;

use super::package;
use crate::error::Error;
use crate::signer::Signer;

/// Writes the indexes of a repository whose archives are in `pool/`, signs them, and writes the
/// public key beside them. Returns package name to version.
pub fn write(
    root: &Path,
    date: Timestamp,
    signer: &Signer,
) -> Result<BTreeMap<String, String>, Error> {
    let mut stanzas = BTreeMap::new();
    let mut versions = BTreeMap::new();
    for name in files::walk(&root.join("pool"))? {
        let path = root.join("pool").join(&name);
        let control = package::read(&path)?;
        let (sha256, size) = files::digest(&path)?;
        let package = control.field("Package").to_owned();
        let version = control.field("Version").to_owned();
        let stanza = format!(
            "{}\nFilename: pool/{name}\nSize: {size}\nSHA256: {sha256}\n",
            control.text()
        );
        if let Some(other) = versions.insert(package.clone(), version.clone()) {
            let message = format!("it contains {package} twice, {other} and {version}");
            return Err(Error::content(root.join("pool"), message));
        }
        stanzas.insert(package, stanza);
    }
    let index = stanzas.into_values().collect::<Vec<_>>().join("\n");
    files::write(&root.join(INDEX), 0o644, index.as_bytes())?;
    files::write(
        &root.join(format!("{INDEX}.gz")),
        0o644,
        &gzip(index.as_bytes(), root)?,
    )?;
    let release = root.join("dists/stable/Release");
    files::write(&release, 0o644, release_text(root, date)?.as_bytes())?;
    signer.sign(&release, date)?;
    signer.export(&root.join("halite.gpg"))?;
    Ok(versions)
}

/// Compresses without a time or a name, so that the same index gives the same bytes.
fn gzip(bytes: &[u8], root: &Path) -> Result<Vec<u8>, Error> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder
        .write_all(bytes)
        .and_then(|()| encoder.finish())
        .map_err(Error::file("write", root.join(INDEX)))
}

fn release_text(root: &Path, date: Timestamp) -> Result<String, Error> {
    let mut text = format!(
        "Origin: Halite\nLabel: Halite\nSuite: stable\nCodename: stable\nDate: {}\nArchitectures: amd64\n\
         Components: main\nDescription: packages of a Halite bundle\nSHA256:\n",
        date.strftime("%a, %d %b %Y %H:%M:%S UTC")
    );
    for path in [INDEX.to_owned(), format!("{INDEX}.gz")] {
        let (sha256, size) = files::digest(&root.join(&path))?;
        let name = path.trim_start_matches("dists/stable/");
        text.push_str(&format!(" {sha256} {size:>12} {name}\n"));
    }
    Ok(text)
}
