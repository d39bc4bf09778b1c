//! The way back from an upgrade that has not ended: from which bundle, to which one, which hosts it
//! has begun to change, and why there is none.

use std::collections::BTreeSet;

use halite_api::BundleRelease;
use halite_core::app::App;
use halite_core::clock::rfc3339;
use halite_core::declared::Snapshot;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_fleet::jobs::Jobs;
use halite_names::{BundleVersion, BundleVersionError, MASTER};
use halite_pillar::declaration::Declaration;
use halite_pillar::release::{minor, order};
use halite_pillar::role::Role;
use halite_states::args::Args;
use halite_states::low::{Chunk, LowState};
use halite_states::shipped::UPGRADE;
use halite_store::{Millis, Run, StepStatus};
use serde_json::Value;

use crate::operator::cluster_backups::newest_before;
use crate::operator::last_upgrade::{is_back, pillar};

/// The newest runs that may belong to the last upgrade: it may have been repeated often.
const RUNS: u32 = 100;
/// The SLS of a step that only pulls images: it changes nothing that a return would change back.
const IMAGES: &str = "halite.images.ahead";
/// The SLS of a step that replaces an API server.
const API_SERVER: &str = "halite.base.control_plane.running";

/// The way back.
pub(super) struct WayBack {
    pub(super) from: BundleRelease,
    pub(super) to: BundleVersion,
    /// The hosts that the upgrade has begun to change, and that record the previous bundle.
    pub(super) begun: BTreeSet<String>,
}

/// Finds the way back from the last upgrade.
///
/// # Errors
/// There is none, with the reason; or the store failed.
pub(super) async fn find(app: &App, jobs: &Jobs, snapshot: &Snapshot) -> Result<WayBack, Refusal> {
    let declaration = snapshot.declaration();
    let open = app.store.open_runs().await?.into_iter();
    let open: Vec<Run> = open.filter(|run| run.sls == UPGRADE && !run.test).collect();
    if let Some(run) = open.iter().find(|run| !is_back(&pillar(run))) {
        let id = &run.id;
        return Err(Refusal::conflict(format!(
            "cannot return to the previous bundle: the upgrade is running ({id}); `ctl upgrade pause` ends it before its next \
             host, `ctl orchestrate cancel {id}` at once"
        )));
    }
    let history = History::read(app).await?;
    let Some(from) = history.from.clone() else {
        return Err(Refusal::not_found(
            "cannot return to the previous bundle: no upgrade is recorded; `ctl upgrade status` shows the last one",
        ));
    };
    let lost = async || restore(app, declaration, history.first_change).await;
    let Some(to) = previous(declaration, &from) else {
        return Err(Refusal::conflict(format!(
            "cannot return from the bundle {from}: each host and the objects of the cluster have it, so the upgrade has ended; {}",
            lost().await
        )));
    };
    let site = snapshot.bundle()?.on_site();
    let kubernetes = |version: &BundleVersion| {
        let held = site.iter().find(|held| held.version == version.as_str());
        held.map(|held| held.kubernetes.clone())
    };
    let (Some(has), Some(gets)) = (kubernetes(&from), kubernetes(&to)) else {
        return Err(Refusal::conflict(format!(
            "cannot return from the bundle {from} to {to}: the site no longer has both; add the missing one with `ctl bundle add`"
        )));
    };
    let changed: Vec<&str> = changed(declaration, &from).collect();
    if minor(&has) != minor(&gets)
        && let Some(server) = history.api_server(declaration, &changed)
    {
        return Err(Refusal::conflict(format!(
            "cannot return from the bundle {from} to {to}: the API server of {server} has got Kubernetes {has}, and Kubernetes cannot \
             be downgraded to another minor version; {}",
            lost().await
        )));
    }
    let mut begun = history.begun;
    begun.retain(|host| {
        declaration.nodes.contains_key(host.as_str()) && !changed.contains(&host.as_str())
    });
    if begun.is_empty() && changed.is_empty() && open.is_empty() {
        return Err(Refusal::conflict(format!(
            "no host has begun to change to the bundle {from}, so none returns to {to}; `ctl bundle remove {from}` removes it from the \
             site"
        )));
    }
    let obstacle = jobs.declarations().obstacle_to_return(&from, &to);
    if let Some(why) = obstacle.await? {
        return Err(Refusal::conflict(format!(
            "cannot return from the bundle {from} to {to}: {why}; {}",
            lost().await
        )));
    }
    Ok(WayBack {
        from: BundleRelease {
            bundle: from.to_string(),
            kubernetes: has,
        },
        to,
        begun,
    })
}

/// The minions that record this bundle, `master` for the objects.
fn changed<'a>(
    declaration: &'a Declaration,
    from: &'a BundleVersion,
) -> impl Iterator<Item = &'a str> {
    let hosts = declaration.nodes.keys().map(|name| name.as_str());
    let all = hosts.chain([MASTER]);
    all.filter(move |minion| declaration.bundle_for(minion) == Some(from))
}

/// The bundle to which hosts return: the cluster's, or if that is new already, the newest of those
/// that hosts have.
fn previous(declaration: &Declaration, from: &BundleVersion) -> Option<BundleVersion> {
    let cluster = declaration.bundle_for(MASTER);
    if let Some(cluster) = cluster.filter(|cluster| *cluster != from) {
        return Some(cluster.clone());
    }
    let hosts = declaration.nodes.keys().map(|name| name.as_str());
    let others = hosts.filter_map(|host| Some((host, declaration.bundle_for(host)?)));
    let others = others.filter(|(_, bundle)| *bundle != from);
    let newest = others.max_by(|(one, _), (other, _)| {
        let of = |host| declaration.kubernetes_for(host);
        order(of(one), of(other))
    });
    newest.map(|(_, bundle)| bundle.clone())
}

/// The records of the runs of the last upgrade.
#[derive(Default)]
struct History {
    /// The bundle that it gives.
    from: Option<BundleVersion>,
    /// The hosts that it has begun to change since they last returned.
    begun: BTreeSet<String>,
    /// Those among them whose API server it has begun to replace.
    api_servers: BTreeSet<String>,
    /// The time of the first change of a host.
    first_change: Option<Millis>,
}

impl History {
    /// Reads the runs, from the newest to the oldest of the same upgrade.
    async fn read(app: &App) -> Result<Self, Refusal> {
        let mut history = Self::default();
        let mut returned = BTreeSet::new();
        for run in app.store.newest_runs_of(UPGRADE, RUNS).await? {
            let values = pillar(&run);
            let is_back = is_back(&values);
            let bundle = values.get("bundle").and_then(Value::as_str);
            let bundle = bundle.unwrap_or_default();
            match &history.from {
                _ if is_back => {}
                None => {
                    let version = bundle.parse();
                    let version = version
                        .map_err(|error: BundleVersionError| Refusal::invalid(chain(&error)))?;
                    history.from = Some(version);
                }
                Some(from) if from.as_str() == bundle => {}
                Some(_) => break,
            }
            let Ok(low) = serde_json::from_str::<LowState>(&run.low_json) else {
                continue;
            };
            for step in app.store.steps(&run.id).await? {
                let index = usize::try_from(step.index).unwrap_or(usize::MAX);
                let Some(change) = low.chunks.get(index).and_then(HostChange::from_step) else {
                    continue;
                };
                if is_back {
                    if change.is_whole && step.status == StepStatus::Succeeded {
                        returned.extend(change.hosts);
                    }
                    continue;
                }
                let Some(started) = step.started else {
                    continue;
                };
                let first = history.first_change.get_or_insert(started);
                *first = started.min(*first);
                let mut hosts = change.hosts;
                hosts.retain(|host| !returned.contains(host));
                if change.has_api_server {
                    history.api_servers.extend(hosts.iter().cloned());
                }
                history.begun.extend(hosts);
            }
        }
        Ok(history)
    }

    /// The first API server that has begun to change.
    fn api_server(&self, declaration: &Declaration, changed: &[&str]) -> Option<String> {
        let begun = self.api_servers.iter().map(String::as_str);
        let mut all = changed.iter().copied().chain(begun);
        let is_plane = |host: &&str| {
            let node = declaration.nodes.get(*host);
            *host == MASTER || node.is_some_and(|node| node.has(Role::ControlPlane))
        };
        let named = |host: &str| match host {
            MASTER => "each control plane".to_owned(),
            host => host.to_owned(),
        };
        all.find(is_plane).map(named)
    }
}

/// A step that changes hosts.
struct HostChange {
    hosts: Vec<String>,
    /// It is the whole highstate.
    is_whole: bool,
    /// It replaces API servers on control planes.
    has_api_server: bool,
}

impl HostChange {
    fn from_step(step: &Chunk) -> Option<Self> {
        let args = Args::new(step);
        let text = |name: &str| args.text(name).ok().flatten();
        let target = text("tgt").filter(|target| target != MASTER)?;
        text("bundle").filter(|_| step.fun == "state")?;
        let sls = args.list("sls").unwrap_or_default();
        if sls.iter().any(|sls| sls == IMAGES) {
            return None;
        }
        let is_whole = args.flag("highstate", false).unwrap_or_default();
        Some(Self {
            hosts: target.split(',').map(str::to_owned).collect(),
            is_whole,
            has_api_server: is_whole || sls.iter().any(|sls| sls == API_SERVER),
        })
    }
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
