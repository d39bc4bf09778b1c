//! Restores etcd's data from a snapshot with etcd's own program.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::Ipv4Addr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use anyhow::Context as _;
use halite_durable::files;
use halite_host_reports::etcd::{EtcdRecord, LOG, is_log};
use halite_host_reports::etcd_log;

use crate::etcd_image;
use crate::etcd_image::Etcdutl;

/// The program in etcd's image.
const PROGRAM: &str = "etcdutl";
/// The directory in which the data is created, inside etcd's own: one rename puts it in place.
const PARTIAL: &str = "restoring";
/// Controllers on other hosts have seen revisions after the snapshot. Revisions jump by more than
/// any cluster writes between two backups, so that none is seen twice and watches restart (etcd's
/// guide to disaster recovery).
const BUMP: &str = "1000000000";

/// The restored member.
#[derive(Debug)]
pub struct RestoredMember {
    /// Its name.
    pub name: String,
    /// The address at which other members will reach it.
    pub address: Ipv4Addr,
}

impl RestoredMember {
    fn peer(&self) -> String {
        format!("https://{}:2380", self.address)
    }

    /// The members of its cluster, as in `--initial-cluster`.
    fn cluster(&self) -> String {
        format!("{}={}", self.name, self.peer())
    }

    /// Records the member once its data is in place: without a record, the bootstrap that follows
    /// would not recognise the data as its own.
    ///
    /// # Errors
    /// The system's reason.
    pub fn record(&self, data: &Path, record: &Path) -> anyhow::Result<()> {
        let log = data.join(LOG);
        let failed = || format!("cannot read etcd's log in {}", log.display());
        let mut names = fs::read_dir(&log)
            .and_then(|entries| {
                let names = entries.map(|entry| entry.map(|entry| entry.file_name()));
                names.collect::<io::Result<Vec<_>>>()
            })
            .with_context(failed)?;
        names.sort();
        let first = names.iter().find(|name| name.to_str().is_some_and(is_log));
        let mut head = Vec::new();
        File::open(log.join(first.with_context(failed)?))
            .and_then(|file| file.take(etcd_log::HEAD).read_to_end(&mut head))
            .with_context(failed)?;
        let content = EtcdRecord::new(&self.name, &self.cluster(), etcd_log::ids(&head));
        Ok(files::replace(record, 0o644, content.text()?.as_bytes())?)
    }
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

    /// Uses an existing program.
    #[cfg(test)]
    pub fn of_program(program: &Path) -> Self {
        Self {
            etcdutl: Etcdutl::new(program),
        }
    }

    /// Creates the data of a new cluster with only this member. The token makes it a different
    /// cluster, so no member of the old one mistakes it for its own.
    ///
    /// # Errors
    /// The program fails; the error has its reason.
    pub fn restore(
        &self,
        snapshot: &Path,
        data: &Path,
        member: &RestoredMember,
        token: &str,
    ) -> anyhow::Result<()> {
        let made = fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(data);
        made.with_context(|| format!("cannot make {}", data.display()))?;
        let partial = data.join(PARTIAL);
        // Left by an interrupted run.
        files::remove_any(&partial)?;
        let (peer, cluster) = (member.peer(), member.cluster());
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
