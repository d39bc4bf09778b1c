//! Standbys of the master: they follow, one of them replaces a lost master, and a master that comes
//! back does not act next to it.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use halite_api::{
    ClusterStatus, Job, JobOutcome, KeyList, KeyState, MasterList, OperatorList, StandbyState,
};
use halite_lab::cluster::Cluster;
use halite_lab::host::Host;
use halite_lab::wait;

use super::losses::{GAP, at_the_vip};
use super::{BACK, is_complete, pod, same_content};
use crate::checks::{QUIET, refused};
use crate::ctl_answer::{self, in_any_case};
use crate::guide;
use crate::interrupted::Running;
use crate::kills::{master_answers, moments};
use crate::test::Counts;

/// The standbys, while the first host has the master.
pub(crate) const STANDBYS: [&str; 2] = ["cp-2", "cp-3"];

/// The heading of the guide about a lost master.
const LOST: &str = "## The master's host is lost, and a standby is left";

/// The guide's command that makes a standby the master.
pub(super) fn promote() -> Result<Vec<String>> {
    guide::command("disaster.md", LOST, "ctl master promote")
}

/// The guide's command that shows a standby's state on it.
fn list() -> Result<Vec<String>> {
    guide::command("disaster.md", LOST, "ctl master list")
}

/// Waits until exactly these hosts follow the master of a host.
pub(crate) fn wait_for_followers(master: &Host, wanted: &[&str]) -> Result<MasterList> {
    wait::until("the standbys to follow", BACK, || {
        let (_, masters): (_, MasterList) = in_any_case(master, &["master", "list"])?;
        let following = masters.standbys.iter();
        let following = following.filter(|one| one.state == StandbyState::Following);
        let names: BTreeSet<&str> = following.map(|one| one.host.as_str()).collect();
        let all_wanted = wanted.iter().copied().collect::<BTreeSet<_>>();
        ensure!(names == all_wanted, "{masters:?}");
        Ok(masters)
    })
}

/// Waits until the minions of all hosts but that one answer `ctl ping` on a host.
pub(super) fn answers(cluster: &Cluster, on: &Host, without: &str) -> Result<()> {
    let hosts = cluster.hosts().into_iter();
    for host in hosts.filter(|host| host.spec.name != without) {
        let name = host.spec.name.as_str();
        wait::until("the minion to call the master", BACK, || {
            ctl_answer::of::<JobOutcome>(on, &["ping", name]).map(drop)
        })?;
    }
    Ok(())
}

/// A highstate of each of these hosts, by the master of another one, would change nothing.
pub(super) fn nothing_to_do(on: &Host, names: &[&str]) -> Result<()> {
    for name in names {
        wait::until(&format!("nothing to do for {name}"), QUIET, || {
            let planned: JobOutcome = ctl_answer::of(on, &["highstate", name, "--test"])?;
            ensure!(planned.changed == Some(0), "{name}: {planned:?}");
            Ok(())
        })?;
    }
    Ok(())
}

/// Two control planes follow, with the bundles; nothing is left for a highstate of them.
pub(super) fn follow(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    let masters = wait_for_followers(first, &["cp-2", "cp-3"])?;
    ensure!(masters.problems.is_empty(), "{masters:?}");
    let version = bundle_in_use(first)?;
    for name in ["cp-2", "cp-3"] {
        let host = cluster.host(name)?;
        let manifest = format!("/var/lib/halite/bundles/{version}/manifest.json");
        host.run(&["test", "-s", &manifest])?;
        // It serves nothing before it becomes the master, and says so.
        host.sh("! ss -Hltn 'sport = :4551' | grep .")?;
        stands_by(host)?;
        refused(host, &["ctl", "master", "promote"], &["answers"])?;
    }
    // A refused promotion has stopped nothing.
    wait_for_followers(first, &["cp-2", "cp-3"])?;
    nothing_to_do(first, &["cp-2", "cp-3"])?;
    Ok(Counts::ONE)
}

/// The master's port of a host is that of a standby, which `ctl` can tell from a master.
pub(super) fn stands_by(host: &Host) -> Result<()> {
    let own = format!("{}:4550", host.control_plane_address());
    wait::until("a standby to answer", BACK, || {
        let parts = [host.spec.name.as_str(), "stands by and has no master"];
        refused(host, &["ctl", "--master", &own, "ping"], &parts)
    })
}

/// The version of the bundle in use, according to the master of a host.
fn bundle_in_use(master: &Host) -> Result<String> {
    let (_, status): (_, ClusterStatus) = in_any_case(master, &["status"])?;
    Ok(status.bundle.context("no bundle")?.version.into())
}

/// Acknowledged data: an operator, a job, and the keys.
fn acknowledged(first: &Host) -> Result<(String, Vec<KnownKey>)> {
    // They may exist from an earlier loss.
    first.sh("rm -f /root/kept.pem; ctl operator revoke kept --yes 2>&1 || true")?;
    let operator = [
        "operator",
        "create",
        "kept",
        "--role",
        "viewer",
        "--out",
        "/root/kept.pem",
    ];
    first.run(&[&["ctl"], &operator[..]].concat())?;
    let words = ["cmd", "worker-1", "--", "echo", "acknowledged"];
    let done: JobOutcome = ctl_answer::of(first, &words)?;
    let job = done.job.context("no job")?.to_string();
    Ok((job, keys(first)?))
}

/// A key without the parts that change by themselves: minion, state, fingerprint.
pub(super) type KnownKey = (String, KeyState, String);

/// The keys without the parts that change by themselves.
pub(super) fn keys(host: &Host) -> Result<Vec<KnownKey>> {
    let keys: KeyList = ctl_answer::of(host, &["key", "list"])?;
    let keys = keys.keys.into_iter();
    Ok(keys
        .map(|key| (key.minion.to_string(), key.state, key.fingerprint))
        .collect())
}

/// Cuts the power of a host, and destroys its disks.
fn destroyed(cluster: &Cluster, lost: &Host) -> Result<()> {
    (cluster.lab).power_off(std::slice::from_ref(&lost.spec.name), true)
}

/// The master's host is lost with its disks while a client writes: `ctl node replace` on a standby
/// makes that the master first, which serves images from then on. All acknowledged data is there,
/// and the cluster is complete again.
pub(super) fn replaces_the_lost_master(cluster: &Cluster) -> Result<Counts> {
    let asked = cluster.host("cp-3")?;
    let measured = at_the_vip(cluster, asked, "master-lost", || {
        master_lost(cluster, |lost| destroyed(cluster, lost), |_, _| Ok(()))
    })?;
    measured.check("the master's host is destroyed and replaced", GAP)?;
    Ok(Counts::ONE)
}

/// The same, and the new master dies each time when a step has ended: first those of the promotion,
/// then those of the removal of the lost host. In the end the master moves back to the first host.
pub(super) fn replaces_the_lost_master_and_dies(cluster: &Cluster) -> Result<Counts> {
    let mut steps = 0;
    let lose = |lost: &Host| destroyed(cluster, lost);
    master_lost(cluster, lose, |next, lost| {
        let replace = [
            "ctl",
            "node",
            "replace",
            lost,
            "--force",
            "--cluster",
            "demo",
        ];
        let mut running = Running::start(next, &[&replace[..], &["--no-wait"]].concat())?;
        while let Some(line) = running.next_end(steps)? {
            println!("  {}", line.trim());
            steps += 1;
            moments::die(next, "halite-master")?;
            master_answers(next)?;
        }
        let (status, said) = running.ended(|| Ok(()))?;
        println!("  it ended with {status}");
        ensure!(steps > 5, "only {steps} steps were shown: {said}");
        Ok(())
    })?;
    let back = ["ctl", "master", "retire", "--to", "cp-1", "--keep", "--yes"];
    cluster.host("cp-2")?.run(&back)?;
    wait_for_followers(&cluster.bootstrap, &STANDBYS)?;
    Ok(Counts {
        passed: steps,
        failed: 0,
    })
}

/// Fails unless a command on a standby printed that it becomes the master, and after that `then`.
pub(super) fn promoted_first(said: &str, then: &str) -> Result<()> {
    let place = |part: &str| {
        let place = said.find(part);
        place.with_context(|| format!("{part:?} is not in: {said}"))
    };
    let promoted = "the master was on cp-1 and does not answer: this standby takes its place first";
    ensure!(
        place(promoted)? < place(then)?,
        "{then:?} before the promotion: {said}"
    );
    Ok(())
}

/// Waits until a standby has noticed that no master answers.
pub(super) fn wait_until_noticed(standby: &Host) -> Result<()> {
    wait::until("the standby to notice", BACK, || {
        let parts = ["no master answers", "ctl master promote"];
        refused(standby, &list()?, &parts)
    })
}

/// Loses the master's host with its disks, does something on the standby that will be the next
/// master, and replaces the host from there. Before the new host exists, a pod of the worker pulls
/// its image.
pub(super) fn master_lost(
    cluster: &Cluster,
    lose: impl FnOnce(&Host) -> Result<()>,
    before_the_replacement: impl FnOnce(&Host, &str) -> Result<()>,
) -> Result<()> {
    let (first, next) = (&cluster.bootstrap, cluster.host("cp-2")?);
    let lost = first.spec.name.clone();
    wait_for_followers(first, &["cp-2", "cp-3"])?;
    let (job, before) = acknowledged(first)?;
    let version = bundle_in_use(first)?;
    lose(first)?;

    wait_until_noticed(next)?;
    let other = "ctl node replace cp-3 --force --cluster demo";
    let other: Vec<&str> = other.split(' ').collect();
    refused(next, &other, &["the master was on cp-1, and not on cp-3"])?;
    // A preview promotes no one: the replacement below still begins with the promotion.
    let preview = "ctl node replace cp-1 --force --cluster demo --test";
    let preview: Vec<&str> = preview.split(' ').collect();
    let parts = ["but not with --test", "`ctl master promote --test`"];
    refused(next, &preview, &parts)?;
    before_the_replacement(next, &lost)?;
    let mut pulled = Ok(());
    // Not earlier: until the promotion, with which the command starts, no host serves images. A
    // failure is reported after the replacement: the tests after this one need the host.
    guide::replace_after(cluster, next, LOST, &lost, || {
        pulled = pod::pulls(cluster, next, &version);
    })?;
    pulled.context("while the first host was lost")?;

    let shown: Job = ctl_answer::of(next, &["job", "show", &job])?;
    let shown = halite_api::to_text(&shown);
    ensure!(shown.contains("acknowledged"), "{shown}");
    let operators: OperatorList = ctl_answer::of(next, &["operator", "list"])?;
    let mut names = operators.operators.iter();
    ensure!(names.any(|one| one.name == "kept"), "{operators:?}");
    let without = |keys: &[KnownKey]| -> Vec<KnownKey> {
        let kept = keys.iter().filter(|(minion, ..)| *minion != lost);
        kept.cloned().collect()
    };
    let now = keys(next)?;
    ensure!(
        without(&now) == without(&before),
        "{before:?}, then {now:?}"
    );
    answers(cluster, next, "")?;
    wait_for_followers(next, &["cp-1", "cp-3"])?;
    wait::until("the new host to serve", BACK, || is_complete(cluster))?;
    same_content(cluster)?;
    nothing_to_do(next, &["cp-1", "cp-2", "cp-3", "worker-1", "master"])
}

/// The master's host loses its power; a standby is promoted. The old master comes back, learns of
/// that before it starts anything, and becomes a standby with its next highstate.
pub(super) fn outlives_its_master(cluster: &Cluster) -> Result<Counts> {
    let (old, next) = (cluster.host("cp-2")?, &cluster.bootstrap);
    let active = ["systemctl", "is-active", "--quiet", "halite-master"];
    if next.output(&active)?.status.success() {
        // Only without the test before, which leaves the master on the other host.
        next.run(&["ctl", "master", "retire", "--to", "cp-2", "--keep", "--yes"])?;
    }
    wait_for_followers(old, &["cp-1", "cp-3"])?;
    let off = [old.spec.name.clone()];
    cluster.lab.power_off(&off, false)?;
    println!("  {}", next.run(&promote()?)?.trim().replace('\n', "\n  "));
    answers(cluster, next, "cp-2")?;
    wait_for_followers(next, &["cp-3"])?;
    nothing_to_do(next, &["cp-1", "cp-3", "worker-1"])?;
    // It serves the bundles, and the others use it.
    let version = bundle_in_use(next)?;
    let url = format!(
        "https://{}:4551/bundles/{version}/manifest.json",
        next.control_plane_address()
    );
    let get = [
        "curl",
        "-sS",
        "--fail",
        "--max-time",
        "10",
        "--noproxy",
        "*",
        "-o",
        "/dev/null",
    ];
    let ca = ["--cacert", "/etc/halite/pki/site-ca.crt", &url];
    cluster.worker.run(&[&get[..], &ca[..]].concat())?;

    cluster.lab.power_on(&off)?;
    wait::until("the old master to stop", BACK, || {
        let log = old.run(&[
            "journalctl",
            "-b",
            "-u",
            "halite-master",
            "--no-pager",
            "-o",
            "cat",
        ])?;
        ensure!(log.contains("was replaced"), "{log}");
        ensure!(!log.contains("master serves"), "it has started: {log}");
        Ok(())
    })?;
    answers(cluster, next, "")?;
    wait::until("all hosts to be back", BACK, || is_complete(cluster))?;
    next.run(&["ctl", "highstate", "cp-2"])?;
    wait_for_followers(next, &["cp-2", "cp-3"])?;
    same_content(cluster)?;
    nothing_to_do(next, &["cp-1", "cp-2", "cp-3", "worker-1", "master"])?;
    Ok(Counts::ONE)
}

/// The links of the master's host to all others are cut, and a standby is promoted: there are two
/// masters. The old one starts nothing, and stands by once the links are back. Then it is the
/// master again.
pub(super) fn cut_off(cluster: &Cluster) -> Result<Counts> {
    let (old, next) = (&cluster.bootstrap, cluster.host("cp-2")?);
    wait_for_followers(old, &STANDBYS)?;
    let others = || {
        cluster
            .hosts()
            .into_iter()
            .filter(|host| host.spec.name != old.spec.name)
    };
    let cut = others().try_for_each(|other| {
        cluster.lab.cut_link(old, other)?;
        cluster.lab.cut_link(other, old)
    });
    let seen = cut.and_then(|()| two_masters(cluster, old, next));
    // Also after a failure: the tests after this one need the links.
    for other in others() {
        cluster.lab.restore_link(old, other)?;
        cluster.lab.restore_link(other, old)?;
    }
    seen?;
    wait::until("the old master to stop", BACK, || {
        old.sh("! systemctl is-active halite-master && test -e /var/lib/halite/master/replaced")
    })?;
    answers(cluster, next, "")?;
    wait::until("all hosts to serve", BACK, || is_complete(cluster))?;
    next.run(&["ctl", "highstate", "cp-1"])?;
    wait_for_followers(next, &["cp-1", "cp-3"])?;
    next.run(&["ctl", "master", "retire", "--to", "cp-1", "--keep", "--yes"])?;
    wait_for_followers(old, &STANDBYS)?;
    same_content(cluster)?;
    nothing_to_do(old, &["cp-1", "cp-2", "cp-3", "worker-1", "master"])?;
    Ok(Counts::ONE)
}

/// While the links are cut: the standby is promoted and has the other hosts, and the old master
/// answers, and says why it starts nothing.
fn two_masters(cluster: &Cluster, old: &Host, next: &Host) -> Result<()> {
    wait::until("the standby to notice", BACK, || {
        refused(next, &list()?, &["no master answers"])
    })?;
    next.run(&promote()?)?;
    answers(cluster, next, &old.spec.name)?;
    nothing_to_do(next, &["cp-2", "cp-3", "worker-1"])?;
    wait::until("the old master to notice", BACK, || {
        let (_, masters): (_, MasterList) = in_any_case(old, &["master", "list"])?;
        let problems = masters.problems.join("\n");
        ensure!(
            problems.contains("the master starts no new work"),
            "{masters:?}"
        );
        Ok(())
    })?;
    let reasons = [
        "cannot begin state.highstate",
        "1 of 4 minions",
        "ctl master promote --force",
    ];
    refused(old, &["ctl", "highstate", "cp-1"], &reasons)?;
    refused(
        old,
        &["ctl", "node", "cordon", "worker-1"],
        &["cannot begin"],
    )?;
    refused(
        old,
        &["ctl", "master", "promote"],
        &["another host may have taken its place"],
    )?;
    // Queries change nothing.
    ctl_answer::of::<JobOutcome>(old, &["ping", "cp-1"]).map(drop)
}
