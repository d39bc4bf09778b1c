//! `halite.etcd_*`, `halite.lock` and `halite.unlock`: changes of etcd's members, one run at a
//! time.

use std::sync::Arc;
use std::time::Duration;

use halite_cluster::etcd::member_host;
use halite_core::declared::Snapshot;
use halite_errors::chain;
use halite_etcd::{
    ChangeError, Changes, Gate, Joined, MemberHost, Members, Overview, Pace as _, Removal,
};
use halite_pillar::node::{Node, ResolvedMember};
use halite_pillar::role::Role;
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::pace::StepPace;
use super::step_runner::{StepOutcome, StepRunner, failed, timeout};

/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(250);

/// The work of one step on the members of etcd.
struct Work<'a> {
    snapshot: Arc<Snapshot>,
    members: Arc<dyn Members>,
    pace: StepPace<'a>,
    limit: Duration,
    /// The member that should lead next, if the leader must change.
    prefer: Option<String>,
}

impl Work<'_> {
    fn changes(&self) -> Changes<'_> {
        Changes {
            members: self.members.as_ref(),
            pace: &self.pace,
            limit: self.limit,
            prefer: self.prefer.as_deref(),
        }
    }
}

impl StepRunner<'_> {
    /// Waits until this run holds the lock.
    pub(super) async fn lock(&self, chunk: &Chunk, index: usize) -> Result<StepOutcome, Failure> {
        let name = Args::new(chunk).required("lock")?;
        if self.run.test {
            return Ok((Map::new(), format!("a real run takes the lock {name}")));
        }
        let pace = StepPace::new(self.recorder, index, PAUSE);
        let limit = timeout(chunk)?;
        loop {
            let app = self.jobs.app();
            let holder = app
                .store
                .take_lock(&name, &self.run.id, app.clock.now())
                .await;
            let Some(holder) = holder.map_err(|error| Failure::new(chain(&error)))? else {
                return Ok((Map::new(), format!("this run holds the lock {name}")));
            };
            let because = format!("the run {} ({}) holds it", holder.id, holder.sls);
            let since = pace.now();
            if since >= limit {
                return Err(Failure::new(format!(
                    "cannot take the lock {name}: {because} (waited {} s); wait until it has ended",
                    limit.as_secs()
                )));
            }
            let until = format!("the lock {name} is free");
            let remedy = format!(
                "it continues by itself when that run ends: `ctl job show {0}` shows its steps, `ctl orchestrate cancel {0}` \
                 ends it",
                holder.id
            );
            pace.say_with(until, because, limit, &remedy).await;
            pace.pause().await;
        }
    }

    /// Releases a lock before this run has ended.
    pub(super) async fn unlock(&self, chunk: &Chunk) -> Result<StepOutcome, Failure> {
        let name = Args::new(chunk).required("lock")?;
        if self.run.test {
            return Ok((Map::new(), format!("a real run releases the lock {name}")));
        }
        let released = self.jobs.app().store.release_lock(&name, &self.run.id);
        released
            .await
            .map_err(|error| Failure::new(chain(&error)))?;
        Ok((Map::new(), format!("the lock {name} is free")))
    }

    /// Prepares a step's work on the members of the declared cluster.
    async fn work(&self, chunk: &Chunk, index: usize) -> Result<Work<'_>, Failure> {
        let snapshot = self.jobs.declarations().load().await.map_err(failed)?;
        let members = self.jobs.clusters().etcd().own_members(&snapshot).await;
        let pace = StepPace::new(self.recorder, index, PAUSE);
        Ok(Work {
            members: members.map_err(failed)?,
            snapshot,
            pace: pace.remedy(
                "`ctl etcd status` shows each member; switch on the hosts of those that are missing",
            ),
            limit: timeout(chunk)?,
            prefer: None,
        })
    }

    /// Runs one of the `halite.etcd_*`.
    pub(super) async fn etcd(
        &self,
        chunk: &Chunk,
        fun: &str,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let name = Args::new(chunk).required("node")?;
        if self.run.test {
            return Ok((Map::new(), format!("a real run does it: {fun} of {name}")));
        }
        let mut work = self.work(chunk, index).await?;
        if matches!(fun, "etcd_leader_moved_off" | "etcd_remove") {
            // The clients use its API server, so their writes need no connection to another host
            // first.
            work.prefer = self.next_vip_holder(&work.snapshot, &name).await;
        }
        let changes = work.changes();
        let snapshot = &work.snapshot;
        let host = || member_host(snapshot.declaration(), &name).map_err(failed);
        let comment = match fun {
            "etcd_add_learner" => {
                return self
                    .add(
                        &changes,
                        snapshot,
                        &host()?,
                        Args::new(chunk).flag("bare", false)?,
                    )
                    .await;
            }
            "etcd_promote" => {
                let id = changes.promote(&host()?).await.map_err(refused)?;
                let node = snapshot.declaration().nodes.get(name.as_str());
                // For a control plane the record of the member shows this.
                if node.is_some_and(|node| !node.has(Role::ControlPlane)) {
                    let declarations = self.jobs.declarations();
                    declarations.record_joined(&name).await.map_err(failed)?;
                }
                format!("{name} has its vote in etcd (member {id})")
            }
            "etcd_remove" => {
                let dead = Args::new(chunk).flag("dead", false)?;
                let removal = Removal {
                    name: name.clone(),
                    // A host that never got an address has no member in etcd.
                    peer_url: host().ok().map(|host| host.peer_url),
                    dead,
                };
                changes.remove(&removal).await.map_err(refused)?;
                format!("etcd is without {name}")
            }
            "etcd_may_be_alone" => {
                let cluster = Args::new(chunk).text("cluster")?;
                let confirmed = Args::new(chunk).flag("force", false)?.then_some(cluster);
                confirm(snapshot.cluster(), confirmed.flatten().as_deref(), &name)?;
                let alone = changes.may_be_alone(&name).await;
                alone.map_err(|error| Failure::new(chain(&error)))?;
                forgotten(changes.members, &name).await
            }
            "etcd_wait_alone" => {
                let alone = changes.wait_alone(&name).await;
                alone.map_err(|error| Failure::new(chain(&error)))?;
                format!("{name} is the only member of etcd, and serves")
            }
            "etcd_leader_moved_off" => match changes.move_leader_off(&name).await {
                Ok(Some(leader)) => {
                    let changes = Map::from_iter([("leader".to_owned(), json!(leader))]);
                    return Ok((
                        changes,
                        format!("{leader} leads etcd in the place of {name}"),
                    ));
                }
                Ok(None) => format!("{name} does not lead etcd, or no other member can"),
                Err(error) => return Err(refused(error)),
            },
            "etcd_quorum_allows" => {
                let gate = changes.allow_missing(&name).await.map_err(refused)?;
                let etcd = self.jobs.clusters().etcd();
                let gate = match gate {
                    // One or two members that do not run: a reboot may repair them.
                    Gate::Repair { .. } if !etcd.can_miss_one(snapshot.declaration()) => {
                        Gate::TooFew
                    }
                    // Steps do planned work. Only a highstate repairs.
                    gate => gate.planned(&name).map_err(refused)?,
                };
                return Ok((Map::new(), format!("{name}: {gate}")));
            }
            _ => {
                return Err(Failure::new(format!(
                    "{} cannot be a step of an orchestration",
                    chunk.function()
                )));
            }
        };
        Ok((Map::new(), comment))
    }

    /// Asks the members of an external etcd.
    pub(super) async fn etcd_answers(&self, chunk: &Chunk) -> Result<StepOutcome, Failure> {
        let snapshot = self.jobs.declarations().load().await.map_err(failed)?;
        let etcd = self.jobs.clusters().etcd();
        let asked = tokio::time::timeout(timeout(chunk)?, etcd.external_answers(&snapshot)).await;
        let asked = asked.map_err(|_| Failure::new("the external etcd does not answer in time"))?;
        Ok((Map::new(), asked.map_err(failed)?))
    }

    /// Defragments the members' databases.
    pub(super) async fn etcd_defragment(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let only = Args::new(chunk).text("node")?;
        if self.run.test {
            let which = only.as_deref().unwrap_or("each member");
            return Ok((Map::new(), format!("a real run defragments {which}")));
        }
        let work = self.work(chunk, index).await?;
        let changes = work.changes();
        let freed = match &only {
            Some(name) => changes.defragment_member(name).await,
            None if is_full(changes.members).await => changes.make_room().await,
            None => changes.defragment(above(chunk)).await,
        };
        let freed = freed.map_err(|error| Failure::new(chain(&error)))?;
        if freed.is_empty() {
            let comment = "nothing is free in the databases of etcd";
            return Ok((Map::new(), comment.to_owned()));
        }
        let lines: Vec<String> = freed.iter().map(ToString::to_string).collect();
        let changes = freed
            .into_iter()
            .map(|one| (one.name, json!("defragmented")));
        Ok((changes.collect(), lines.join("; ")))
    }

    /// Adds the learner and records the flags of its first start. The step has changes if the
    /// member has never started: then the host has no data of it.
    async fn add(
        &self,
        changes: &Changes<'_>,
        snapshot: &Snapshot,
        host: &MemberHost,
        bare: bool,
    ) -> Result<StepOutcome, Failure> {
        let joined = changes.add_learner(host, bare).await.map_err(refused)?;
        let (name, id) = (&host.name, joined.id);
        let node = snapshot.declaration().nodes.get(name.as_str());
        if let Some(member) = record(node.map(|node| &node.value), name, &joined) {
            // Before its first start: the flags are in the states compiled for the host.
            let recorded = self.jobs.declarations().record_member(name, member).await;
            recorded.map_err(failed)?;
        }
        if joined.has_started {
            let comment = format!("{name} is a member of etcd already (member {id})");
            return Ok((Map::new(), comment));
        }
        let changes = Map::from_iter([("member".to_owned(), json!(name))]);
        Ok((
            changes,
            format!("{name} is a learner of etcd (member {id})"),
        ))
    }
}

/// The record of a member for the document of its host; `None` for the founding member. If the
/// member has started, an existing record keeps the flags of its first start: other flags would
/// replace its pod. The document of a promoted master may lack the record or have an older one.
fn record(node: Option<&Node>, name: &str, joined: &Joined) -> Option<ResolvedMember> {
    let (cluster_id, member_id) = (
        joined.cluster.map(|id| format!("{id:x}")),
        Some(joined.id.to_string()),
    );
    let new = ResolvedMember {
        member: name.to_owned(),
        initial_cluster: joined.initial_cluster.clone(),
        cluster_id: cluster_id.clone(),
        member_id: member_id.clone(),
    };
    if !joined.has_started {
        return Some(new);
    }
    if node.is_some_and(Node::founds_etcd) {
        return None;
    }
    let there = node.and_then(|node| node.resolved.as_ref()?.etcd.clone());
    Some(there.map_or(new, |there| ResolvedMember {
        cluster_id: cluster_id.or_else(|| there.cluster_id.clone()),
        member_id,
        ..there
    }))
}

/// The free part of a database, in percent, above which it is defragmented.
fn above(chunk: &Chunk) -> u8 {
    let value = chunk.args.get("above");
    let value = value.and_then(|v| v.as_u64().or_else(|| v.as_str()?.parse().ok()));
    u8::try_from(value.unwrap_or(0)).unwrap_or(u8::MAX)
}

/// Refuses work that loses writes unless the operator has named the cluster.
fn confirm(cluster: &str, confirmed: Option<&str>, name: &str) -> Result<(), Failure> {
    let reason = match confirmed {
        Some(confirmed) if confirmed == cluster => return Ok(()),
        Some(other) => format!("--cluster {other} is not this cluster, which is {cluster}"),
        None => format!(
            "it takes --force --cluster {cluster}: writes that only other members have are lost"
        ),
    };
    Err(Failure::new(format!(
        "cannot make a cluster of {name} alone: {reason}"
    )))
}

/// The removed members, as text for an operator.
async fn forgotten(members: &dyn Members, name: &str) -> String {
    let known = Overview::take(members).await;
    let others = known.map_or_else(
        |_| Vec::new(),
        |overview| {
            let titles = overview.members.iter().map(|own| own.member.title());
            titles.filter(|title| title != name).collect()
        },
    );
    if others.is_empty() {
        return format!("{name} is alone already");
    }
    format!("etcd forgets {}", others.join(", "))
}

/// Returns whether a member has reached its quota. The step waits for a silent member later.
async fn is_full(members: &dyn Members) -> bool {
    let overview = Overview::take(members).await;
    overview.is_ok_and(|overview| overview.has_reached_quota())
}

fn refused(error: ChangeError) -> Failure {
    Failure::new(chain(&error))
}
