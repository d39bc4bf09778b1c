//! `ctl status`: the state of the cluster, from the declared state, the connected minions, the
//! Kubernetes API and the last jobs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use halite_api::{
    ApiServer, ApiState, BundleInUse, BundleOfSite, ClusterDns, ClusterStatus, EtcdStatus,
    HighstateResult, LastHighstate, NodeStatus, RecentRun, Time, VirtualAddress,
};
use halite_core::app::App;
use halite_core::board;
use halite_core::declared::Snapshot;
use halite_core::names::{MASTER, some_of};
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_fleet::jobs::Jobs;
use halite_host_reports::health::HostHealth;
use halite_names::{BundleVersion, NodeName};
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::validate::warnings;
use halite_proto::ids::MinionId;
use halite_store::{Facts, KeyState, MinionBundle, RowState, Run, StoredKey};

use super::health::{ClusterAnswers, HostPicture, Picture, observe};
use super::{
    backup_hosts, backups, certificates, cluster_backups, etcd, etcd_members, health, last_upgrade,
    masters, updates,
};
use crate::upkeep::calendar;

/// The free bytes for the store below which the status reports a problem: a highstate of some dozen
/// hosts takes as much.
const LITTLE_SPACE: u64 = 64 << 20;
/// The problem of a master that does not use the present documents.
const LAST_VALID: &str = "the master uses the last valid documents, and starts nothing that needs the present ones; correct \
                          the documents";
/// The number of jobs among which the last highstates are searched.
const JOBS: u32 = 200;
/// The number of runs that are shown.
const RUNS: u32 = 5;

/// Returns the status of the cluster. An unreadable declaration or an API without an answer is one
/// of its problems, not an error.
///
/// # Errors
/// The store failed, or a CA cannot be read.
pub async fn status(app: &App, jobs: &Jobs) -> Result<ClusterStatus, Refusal> {
    Ok(inspect(app, jobs).await?.status)
}

/// An inspection of the cluster.
#[derive(Debug)]
pub struct Inspection {
    /// The state of the cluster, with the results of the checks.
    pub status: ClusterStatus,
    /// The answers of the minions.
    pub minions: BTreeMap<NodeName, HostHealth>,
}

/// Inspects the cluster, like [`status`].
///
/// # Errors
/// The store failed, or a CA cannot be read.
pub async fn inspect(app: &App, jobs: &Jobs) -> Result<Inspection, Refusal> {
    let mut problems = Problems::default();
    let mut on_master = None;
    let declarations = jobs.declarations();
    let in_force = match declarations.load().await {
        Ok(snapshot) => Ok(snapshot),
        Err(refusal) => {
            let in_force = declarations.in_force().await;
            let note = in_force.is_ok().then(|| LAST_VALID.to_owned());
            problems.add("declaration", [refusal.message].into_iter().chain(note));
            in_force
        }
    };
    let snapshot = match in_force {
        Ok(snapshot) => {
            let warned = warnings(snapshot.declaration());
            let texts = warned.iter().map(ToString::to_string).collect();
            problems.warnings("declaration-warnings", texts);
            let declaration = snapshot.declaration();
            let backups = cluster_backups::inspect(app, declaration).await;
            problems.add("backup", backups.overdue);
            problems.warnings("backup-removal", backups.unremoved);
            on_master = Some((backups.newest, backups.made));
            problems.warnings("standbys", masters::problems(app, declaration));
            problems.warnings("backup-encrypted", cluster_backups::remarks(declaration));
            let encryption = snapshot.encryption_problem();
            problems.warnings("encryption", encryption.into_iter().collect());
            problems.warnings("secrets", declarations.secret_problems(&snapshot).await);
            problems.warnings("ca-rotation", snapshot.unfinished_rotations());
            Some(snapshot)
        }
        Err(_) => None,
    };
    let in_use = snapshot.as_ref().map(|snapshot| snapshot.bundle());
    if let Some(Err(refusal)) = &in_use {
        problems.add("bundle", [refusal.message.clone()]);
    }
    let state_dir = &app.config.state_dir;
    problems.add(
        "store-space",
        little_space(state_dir, free_bytes(state_dir)),
    );
    let seen = match &snapshot {
        Some(snapshot) => Some(observe(jobs, snapshot).await),
        None => None,
    };
    let keys: BTreeMap<MinionId, StoredKey> = app
        .store
        .keys()
        .await?
        .into_iter()
        .map(|key| (key.id.clone(), key))
        .collect();
    let facts: BTreeMap<MinionId, Facts> = app
        .store
        .all_facts()
        .await?
        .into_iter()
        .map(|facts| (facts.minion.clone(), facts))
        .collect();
    let connected: BTreeSet<MinionId> = app.connections.connected().into_iter().collect();
    let mut saved = None;
    if let (Some(snapshot), Some((newest, made))) = (&snapshot, on_master) {
        let (declaration, now) = (snapshot.declaration(), app.clock.now());
        let when = (now, &calendar::local());
        let (hosts, found) = backup_hosts::inspect(declaration, &facts, newest, made, when);
        problems.warnings("backup-first", found.first);
        problems.warnings("backup-run", found.failed);
        problems.add("backup", found.overdue);
        problems.add("backup-verified", found.unverified);
        problems.warnings("backup-copies", found.few);
        saved = Some(hosts);
    }
    let registry = snapshot
        .as_ref()
        .map(|snapshot| backups::inspect(snapshot.declaration(), &facts, app.clock.now()));
    let (registry, troubles) = registry.unwrap_or_default();
    problems.add("registry-backup", troubles);
    let trouble = app.upkeep.trouble().map(|trouble| trouble.text());
    problems.warnings("etcd-defrag", trouble.into_iter().collect());
    problems.warnings("notify", app.sinks.troubles());
    let expired = app.cas.expired(app.clock.now());
    problems.add(
        "certificate-authorities",
        expired.iter().map(ToString::to_string),
    );
    problems.add("etcd-data", etcd::problems(&facts));
    problems.add("minion-update", updates::problems(&facts));
    let highstates = last_highstates(app).await?;
    let minion_bundles = app.store.minion_bundles().await?;
    let bundles = Bundles::from_records(&minion_bundles);
    let mut names: BTreeSet<MinionId> = keys.keys().cloned().collect();
    if let Some(snapshot) = &snapshot {
        let declared = snapshot.declaration().nodes.keys();
        names.extend(declared.cloned().map(MinionId::from));
    }
    if let Some(snapshot) = &snapshot {
        let returns = last_upgrade::is_open_return(app).await?;
        problems.add("bundle-applied", bundles.behind(&names, snapshot, returns));
    }
    problems.add("bundle-applied", last_upgrade::paused(app).await?);
    let declaration = snapshot.as_ref().map(|snapshot| snapshot.declaration());
    let host = |name: &MinionId| {
        let declared = declaration.and_then(|declaration| declaration.nodes.get(name.as_str()));
        let last = highstates.get(name);
        HostPicture {
            name: name.to_string(),
            declared: declared.is_some(),
            runs_containers: declared.is_some_and(|node| node.runs_containers()),
            accepted: (keys.get(name)).is_some_and(|key| key.state == KeyState::Accepted),
            connected: connected.contains(name),
            highstate: last.map(|last| last.result.clone()),
            node: seen
                .as_ref()
                .and_then(|seen| seen.nodes.get(name.as_str()).cloned()),
        }
    };
    let vip = declaration.map(|declaration| &declaration.cluster.api_server);
    let upkeep = app.upkeep.seen();
    let picture = Picture {
        now: app.clock.now(),
        hosts: names.iter().map(host).collect(),
        vip: vip.filter(|api| api.keeps_vip()).and_then(|api| api.vip),
        reported: problems.by_check,
        authorities: certificates::lifetimes(&app.cas, app.clock.now())?,
        renewals: upkeep.hosts.clone(),
        seen,
    };
    let node = |name: &MinionId| {
        let declared = declaration.and_then(|declaration| declaration.nodes.get(name.as_str()));
        let facts = facts.get(name);
        let roles = declared.map(|node| node.roles.iter().map(ToString::to_string).collect());
        let address = declared.and_then(|node| node.control_plane());
        let seen = picture.seen.as_ref();
        let uses = declaration.and_then(|declaration| declaration.bundle_for(name));
        NodeStatus {
            name: name.clone(),
            declared: declared.is_some(),
            roles: roles.unwrap_or_default(),
            address: address.map(|address| address.to_string()),
            key: keys.get(name).map(|key| key.state.as_str().into()),
            connected: connected.contains(name),
            version: facts.map(|facts| facts.version.clone()),
            last_seen: facts.map(|facts| Time::from_millis(facts.last_seen)),
            kubernetes: seen.and_then(|seen| seen.nodes.get(name.as_str()).cloned()),
            highstate: highstates.get(name).cloned(),
            uses: uses.cloned(),
            bundle: bundles.last.get(name.as_str()).cloned(),
            bundles: bundles.all.get(name.as_str()).cloned(),
        }
    };
    let run = |run: Run| RecentRun {
        run: run.id,
        sls: run.sls,
        status: run.status.as_str().into(),
        changed: Time::from_millis(run.changed),
    };
    let seen = picture.seen.as_ref();
    let status = ClusterStatus {
        cluster: app.config.cluster.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        master: app.config.endpoints(),
        masters: masters::masters(app, declaration),
        bundle: in_use.and_then(Result::ok).map(bundle),
        api: api(seen),
        api_servers: seen.map(servers),
        vip: picture.vip.map(|vip| VirtualAddress {
            address: vip.to_string(),
            holders: picture
                .holders()
                .into_iter()
                .cloned()
                .map(MinionId::from)
                .collect(),
        }),
        etcd: seen.and_then(members),
        dns: seen.and_then(dns),
        registry,
        backups: saved,
        certificates: board::renewals(&upkeep),
        nodes: names.iter().map(node).collect(),
        master_highstate: highstates.get(MASTER.as_str()).cloned(),
        runs: app.store.runs(RUNS).await?.into_iter().map(run).collect(),
        health: health::report(&picture),
        problems: problems.all,
    };
    let minions = picture.seen.map(|seen| seen.minions).unwrap_or_default();
    Ok(Inspection { status, minions })
}

fn bundle(facts: &BundleFacts) -> BundleInUse {
    let site = facts.on_site().into_iter().map(|held| BundleOfSite {
        version: held.version,
        kubernetes: held.kubernetes,
        path: held.path,
        manifest: held.manifest,
    });
    BundleInUse {
        version: facts.version.clone(),
        kubernetes: facts.kubernetes.clone(),
        path: facts.path.clone(),
        site: site.collect(),
    }
}

/// The problems that the master's own modules find.
#[derive(Default)]
struct Problems {
    /// In the order in which they were found.
    all: Vec<String>,
    by_check: BTreeMap<&'static str, Vec<String>>,
}

impl Problems {
    /// Adds findings of a check that are not problems.
    fn warnings(&mut self, check: &'static str, found: Vec<String>) {
        self.by_check.entry(check).or_default().extend(found);
    }

    fn add(&mut self, check: &'static str, found: impl IntoIterator<Item = String>) {
        for text in found {
            self.all.push(text.clone());
            self.by_check.entry(check).or_default().push(text);
        }
    }
}

fn api(seen: Option<&ClusterAnswers>) -> ApiState {
    let fault = seen.map(|seen| &seen.api_fault);
    ApiState {
        answers: matches!(fault, Some(None)),
        error: fault.and_then(Option::as_ref).map(|error| chain(error)),
    }
}

fn servers(seen: &ClusterAnswers) -> Vec<ApiServer> {
    let servers = seen.servers.iter().map(|(host, fault)| ApiServer {
        host: host.clone().into(),
        ready: fault.is_none(),
        error: fault.clone(),
    });
    servers.collect()
}

fn members(seen: &ClusterAnswers) -> Option<EtcdStatus> {
    match seen.etcd.as_ref()? {
        Ok(overview) => Some(etcd_members::status(overview, seen.etcd_is_external)),
        Err(error) => Some(EtcdStatus {
            error: Some(chain(error)),
            external: seen.etcd_is_external,
            ..EtcdStatus::default()
        }),
    }
}

/// The hosts with a ready replica of the cluster's DNS, and the others.
fn dns(seen: &ClusterAnswers) -> Option<ClusterDns> {
    let replicas = seen.dns.as_ref()?;
    let without = seen.nodes.keys().filter(|host| !replicas.contains(*host));
    Some(ClusterDns {
        replicas: replicas.iter().cloned().collect(),
        without: without.cloned().collect(),
    })
}

/// The free bytes on the store's file system; `None` if the kernel does not report them.
fn free_bytes(state_dir: &Path) -> Option<u64> {
    let found = rustix::fs::statvfs(state_dir).ok()?;
    Some(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The problem of a nearly full file system: without space there are no jobs and no returns.
fn little_space(state_dir: &Path, free: Option<u64>) -> Option<String> {
    let free = free.filter(|free| *free < LITTLE_SPACE)?;
    Some(format!(
        "only {} MiB are free on the file system of {}: without space no job can be made and no return can be stored; free some \
         space there",
        free >> 20,
        state_dir.display()
    ))
}

/// The last highstate of each minion among the newest jobs, without test runs.
async fn last_highstates(app: &App) -> Result<BTreeMap<MinionId, LastHighstate>, Refusal> {
    let mut last: BTreeMap<MinionId, LastHighstate> = BTreeMap::new();
    for job in app.store.jobs(JOBS).await? {
        let known = |minion: &MinionId| last.contains_key(minion);
        if job.test || job.function != "state.highstate" || job.minions.iter().all(known) {
            continue;
        }
        for row in app.store.parts(&job.job_id).await? {
            let result = match (row.state, row.retcode) {
                (RowState::Returned, Some(0)) => HighstateResult::Succeeded,
                (RowState::Returned, Some(2)) => HighstateResult::Interrupted,
                (RowState::Returned, _) => HighstateResult::Failed,
                (RowState::Lost, _) => HighstateResult::Lost,
                _ => HighstateResult::Running,
            };
            last.entry(row.minion).or_insert_with(|| LastHighstate {
                job: job.job_id.clone(),
                result,
                ended: row.ended.map(Time::from_millis),
                error: Some(row.error).filter(|error| !error.is_empty()),
            });
        }
    }
    Ok(last)
}

/// The bundles from which minions have files, however long ago they got them.
struct Bundles<'a> {
    /// The bundle of each minion's last successful highstate: the host has its packages, images and
    /// addresses.
    last: BTreeMap<&'a str, BundleVersion>,
    /// All bundles from which a minion may have files: that one, and the ones of later jobs.
    all: BTreeMap<&'a str, Vec<BundleVersion>>,
}

impl<'a> Bundles<'a> {
    fn from_records(known: &'a [MinionBundle]) -> Self {
        let mut all: BTreeMap<&str, Vec<BundleVersion>> = BTreeMap::new();
        let mut last: BTreeMap<&str, &MinionBundle> = BTreeMap::new();
        for one in known {
            all.entry(one.minion.as_str())
                .or_default()
                .push(one.bundle.clone());
            // Job ids grow with time.
            let before = last
                .get(one.minion.as_str())
                .and_then(|last| last.highstate.as_deref());
            if one.highstate.as_deref() > before {
                last.insert(one.minion.as_str(), one);
            }
        }
        let last = last
            .into_iter()
            .map(|(minion, one)| (minion, one.bundle.clone()))
            .collect();
        Self { last, all }
    }

    /// The problems of hosts whose last highstate used another bundle than their present one, and
    /// of an upgrade that has not ended; `returns` after a return that has stopped.
    fn behind(
        &self,
        names: &BTreeSet<MinionId>,
        snapshot: &Snapshot,
        returns: bool,
    ) -> Vec<String> {
        let Ok(in_use) = snapshot.bundle().map(|bundle| &bundle.version) else {
            return Vec::new();
        };
        let declaration = snapshot.declaration();
        let mut stale: BTreeMap<(&BundleVersion, &BundleVersion), Vec<&str>> = BTreeMap::new();
        let mut apart: BTreeMap<&BundleVersion, Vec<&str>> = BTreeMap::new();
        for name in names {
            let uses = declaration.bundle_for(name).unwrap_or(in_use);
            if let Some(last) = self.last.get(name.as_str()).filter(|last| *last != uses) {
                stale.entry((last, uses)).or_default().push(name);
            }
            if uses != in_use {
                apart.entry(uses).or_default().push(name);
            }
        }
        let stale = stale.into_iter().map(|((last, uses), names)| {
            format!(
                "{}: still in the state of bundle {last}, but {uses} is in use: `ctl highstate` updates it",
                some_of(&names)
            )
        });
        let continues = match returns {
            true => "`ctl upgrade back` continues its return",
            false => "`ctl upgrade` with the newer of the two continues it",
        };
        let apart = apart.into_iter().map(|(uses, names)| {
            format!(
                "an upgrade has not ended: {} with the bundle {uses}, the cluster with {in_use}; {continues}",
                some_of(&names)
            )
        });
        stale.chain(apart).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_with_little_space_left_is_a_problem() {
        let directory = Path::new("/var/lib/halite/master");
        assert_eq!(little_space(directory, Some(64 << 20)), None);
        assert_eq!(little_space(directory, None), None);
        let text = little_space(directory, Some(3 << 20)).unwrap();
        assert!(
            text.contains("only 3 MiB") && text.contains("/var/lib/halite/master"),
            "{text}"
        );
        assert!(free_bytes(&std::env::temp_dir()).is_some());
    }
}
