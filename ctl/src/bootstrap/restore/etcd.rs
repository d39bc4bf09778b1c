//! etcd's data from a snapshot, by etcd's own program.

use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fs, io};

use anyhow::{Context as _, bail};
use halite_durable::files;
use halite_fetch::unpack::Compression;
use halite_fetch::{oci_layout, unpack};

/// The program in etcd's image.
const PROGRAM: &str = "usr/local/bin/etcdutl";
/// The largest layer that is read, in bytes.
const LARGEST: u64 = 4 << 30;
/// The directory in which the data is made, in etcd's own: one rename puts it in place.
const PARTIAL: &str = "restoring";
/// Controllers on other hosts have seen revisions after the snapshot. Revisions jump by more than
/// any cluster writes between two backups, so that none is seen twice, and watches begin again
/// (etcd's guide to disaster recovery).
const BUMP: &str = "1000000000";

/// The restored member.
#[derive(Debug)]
pub struct Member {
    /// Its name.
    pub name: String,
    /// The address at which other members will reach it.
    pub address: Ipv4Addr,
}

/// `etcdutl`, from the image of etcd in the bundle.
pub struct Restorer {
    program: PathBuf,
}

impl Restorer {
    /// Unpacks the program from an image.
    ///
    /// # Errors
    /// The image cannot be read, or lacks the program.
    pub fn unpack(layout: &Path, reference: &str, to: &Path) -> anyhow::Result<Self> {
        let image = oci_layout::find(layout, reference)?;
        for layer in image.layers().iter().rev() {
            let blob = oci_layout::blob(layout, layer)?;
            let content = unpack::open(&blob, Compression::sniff(&blob)?, LARGEST)?;
            if find(content, to).with_context(|| format!("cannot read {}", blob.display()))? {
                return Ok(Self {
                    program: to.to_owned(),
                });
            }
        }
        bail!(
            "the image {reference} has no /{PROGRAM}, which a restore needs; use a bundle with etcd's own image"
        )
    }

    /// A program that is there already.
    #[cfg(test)]
    pub fn of_program(program: &Path) -> Self {
        Self {
            program: program.to_owned(),
        }
    }

    /// Makes the data of a new cluster with this one member. The token makes another cluster of it:
    /// no member of the old one takes it for its own.
    ///
    /// # Errors
    /// The program fails; it names its reason.
    pub fn restore(
        &self,
        snapshot: &Path,
        data: &Path,
        member: &Member,
        token: &str,
    ) -> anyhow::Result<()> {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(data);
        made.with_context(|| format!("cannot make {}", data.display()))?;
        let partial = data.join(PARTIAL);
        // What an interrupted run has left.
        files::remove_any(&partial)?;
        let peer = format!("https://{}:2380", member.address);
        let mut command = Command::new(&self.program);
        command
            .args(["snapshot", "restore"])
            .arg(snapshot)
            .arg("--data-dir")
            .arg(&partial)
            .args(["--name", &member.name])
            .args(["--initial-cluster", &format!("{}={peer}", member.name)])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster-token", token])
            .args(["--bump-revision", BUMP, "--mark-compacted"])
            .stdin(Stdio::null());
        let cannot = || {
            format!(
                "cannot run {}; is its file system mounted with noexec?",
                self.program.display()
            )
        };
        let output = command.output().with_context(cannot)?;
        if !output.status.success() {
            bail!(
                "cannot restore etcd's snapshot: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        files::settle(data)?;
        let place = data.join("member");
        let moved = fs::rename(partial.join("member"), &place);
        moved.with_context(|| format!("cannot move etcd's data to {}", place.display()))?;
        files::sync_parent(&place)?;
        Ok(files::remove_any(&partial)?)
    }
}

/// Writes the program, if a layer has it.
fn find(layer: impl io::Read, to: &Path) -> anyhow::Result<bool> {
    let mut archive = tar::Archive::new(layer);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?.into_owned();
        let path = path.strip_prefix("./").unwrap_or(&path);
        if path != Path::new(PROGRAM) || !entry.header().entry_type().is_file() {
            continue;
        }
        files::remove_any(to)?;
        let mut file = files::create(to, 0o700)?;
        io::copy(&mut entry, &mut file)?;
        return Ok(true);
    }
    Ok(false)
}
