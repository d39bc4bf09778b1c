//! etcd's data from a snapshot, by etcd's own program.

use std::fs;
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::Context as _;
use halite_durable::files;

use crate::etcd_image;
use crate::etcd_image::Etcdutl;

/// The program in etcd's image.
const PROGRAM: &str = "etcdutl";
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
    etcdutl: Etcdutl,
}

impl Restorer {
    /// Unpacks the program from an image.
    ///
    /// # Errors
    /// The image cannot be read, or lacks the program.
    pub fn unpack(layout: &Path, reference: &str, to: &Path) -> anyhow::Result<Self> {
        etcd_image::unpack(layout, reference, PROGRAM, to)?;
        Ok(Self {
            etcdutl: Etcdutl::new(to),
        })
    }

    /// A program that is there already.
    #[cfg(test)]
    pub fn of_program(program: &Path) -> Self {
        Self {
            etcdutl: Etcdutl::new(program),
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
        let cluster = format!("{}={peer}", member.name);
        let arguments = [
            ["--name", &member.name],
            ["--initial-cluster", &cluster],
            ["--initial-advertise-peer-urls", &peer],
            ["--initial-cluster-token", token],
            ["--bump-revision", BUMP],
        ];
        let mut arguments = arguments.concat();
        arguments.push("--mark-compacted");
        self.etcdutl.restore(snapshot, &partial, &arguments)?;
        files::settle(data)?;
        let place = data.join("member");
        let moved = fs::rename(partial.join("member"), &place);
        moved.with_context(|| format!("cannot move etcd's data to {}", place.display()))?;
        files::sync_parent(&place)?;
        Ok(files::remove_any(&partial)?)
    }
}
