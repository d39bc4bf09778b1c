//! Cuts and pauses in which more than one host could have the master: only the link between the
//! master and one standby is cut, in both directions or in one, and a master is paused for a while.
//! At the end one master acts, and all acknowledged data is there.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use halite_api::{MasterList, NewToken, TokenList};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use super::losses::while_written;
use super::standbys::{
    STANDBYS, answers, nothing_to_do, promote, wait_for_followers, wait_until_noticed,
};
use super::{BACK, is_complete, same_content};
use crate::checks::refused;
use crate::ctl_answer::{self, in_any_case};
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

/// Has the master make tokens, one after the other, while something is done; returns the ids of the
/// acknowledged ones.
fn while_ordered(master: &Host, act: impl FnOnce() -> Result<()>) -> Result<BTreeSet<String>> {
    let ended = AtomicBool::new(false);
    let (done, made) = thread::scope(|scope| {
        let orders = scope.spawn(|| {
            let mut made = BTreeSet::new();
            while !ended.load(Ordering::Relaxed) {
                // A master that cannot make one says why.
                let Ok(answer) = ctl_answer::of::<NewToken>(master, &["token", "create"]) else {
                    continue;
                };
                if let Some((id, _)) = answer.token.split_once('.') {
                    made.insert(id.to_owned());
                }
            }
            Ok::<_, anyhow::Error>(made)
        });
        let done = act();
        ended.store(true, Ordering::Relaxed);
        (done, orders.join())
    });
    done?;
    made.map_err(|_| anyhow!("the orders panicked"))?
}

/// Fails unless the master has all of these tokens; removes them.
fn has_tokens(master: &Host, made: &BTreeSet<String>) -> Result<()> {
    println!("  {} tokens acknowledged", made.len());
    ensure!(made.len() > 3, "only {made:?}");
    let listed: TokenList = ctl_answer::of(master, &["token", "list"])?;
    let listed = listed.tokens.into_iter();
    let listed: BTreeSet<String> = listed.map(|token| token.token).collect();
    let lost = made.iter().filter(|id| !listed.contains(*id));
    let lost: Vec<&String> = lost.collect();
    ensure!(lost.is_empty(), "acknowledged but missing: {lost:?}");
    for id in made {
        master.run(&["ctl", "token", "revoke", id])?;
    }
    Ok(())
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
    let mut made = BTreeSet::new();
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
    has_tokens(first, &made)?;
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    same_content(cluster)?;
    Ok(Counts::ONE)
}

/// The same with one direction of the link, and then with the other one.
fn one_way(cluster: &Cluster) -> Result<Counts> {
    let (first, next) = (&cluster.bootstrap, cluster.host("cp-2")?);
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
        has_tokens(first, &made)?;
        wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    }
    Ok(Counts {
        passed: 2,
        failed: 0,
    })
}

/// The standby on the other side is promoted by force: the previous master learns of it from the
/// standby that reaches both, while the link is still cut.
fn promoted_by_force(cluster: &Cluster) -> Result<Counts> {
    let (old, next) = (&cluster.bootstrap, cluster.host("cp-2")?);
    wait_for_followers(old, &STANDBYS)?;
    with_cuts(cluster, &[(old, next), (next, old)], || {
        wait_until_noticed(next)?;
        let forced = ["--force", "--cluster", "demo", "--no-wait"];
        let forced: Vec<String> = forced.iter().map(|word| (*word).to_owned()).collect();
        next.run(&[promote()?, forced].concat())?;
        let since = Instant::now();
        has_stopped(old)?;
        let time = since.elapsed();
        println!(
            "  the lower master stopped after {:.1} s",
            time.as_secs_f64()
        );
        ensure!(time <= ROUND, "only after {time:?}");
        wait_for_followers(next, &["cp-3"]).map(drop)
    })?;
    returns(cluster, old, next)?;
    Ok(Counts::ONE)
}

/// The master's host is paused, as a virtual machine can be, and a standby is promoted. When the
/// host resumes, the old master steps down.
fn a_master_stands_still(cluster: &Cluster) -> Result<Counts> {
    let (old, next) = (&cluster.bootstrap, cluster.host("cp-2")?);
    wait_for_followers(old, &STANDBYS)?;
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
    promoted?;
    returns(cluster, old, next)?;
    Ok(Counts::ONE)
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
