//! Cuts and pauses in which more than one host could have the master: only the link between the
//! master and one standby is cut, in both directions or in one, and a master is paused for a while.
//! At the end one master acts. One client writes to the master (tokens, jobs, operators) and one to
//! etcd all the time, and all acknowledged data is there, except where an operator has confirmed
//! the loss with `--force`.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use halite_api::MasterList;
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use super::losses::while_written;
use super::orders::{Acknowledged, ordered, while_ordered};
use super::standbys::{
    STANDBYS, answers, nothing_to_do, promote, wait_for_followers, wait_until_noticed,
};
use super::{BACK, is_complete, same_content};
use crate::checks::refused;
use crate::ctl_answer::in_any_case;
use crate::test::{Counts, Test};

/// Each leaves the master on its host.
pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "ha: a cut link to one standby promotes no second master, and nothing is lost",
        run: no_second_master,
    },
    Test {
        name: "ha: a link that is cut in one direction leads to no second master",
        run: one_way,
    },
    Test {
        name: "ha: of two masters the lower one learns of the other through the standby that reaches both",
        run: promoted_by_force,
    },
    Test {
        name: "ha: a master that is paused for minutes and replaced stops when it resumes",
        run: a_master_stands_still,
    },
];

/// The time in which the lower of two masters stops if a standby reaches both: a round of its
/// queries, and the exit of the process.
const ROUND: Duration = Duration::from_secs(30);
/// The time for which a master is paused: longer than it may be without a standby.
const STILL: Duration = Duration::from_secs(90);

/// Cuts these directions while something is done. Restores them also after a failure: the tests
/// after this one need the links.
fn with_cuts<T>(
    cluster: &Cluster,
    cuts: &[(&Host, &Host)],
    act: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let cut = cuts
        .iter()
        .try_for_each(|(from, to)| cluster.lab.cut_link(from, to));
    let done = cut.and_then(|()| act());
    for (from, to) in cuts {
        cluster.lab.restore_link(from, to)?;
    }
    done
}

fn epoch(master: &Host) -> Result<u64> {
    let (_, masters): (_, MasterList) = in_any_case(master, &["master", "list"])?;
    masters.epoch.context("no epoch")
}

/// The master and one standby do not reach each other, and the other standby reaches both: no
/// promotion without force, and the master continues. Clients write to it and to the API all the
/// time.
fn no_second_master(cluster: &Cluster) -> Result<Counts> {
    let (first, next, third) = (
        &cluster.bootstrap,
        cluster.host("cp-2")?,
        cluster.host("cp-3")?,
    );
    wait_for_followers(first, &STANDBYS)?;
    let before = epoch(first)?;
    let mut made = Acknowledged::default();
    let record = while_written(cluster, third, "bridge", || {
        made = with_cuts(cluster, &[(first, next), (next, first)], || {
            while_ordered(first, || {
                wait_until_noticed(next)?;
                let reasons = ["the standby cp-3", "the master at", "--force --cluster"];
                refused(next, &promote()?, &reasons)?;
                wait_for_followers(first, &["cp-3"]).map(drop)
            })
        })?;
        Ok(())
    })?;
    println!("  {} writes acknowledged", record.acknowledged().len());
    wait_for_followers(first, &STANDBYS)?;
    ensure!(epoch(first)? == before, "another master has acted");
    made.are_on(first)?;
    made.revoke(first)?;
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    same_content(cluster)?;
    Ok(Counts::ONE)
}

/// The same with one direction of the link, and then with the other one.
fn one_way(cluster: &Cluster) -> Result<Counts> {
    let (first, next, third) = (
        &cluster.bootstrap,
        cluster.host("cp-2")?,
        cluster.host("cp-3")?,
    );
    let record = while_written(cluster, third, "one-way", || {
        for cut in [(first, next), (next, first)] {
            wait_for_followers(first, &STANDBYS)?;
            let before = epoch(first)?;
            let made = with_cuts(cluster, &[cut], || {
                while_ordered(first, || {
                    wait_until_noticed(next)?;
                    refused(next, &promote()?, &["the standby cp-3"])
                })
            })?;
            wait_for_followers(first, &STANDBYS)?;
            ensure!(epoch(first)? == before, "another master has acted");
            made.are_on(first)?;
            made.revoke(first)?;
            wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
        }
        Ok(())
    })?;
    println!("  {} writes acknowledged", record.acknowledged().len());
    same_content(cluster)?;
    Ok(Counts {
        passed: 2,
        failed: 0,
    })
}

/// The standby on the other side is promoted by force: the previous master learns of it from the
/// standby that reaches both, while the link is still cut. Its orders since the cut may be lost,
/// and the promotion asked for a confirmation of that; earlier ones and writes to etcd may not be.
fn promoted_by_force(cluster: &Cluster) -> Result<Counts> {
    let (old, next, third) = (
        &cluster.bootstrap,
        cluster.host("cp-2")?,
        cluster.host("cp-3")?,
    );
    wait_for_followers(old, &STANDBYS)?;
    let before = ordered(old)?;
    let mut since = Acknowledged::default();
    let record = while_written(cluster, third, "forced", || {
        since = with_cuts(cluster, &[(old, next), (next, old)], || {
            while_ordered(old, || {
                wait_until_noticed(next)?;
                force(next)?;
                let promoted = Instant::now();
                has_stopped(old)?;
                let time = promoted.elapsed();
                println!(
                    "  the lower master stopped after {:.1} s",
                    time.as_secs_f64()
                );
                ensure!(time <= ROUND, "only after {time:?}");
                wait_for_followers(next, &["cp-3"]).map(drop)
            })
        })?;
        Ok(())
    })?;
    println!("  {} writes acknowledged", record.acknowledged().len());
    before.are_on_promoted(next)?;
    let lost = since.missing_after_promotion(next)?;
    println!("  lost, as confirmed: {} orders", lost.len());
    before.revoke(next)?;
    since.revoke(next)?;
    returns(cluster, old, next)?;
    Ok(Counts::ONE)
}

/// Promotes a standby while a master acts. It is refused without `--force`, which confirms that
/// later changes of that master are lost.
fn force(next: &Host) -> Result<()> {
    let reasons = [
        "the standby cp-3",
        "two masters must not act",
        "--force --cluster",
    ];
    refused(next, &promote()?, &reasons)?;
    let forced = ["--force", "--cluster", "demo", "--no-wait"];
    let forced: Vec<String> = forced.iter().map(|word| (*word).to_owned()).collect();
    next.run(&[promote()?, forced].concat()).map(drop)
}

/// The master's host is paused, as a virtual machine can be, and a standby is promoted. When the
/// host resumes, the old master steps down. It acknowledges nothing that the new one does not have.
fn a_master_stands_still(cluster: &Cluster) -> Result<Counts> {
    let (old, next, third) = (
        &cluster.bootstrap,
        cluster.host("cp-2")?,
        cluster.host("cp-3")?,
    );
    wait_for_followers(old, &STANDBYS)?;
    let before = ordered(old)?;
    let mut since = Acknowledged::default();
    let record = while_written(cluster, third, "pause", || {
        since = while_ordered(old, || {
            paused(old, next)?;
            has_stopped(old)
        })?;
        Ok(())
    })?;
    println!("  {} writes acknowledged", record.acknowledged().len());
    before.are_on_promoted(next)?;
    since.are_on_promoted(next)?;
    before.revoke(next)?;
    since.revoke(next)?;
    returns(cluster, old, next)?;
    Ok(Counts::ONE)
}

/// Pauses the master's host, promotes a standby, and resumes the host.
fn paused(old: &Host, next: &Host) -> Result<()> {
    let signal = |name: &str| {
        let signal = format!("--signal={name}");
        // A running minion would make the host a standby of the new master.
        let kill = ["systemctl", "kill", "--kill-whom=main", &signal];
        old.run(&[&kill[..], &["halite-minion", "halite-master"]].concat())
    };
    let since = Instant::now();
    signal("SIGSTOP")?;
    let promoted = wait_until_noticed(next).and_then(|()| {
        next.run(&promote()?)?;
        wait_for_followers(next, &["cp-3"])?;
        wait::until("the end of the pause", 2 * STILL, || {
            ensure!(since.elapsed() >= STILL, "{:?}", since.elapsed());
            Ok(())
        })
    });
    signal("SIGCONT")?;
    promoted
}

/// Waits until the master of a host has stopped because it was replaced.
fn has_stopped(old: &Host) -> Result<()> {
    wait::until("the old master to stop", BACK, || {
        old.sh("! systemctl is-active halite-master && test -e /var/lib/halite/master/replaced")
            .map(drop)
    })
}

/// Makes the old master's host a standby, and then the master again.
fn returns(cluster: &Cluster, old: &Host, next: &Host) -> Result<()> {
    answers(cluster, next, "")?;
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    let own = old.spec.name.as_str();
    next.run(&["ctl", "highstate", own])?;
    wait_for_followers(next, &[own, "cp-3"])?;
    next.run(&["ctl", "master", "retire", "--to", own, "--keep", "--yes"])?;
    let masters = wait_for_followers(old, &STANDBYS)?;
    println!("  {masters:?}");
    same_content(cluster)?;
    nothing_to_do(old, &["cp-1", "cp-2", "cp-3", "worker-1", "master"])
}
