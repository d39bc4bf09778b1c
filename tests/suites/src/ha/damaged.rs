//! A standby whose copy is damaged on its disk.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::Cluster;

use super::backups::{UNIT, flip};
use super::standbys::{STANDBYS, wait_for_followers};
use crate::test::Counts;

/// One bit of the log in the copy of a standby is flipped. It saves no backup of it, and takes
/// another copy when it is started; then its backups are good again.
pub(super) fn copy(cluster: &Cluster) -> Result<Counts> {
    let (first, host) = (&cluster.bootstrap, cluster.host("cp-3")?);
    wait_for_followers(first, &STANDBYS)?;
    host.run(&["systemctl", "stop", "halite-master"])?;
    let copy = newest(&host.file("/var/lib/halite/master/standby"))?;
    flip(&copy.join("store.db-wal"))?;
    let saved = host.output(&["systemctl", "start", UNIT])?;
    ensure!(!saved.status.success(), "a damaged copy was saved");
    let journal = |unit: &str| {
        host.run(&[
            "journalctl",
            "-u",
            unit,
            "-n",
            "200",
            "--no-pager",
            "-o",
            "cat",
        ])
    };
    let said = journal(UNIT)?;
    ensure!(
        said.contains("that this standby has acknowledged"),
        "{said}"
    );
    host.run(&["systemctl", "start", "halite-master"])?;
    wait_for_followers(first, &STANDBYS)?;
    let said = journal("halite-master")?;
    ensure!(said.contains("this standby fetches a new one"), "{said}");
    ensure!(!copy.exists(), "the damaged copy is still there");
    host.run(&["systemctl", "start", UNIT])?;
    Ok(Counts::ONE)
}

/// The newest copy in the directory of a standby.
fn newest(directory: &Path) -> Result<PathBuf> {
    let mut copies = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let number = name.and_then(|name| name.strip_prefix("copy-")?.parse::<u64>().ok());
        copies.extend(number.map(|number| (number, path)));
    }
    let newest = copies.into_iter().max();
    Ok(newest.context("the standby has no copy")?.1)
}
