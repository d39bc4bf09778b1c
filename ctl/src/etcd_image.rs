//! Extracts etcd's programs from etcd's image in a bundle: no package has them.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, bail};
use halite_durable::files;
use halite_fetch::unpack::Compression;
use halite_fetch::{oci_layout, unpack};
use halite_manifest::ImageReference;

/// The directory of the programs in the image.
const DIRECTORY: &str = "usr/local/bin";
/// The largest layer that is read, in bytes.
const LARGEST: u64 = 4 << 30;

/// Unpacks a program from an image, which a manifest names by this reference.
///
/// # Errors
/// The image cannot be read, is not the manifest's, or lacks the program.
pub fn unpack(layout: &Path, reference: &str, program: &str, to: &Path) -> anyhow::Result<()> {
    let ImageReference { name, digest } = ImageReference::new(reference);
    let image = oci_layout::find(layout, name)?;
    if digest.is_some_and(|digest| digest != image.manifest.digest) {
        bail!(
            "cannot use the image {name}: it is {} in {}, and the manifest of the bundle has {reference}",
            image.manifest.digest,
            layout.display()
        );
    }
    let path = Path::new(DIRECTORY).join(program);
    for layer in image.layers().iter().rev() {
        let blob = oci_layout::blob(layout, layer)?;
        let content = unpack::open(&blob, Compression::sniff(&blob)?, LARGEST)?;
        let found = find(content, &path, to);
        if found.with_context(|| format!("cannot read {}", blob.display()))? {
            return Ok(());
        }
    }
    bail!(
        "the image {reference} has no /{}, which is needed here; use a bundle with etcd's own image",
        path.display()
    )
}

/// Writes the program if a layer has it; returns whether it has.
fn find(layer: impl io::Read, path: &Path, to: &Path) -> anyhow::Result<bool> {
    let mut archive = tar::Archive::new(layer);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let found = entry.path()?.into_owned();
        let found = found.strip_prefix("./").unwrap_or(&found);
        if found != path || !entry.header().entry_type().is_file() {
            continue;
        }
        files::remove_any(to)?;
        let mut file = files::create(to, 0o700)?;
        io::copy(&mut entry, &mut file)?;
        return Ok(true);
    }
    Ok(false)
}

/// `etcdutl`.
pub struct Etcdutl {
    program: PathBuf,
}

impl Etcdutl {
    /// The program at a path.
    pub fn new(program: &Path) -> Self {
        Self {
            program: program.to_owned(),
        }
    }

    /// Creates a new data directory from a snapshot, whose hash it checks.
    ///
    /// # Errors
    /// The program fails; the error has its reason.
    pub fn restore(&self, snapshot: &Path, data: &Path, member: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(&self.program);
        command
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .arg("--data-dir")
            .arg(data)
            .args(member)
            .stdin(Stdio::null());
        let output = command.output().with_context(|| not_run(&self.program))?;
        if !output.status.success() {
            bail!(
                "cannot restore etcd's snapshot: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(())
    }
}

/// The error text for a program that cannot be run.
pub fn not_run(program: &Path) -> String {
    format!(
        "cannot run {}; is its file system mounted with noexec?",
        program.display()
    )
}
