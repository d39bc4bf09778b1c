//! The way back from an upgrade that has not ended: from which bundle, to which one, which hosts it
//! has begun to change, and why there is none.

use std::collections::BTreeSet;

use halite_api::BundleRelease;
use halite_core::app::App;
use halite_core::clock::rfc3339;
use halite_core::declared::{Direction, Snapshot};
use halite_core::refusal::Refusal;
use halite_fleet::jobs::Jobs;
use halite_names::{BundleVersion, MASTER};
use halite_orchestrate::refuse_other_direction;
use halite_orchestrate::upgrade_records::{BundleChange, Records, is_back, pillar};
use halite_pillar::declaration::Declaration;
use halite_pillar::release::{is_newer_minor, order};
use halite_pillar::role::Role;
use halite_proto::ids::MinionId;
use halite_states::shipped::UPGRADE;
use halite_store::{Millis, RunStatus};
use jiff::Timestamp;

use crate::operator::cluster_backups::newest_before;

/// The way back.
pub(super) struct WayBack {
    pub(super) from: BundleRelease,
    pub(super) to: BundleVersion,
    /// The hosts, `master` for the objects, that upgrades have begun to change, and that record the
    /// previous bundle.
    pub(super) begun: BTreeSet<MinionId>,
    /// The bundles that runs have begun to give.
    pub(super) given: BTreeSet<BundleVersion>,
}

/// Finds the way back from the last upgrade.
///
/// # Errors
/// There is none, with the reason; or the store failed.
pub(super) async fn find(app: &App, jobs: &Jobs, snapshot: &Snapshot) -> Result<WayBack, Refusal> {
    let declaration = snapshot.declaration();
    let open_runs = app.store.open_runs().await?;
    refuse_other_direction(&open_runs, true)?;
    let records = Records::read(app).await?;
    let Some(from) = records.newest.clone() else {
        return Err(Refusal::not_found(
            "cannot return to the previous bundle: no upgrade is recorded; `ctl upgrade status` shows the last one",
        ));
    };
    let first_change = records.forward().map(|change| change.started).min();
    let lost = async || restore(app, declaration, first_change).await;
    let Some(to) = previous(jobs, declaration, &records, &from).await else {
        return Err(Refusal::conflict(format!(
            "cannot return from the bundle {from}: each host and the objects of the cluster have it, so the upgrade has ended; {}",
            lost().await
        )));
    };
    let site = snapshot.bundle()?.on_site();
    let kubernetes = |version: &BundleVersion| {
        let held = site.iter().find(|held| held.version == *version);
        held.map(|held| held.kubernetes.clone())
    };
    let open = records.open(&to);
    let has_host = |begun: &BTreeSet<&MinionId>| {
        let mut begun = begun.iter();
        begun.any(|minion| is_declared(declaration, minion))
    };
    // An upgrade to another bundle may have stopped before this one, with hosts that have not got
    // all of the previous bundle since.
    let forward = open.iter();
    let forward = forward.filter(|(change, begun)| !change.is_back && has_host(begun));
    let forward = forward.map(|(change, _)| &change.bundle);
    let mut bundles: BTreeSet<&BundleVersion> = forward.chain([&from]).collect();
    bundles.remove(&to);
    let missing = bundles.iter().find(|bundle| kubernetes(bundle).is_none());
    let missing = missing
        .copied()
        .or(kubernetes(&to).is_none().then_some(&to));
    let (None, Some(has), Some(gets)) = (missing, kubernetes(&from), kubernetes(&to)) else {
        let missing = missing.unwrap_or(&to);
        return Err(Refusal::conflict(format!(
            "cannot return from the bundle {from} to {to}: the site no longer has {missing}; add it with `ctl bundle add`"
        )));
    };
    if let Some((server, has)) = newer_api(declaration, &open, kubernetes, &gets) {
        return Err(Refusal::conflict(format!(
            "cannot return from the bundle {from} to {to}: the API server of {server} has got Kubernetes {has}, and Kubernetes cannot \
             be downgraded to another minor version; {}",
            lost().await
        )));
    }
    let has_changed = |minion: &str| {
        let own = declaration.bundle_for(minion);
        own.is_some_and(|own| bundles.contains(own))
    };
    let hosts = declaration.nodes.keys().map(|name| name.as_str());
    let any_changed = hosts.chain([MASTER]).any(has_changed);
    let begun = begun(declaration, &records, &to, Direction::Back);
    let resumes = open_runs.iter().any(|run| run.sls == UPGRADE && !run.test);
    let has_pause = is_paused(app).await?;
    if begun.is_empty() && !any_changed && !resumes && !has_pause {
        return Err(Refusal::conflict(format!(
            "no host has begun to change to the bundle {from}, so none returns to {to}; if images of {from} were pulled, `ctl highstate` \
             gives the hosts the packages of {to} again; `ctl bundle remove {from}` then removes it from the site"
        )));
    }
    let changes_nothing = begun.is_empty() && !any_changed && !resumes;
    for from in bundles.into_iter().filter(|_| !changes_nothing) {
        let obstacle = jobs
            .declarations()
            .obstacle_to_return(declaration, from, &to);
        if let Some(why) = obstacle.await? {
            return Err(Refusal::conflict(format!(
                "cannot return from the bundle {from} to {to}: {why}; {}",
                lost().await
            )));
        }
    }
    Ok(WayBack {
        from: BundleRelease {
            bundle: from,
            kubernetes: has,
        },
        to,
        begun,
        given: records.bundles(),
    })
}

/// Returns whether the last run is an upgrade that is paused. A return ends it, also if no host has
/// to change.
async fn is_paused(app: &App) -> Result<bool, Refusal> {
    let newest = app.store.newest_runs_of(UPGRADE, 1).await?;
    Ok(newest
        .iter()
        .any(|run| run.status == RunStatus::Paused && !is_back(&pillar(run))))
}

/// The hosts, `master` for the objects, that record a bundle although a run has begun to give them
/// another one. On the way forward, only a return counts, which would have to be completed.
pub(super) fn begun(
    declaration: &Declaration,
    records: &Records,
    to: &BundleVersion,
    direction: Direction,
) -> BTreeSet<MinionId> {
    let open = records.open(to).into_iter();
    let open = open.filter(|(change, _)| direction == Direction::Back || change.is_back);
    let minions = open.flat_map(|(_, begun)| begun);
    minions
        .filter(|minion| is_declared(declaration, minion))
        .filter(|minion| declaration.bundle_for(minion) == Some(to))
        .cloned()
        .collect()
}

/// Returns whether a minion is `master` or a host that has not been removed.
fn is_declared(declaration: &Declaration, minion: &str) -> bool {
    minion == MASTER || declaration.nodes.contains_key(minion)
}

/// The bundle to which hosts return: the one that the objects of the cluster had before they got
/// `from`. If they have not got it, that is the cluster's; if no record has it, or a host has one
/// that was built later, it is the newest of those that hosts have. `None` if all of them have
/// `from`.
async fn previous(
    jobs: &Jobs,
    declaration: &Declaration,
    records: &Records,
    from: &BundleVersion,
) -> Option<BundleVersion> {
    let cluster = declaration.bundle_for(MASTER);
    if let Some(cluster) = cluster.filter(|cluster| *cluster != from) {
        return Some(cluster.clone());
    }
    let hosts = declaration.nodes.keys().map(|name| name.as_str());
    let others = hosts.filter_map(|host| Some((host, declaration.bundle_for(host)?)));
    let others: Vec<(&str, &BundleVersion)> =
        others.filter(|(_, bundle)| *bundle != from).collect();
    others.first()?;
    if let Some(before) = records.objects_before(from) {
        // A host that an earlier upgrade has not reached has an even older one. One that has a
        // newer one got it from `ctl bundle use`, which no run records.
        let built = jobs.declarations().built(before).await;
        let mut has_newer = false;
        for (_, bundle) in &others {
            has_newer |= built.is_some() && jobs.declarations().built(bundle).await > built;
        }
        if !has_newer {
            return Some(before.clone());
        }
    }
    let mut newest: Option<(&str, &BundleVersion, Option<Timestamp>)> = None;
    for (host, bundle) in others {
        let built = jobs.declarations().built(bundle).await;
        let is_newer = newest.is_none_or(|(other, _, before)| {
            let of = |host| declaration.kubernetes_for(host);
            // A release may change only Halite, or packages.
            order(of(host), of(other)).then(built.cmp(&before)).is_gt()
        });
        if is_newer {
            newest = Some((host, bundle, built));
        }
    }
    newest.map(|(_, bundle, _)| bundle.clone())
}

/// The first API server, or the objects of the cluster, with a newer minor version than `gets`: its
/// name, and its Kubernetes. Hosts that a run has begun to change count, because a static pod that
/// was restored may have served for a moment.
fn newer_api(
    declaration: &Declaration,
    open: &[(&BundleChange, BTreeSet<&MinionId>)],
    kubernetes: impl Fn(&BundleVersion) -> Option<String>,
    gets: &str,
) -> Option<(String, String)> {
    let hosts = declaration.nodes.keys().map(|name| name.as_str());
    let recorded = hosts
        .chain([MASTER])
        .map(|minion| (minion, declaration.kubernetes_for(minion).to_owned()));
    let begun = open.iter().filter(|(change, _)| change.has_api_server);
    let begun = begun.flat_map(|(change, minions)| {
        let has = kubernetes(&change.bundle).unwrap_or_default();
        minions
            .iter()
            .map(move |minion| (minion.as_str(), has.clone()))
    });
    let mut all = recorded.chain(begun);
    let (minion, has) = all.find(|(minion, has)| {
        let node = declaration.nodes.get(*minion);
        let is_api = *minion == MASTER || node.is_some_and(|node| node.has(Role::ControlPlane));
        is_api && is_newer_minor(has, gets)
    })?;
    let named = match minion {
        MASTER => "each control plane",
        host => host,
    };
    Some((named.to_owned(), has))
}

/// The end of a refusal: the backup that leads back, and what it would lose.
async fn restore(app: &App, declaration: &Declaration, first_change: Option<Millis>) -> String {
    let now = app.clock.now();
    let directory = &declaration.cluster.backup.directory;
    let found = newest_before(declaration, first_change.unwrap_or(now)).await;
    let (backup, since) = match found {
        Ok(Some((name, time))) => (
            format!(
                "the newest one from before the upgrade is {name} in {directory} on the master's host, {} old",
                age(now - time)
            ),
            rfc3339(time),
        ),
        Ok(None) => (
            format!(
                "{directory} on the master's host has none from before the upgrade, but a standby or your own copies may"
            ),
            "it was made".to_owned(),
        ),
        Err(error) => (
            format!("cannot read {directory} on the master's host: {error}"),
            "it was made".to_owned(),
        ),
    };
    format!(
        "only a restored backup leads back (docs/guide/disaster.md): {backup}; everything that was written to the cluster since \
         {since} would be lost"
    )
}

/// A rounded age.
fn age(millis: Millis) -> String {
    let minutes = millis.max(0) / 60_000;
    match minutes {
        0..120 => format!("{minutes} min"),
        120..2880 => format!("{} h", minutes / 60),
        _ => format!("{} days", minutes / 1440),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_is_rounded_down() {
        let of = |minutes: Millis| age(minutes * 60_000);
        assert_eq!(of(-1), "0 min");
        assert_eq!(of(119), "119 min");
        assert_eq!(of(150), "2 h");
        assert_eq!(of(3 * 1440 + 5), "3 days");
    }
}
