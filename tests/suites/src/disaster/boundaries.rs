//! The boundaries of `ctl bootstrap --restore`: it is interrupted at one after the other on a bare
//! host, and ends in the same state when it is run again.

use anyhow::Result;
use halite_lab::cluster::{BOOTSTRAP, Cluster, WORKER};

use super::restoring::{self, BACK};
use crate::checks::nothing_to_do;
use crate::kills::commands::Repetition;
use crate::kills::moments::{Kill, MakingHost, Moment, Progress, Table, Victim, series};
use crate::kills::once;
use crate::kills::series::{interrupt, numbered as tests_of};
use crate::test::Case;

/// The moments of a restore, then those of the bootstrap as which it continues.
const KILLS: &Table = {
    use Moment::{File, Job};
    use Progress::{Started, Stored};
    use Victim::{Master, Minion, Power};
    &[
        (File("var/lib/halite/restore/mark"), &[Power]),
        // The snapshot is complete, and the program that turns it into data may run.
        (File("var/lib/halite/restore/etcdutl"), &[Power]),
        (File("var/lib/etcd/member"), &[Power]),
        (File("var/lib/halite/master/store.db"), &[Power]),
        (File("var/lib/halite/master/store.db.epoch"), &[Power]),
        // From here on it continues as a bootstrap.
        (File("etc/halite/cluster.yaml"), &[Power]),
        (File("usr/local/bin/halite-master"), &[Power]),
        (
            File("var/lib/halite/minion/identity.crt"),
            &[Minion, Master],
        ),
        (Job(0, Started), &[Master, Power]),
        (File("etc/kubernetes/manifests/etcd.yaml"), &[Power, Minion]),
        (File("etc/kubernetes/admin.conf"), &[Master]),
        (Job(4, Stored), &[Power]),
    ]
};

/// A test of each series. Their backups are encrypted, and so are those of the restored clusters.
pub(crate) fn numbered() -> Vec<Case<Cluster>> {
    let name = "disaster: boundaries of ctl bootstrap --restore";
    tests_of(name, series(KILLS, &[]), run)
}

/// Destroys the first host, interrupts its restore at these kills, runs the same command again, and
/// checks that everything in the backup is back. Returns the kills whose moment was missed.
fn run(cluster: &Cluster, kills: &[Kill]) -> Result<Vec<Kill>> {
    let host = &cluster.bootstrap;
    let kept = restoring::back_up(cluster)?;
    let name = [BOOTSTRAP.to_owned()];
    cluster.lab.power_off(&name, true)?;
    cluster.lab.power_on(&name)?;
    kept.carry(host)?;
    // Where it has succeeded, the host has a cluster, and a restore is refused.
    let once_only = Repetition::AfterFailure;
    let mut command = MakingHost::first(&cluster.lab, host, kept.command()?, once_only)?;
    let missed = interrupt(&mut command, kills)?;
    command.succeed()?;
    kept.came_back(cluster)?;
    once(host, &[BOOTSTRAP, WORKER])?;
    cluster.wait_for_pods(BACK)?;
    kept.continues(cluster)?;
    nothing_to_do(host)?;
    Ok(missed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kills::moments::each_kill_has_one_place;

    #[test]
    fn each_kill_is_in_one_series() {
        each_kill_has_one_place(KILLS, &[]);
        let lengths: Vec<usize> = series(KILLS, &[]).iter().map(Vec::len).collect();
        assert_eq!(lengths, [12, 3]);
    }
}
