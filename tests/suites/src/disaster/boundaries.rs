//! The numbered boundaries of `ctl bootstrap --restore`: at each it is interrupted on a bare host,
//! and ends in the same state when it is run again.

use anyhow::{Context as _, Result};
use halite_lab::cluster::{BOOTSTRAP, Cluster, WORKER};

use super::restoring::{self, BACK};
use crate::checks::nothing_to_do;
use crate::kills;
use crate::kills::moments::{Kill, Moment, Progress, Table, Victim};
use crate::kills::{moments, once};
use crate::test::{Case, Counts};

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

/// A test for each boundary. Their backups are encrypted, and so are those of the restored clusters.
pub(crate) fn numbered() -> Vec<Case<Cluster>> {
    let all = moments::numbered(KILLS).into_iter().enumerate();
    all.map(|(number, kill)| {
        let name = format!(
            "disaster: boundary {number} of a restore, {:?}, {:?}",
            kill.moment, kill.victim
        );
        Case::new(name, move |cluster| one(cluster, kill))
    })
    .collect()
}

/// Destroys the first host, kills the victim at the moment of its restore, runs the same command
/// again, and checks that everything in the backup is back.
fn one(cluster: &Cluster, kill: Kill) -> Result<Counts> {
    let host = &cluster.bootstrap;
    let kept = restoring::back_up(cluster)?;
    let name = [BOOTSTRAP.to_owned()];
    cluster.lab.power_off(&name, true)?;
    cluster.lab.power_on(&name)?;
    kept.carry(host)?;
    let line = kept.command()?;
    let mut first = kills::spawn(host, &line)?;
    moments::wait_for(kill.moment, host, host, &mut first)?;
    moments::strike(kill.victim, &cluster.lab, host, host)?;
    let status = kills::ended(&mut first)?;
    // A killed daemon is restarted by its unit, and the first command may have succeeded.
    if !status.success() || host.file("/var/lib/halite/restore").exists() {
        host.run(&line)
            .with_context(|| format!("after the first had ended with {status}"))?;
    }
    println!("  the command ended with {status}, and succeeded when it was run again");
    kept.came_back(cluster)?;
    once(host, &[BOOTSTRAP, WORKER])?;
    cluster.wait_for_pods(BACK)?;
    kept.goes_on(cluster)?;
    nothing_to_do(host)?;
    Ok(Counts::ONE)
}
