//! A small file system over a directory of a host, for tests of full disks.

use std::time::Duration;

use anyhow::Result;
use halite_lab::host::Host;
use halite_lab::wait;

/// The mount point of the small file system while the directory is not covered.
const BESIDE: &str = "/run/halite-test-small";
/// The file that fills it.
const FILLER: &str = "halite-test-filler";
/// Limit for the last reader to close it.
const FREE: Duration = Duration::from_secs(60);

/// A small file system over a directory, with its content. The directory below is unchanged.
pub(crate) struct SmallDisk<'a> {
    host: &'a Host,
    directory: &'static str,
}

impl<'a> SmallDisk<'a> {
    /// Covers a directory that no program uses at that moment, and leaves this many MiB of space.
    pub(crate) fn over(host: &'a Host, directory: &'static str, room: u32) -> Result<Self> {
        // Files with holes may be filled later.
        host.sh(&format!(
            "used=$( {{ du -sk {directory}; du -sk --apparent-size {directory}; }} | sort -n | tail -n 1 | cut -f 1 ) && \
             mkdir -p {BESIDE} && \
             mount -t tmpfs -o size=$(( used + {room} * 1024 ))k,mode=$(stat -c %a {directory}) halite-test {BESIDE} && \
             chown --reference={directory} {BESIDE} && cp -a {directory}/. {BESIDE} && \
             mount --bind {BESIDE} {directory} && umount {BESIDE} && rmdir {BESIDE}"
        ))?;
        Ok(Self { host, directory })
    }

    /// Takes all remaining space.
    pub(crate) fn fill(&self) -> Result<()> {
        let directory = self.directory;
        let line = format!("! dd if=/dev/zero of={directory}/{FILLER} bs=64k 2>/dev/null");
        self.host.sh(&line).map(drop)
    }

    /// Frees the space again.
    pub(crate) fn make_room(&self) -> Result<()> {
        let filler = format!("{}/{FILLER}", self.directory);
        self.host.run(&["rm", "-f", &filler]).map(drop)
    }

    /// Uncovers the directory, and copies to it everything stored since. No program uses it at that
    /// moment.
    pub(crate) fn remove(self) -> Result<()> {
        self.make_room()?;
        let (host, directory) = (self.host, self.directory);
        host.sh(&format!(
            "mkdir -p {BESIDE} && mount --bind {directory} {BESIDE}"
        ))?;
        wait::until("the small file system to be unused", FREE, || {
            host.run(&["umount", directory]).map(drop)
        })?;
        host.sh(&format!(
            "find {directory} -mindepth 1 -delete && cp -a {BESIDE}/. {directory} && umount {BESIDE} && rmdir {BESIDE}"
        ))
        .map(drop)
    }
}
