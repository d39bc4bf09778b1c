//! Space in etcd: a member that has reached its quota takes no more writes, so the API can change
//! nothing. The master compacts etcd, defragments the members and clears the alarm by itself, with
//! the orchestration of `ctl etcd defrag`, which an operator can watch.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use halite_core::clock::Steady;
use halite_core::refusal::Refusal;
use halite_etcd::Overview;
use halite_fleet::jobs::Jobs;
use halite_orchestrate::Orchestrator;
use halite_proto::v1::OrchestrateRequest;
use halite_states::shipped::DEFRAG_ETCD;
use halite_store::Millis;
use serde_json::Value;

use super::history;

/// The interval between two checks of the alarms.
const LOOK: Duration = Duration::from_secs(10);
/// The timeout of the members' answers.
const LIMIT: Duration = Duration::from_secs(5);
/// The time after a trial until the next one: live data may fill the quota.
const AGAIN: Millis = 10 * 60 * 1000;

/// The part of the upkeep that frees space.
pub struct Room {
    jobs: Arc<Jobs>,
    orchestrator: Arc<Orchestrator>,
}

impl Room {
    /// Freeing space with the orchestrations of this master.
    #[must_use]
    pub fn new(jobs: Arc<Jobs>, orchestrator: Arc<Orchestrator>) -> Self {
        Self { jobs, orchestrator }
    }

    /// Checks the alarms repeatedly; never returns.
    pub async fn run(&self) {
        let mut last = None;
        loop {
            tokio::time::sleep(LOOK).await;
            if let Err(error) = self.look(&mut last).await {
                tracing::error!(%error, "cannot free space in etcd; trying again");
            }
        }
    }

    /// One check, and a trial to its end if a quota is reached. `last` is the time of the last
    /// trial.
    async fn look(&self, last: &mut Option<Steady>) -> Result<(), Refusal> {
        let app = self.jobs.app();
        let now = app.clock.steady();
        if last.is_some_and(|last| now - last < AGAIN) || !self.is_full().await? {
            return Ok(());
        }
        *last = Some(now);
        history::room_begins(app).await?;
        let request = OrchestrateRequest {
            sls: DEFRAG_ETCD.to_owned(),
            ..OrchestrateRequest::default()
        };
        let outcome = self.make(request).await;
        let outcome = outcome.unwrap_or_else(|refusal| format!("refused: {}", refusal.message));
        history::room_ends(app, outcome).await
    }

    /// Frees space, to the end; returns the outcome.
    async fn make(&self, request: OrchestrateRequest) -> Result<String, Refusal> {
        // It joins a run that an operator has started.
        let mut events = self.orchestrator.start(history::OPERATOR, request).await?;
        let mut outcome = "its end was not seen".to_owned();
        while let Some(event) = events.next().await {
            let event = event?;
            if event.last {
                outcome = ending(event.retcode, &event.data_json);
            }
        }
        Ok(outcome)
    }

    /// Returns whether a member has reached its quota. A silent member is asked again at the next
    /// check.
    async fn is_full(&self) -> Result<bool, Refusal> {
        let snapshot = self.jobs.declarations().in_force().await?;
        let mut nodes = snapshot.declaration().nodes.values();
        if !nodes.any(|node| node.is_member()) {
            return Ok(false);
        }
        let members = self.jobs.clusters().etcd().members(&snapshot).await?;
        let taken = tokio::time::timeout(LIMIT, Overview::take(members.as_ref())).await;
        let Ok(Ok(overview)) = taken else {
            return Ok(false);
        };
        Ok(overview.has_reached_quota())
    }
}

/// The outcome of a run, by its last event: `ok`, or the errors of its steps.
fn ending(retcode: i32, data_json: &str) -> String {
    if retcode == 0 {
        return "ok".to_owned();
    }
    let summary: Value = serde_json::from_str(data_json).unwrap_or_default();
    let steps = summary["steps"].as_array().into_iter().flatten();
    let errors: Vec<&str> = steps
        .filter_map(|step| step["detail"]["error"].as_str())
        .collect();
    match errors.is_empty() {
        true => "failed".to_owned(),
        false => errors.join("; "),
    }
}

#[cfg(test)]
mod tests {
    use halite_etcd::fake::{Database, FakeCluster, QUOTA};
    use halite_store::AuditFilter;

    use super::*;
    use crate::backend::fixture::{Life, Site};

    const TREE: &[(&str, &str)] = &[
        ("top.sls", "base:\n  '*': []\n"),
        (
            "halite/orchestrate/defrag_etcd.sls",
            include_str!("../../../states/tree/halite/orchestrate/defrag_etcd.sls"),
        ),
    ];
    const MIB: u64 = 1 << 20;

    fn full(data: u64) -> Database {
        Database {
            size: QUOTA + MIB,
            in_use: QUOTA,
            data,
        }
    }

    /// A site whose first host has a member in this cluster.
    fn site(cluster: &Arc<FakeCluster>) -> Site {
        let mut site = Site::new(TREE);
        let text = "apiVersion: halite/v1\nkind: Node\nmetadata: {name: bootstrap-1}\n\
            roles: [bootstrap, registry, etcd, control-plane]\nresolved:\n  controlPlane: 10.10.0.11\n  \
            workloadPlane: 10.10.0.11\n  etcd:\n    member: bootstrap-1\n    \
            initialCluster: bootstrap-1=https://10.10.0.11:2380\n";
        std::fs::write(site.path().join("etc/nodes/bootstrap-1.yaml"), text).unwrap();
        let members: Arc<FakeCluster> = Arc::clone(cluster);
        site.etcd = Some((members, Duration::ZERO));
        site
    }

    /// Checks this many times.
    fn look(life: &Life, times: usize) {
        let room = Room::new(
            Arc::clone(life.backend.jobs()),
            Orchestrator::new(Arc::clone(life.backend.jobs())),
        );
        let mut last = None;
        for _ in 0..times {
            life.runtime.block_on(room.look(&mut last)).unwrap();
        }
    }

    /// The lines of the audit log about the upkeep, the oldest first.
    fn audit(life: &Life) -> Vec<String> {
        let filter = AuditFilter {
            method: Some("upkeep".to_owned()),
            ..AuditFilter::newest(50)
        };
        let lines = life.runtime.block_on(life.store.audit(&filter)).unwrap();
        let lines = lines.into_iter().rev();
        lines
            .map(|line| format!("{}: {}", line.what, line.outcome))
            .collect()
    }

    #[test]
    fn a_reached_quota_is_resolved_without_an_operator() {
        let cluster = Arc::new(FakeCluster::new(&["bootstrap-1"]));
        let site = site(&cluster);
        let life = site.live();
        look(&life, 1);
        assert!(cluster.changes().is_empty() && audit(&life).is_empty());
        cluster.set_database("bootstrap-1", full(20 * MIB));
        look(&life, 2);
        let done = ["compact", "defragment bootstrap-1", "disarm bootstrap-1"];
        assert_eq!(cluster.changes(), done);
        assert_eq!(audit(&life), ["room in etcd: begins", "room in etcd: ok"]);
    }

    #[test]
    fn a_trial_that_failed_is_not_repeated_at_once() {
        let cluster = Arc::new(FakeCluster::new(&["bootstrap-1"]));
        let site = site(&cluster);
        let life = site.live();
        cluster.set_database("bootstrap-1", full(20 * MIB));
        cluster.set_corrupt("bootstrap-1");
        look(&life, 3);
        let audit = audit(&life);
        let [begins, failed] = audit.as_slice() else {
            panic!("{audit:?}");
        };
        assert_eq!(begins, "room in etcd: begins");
        assert!(failed.contains("CORRUPT"), "{failed}");
        assert_eq!(cluster.changes(), [""; 0]);
    }

    #[test]
    fn a_trial_that_is_refused_has_an_outcome_too() {
        let cluster = Arc::new(FakeCluster::new(&["bootstrap-1"]));
        let site = site(&cluster);
        let sls = "bundle/states/halite/orchestrate/defrag_etcd.sls";
        std::fs::remove_file(site.path().join(sls)).unwrap();
        let life = site.live();
        cluster.set_database("bootstrap-1", full(20 * MIB));
        look(&life, 1);
        let audit = audit(&life);
        let [begins, refused] = audit.as_slice() else {
            panic!("{audit:?}");
        };
        assert_eq!(begins, "room in etcd: begins");
        assert!(refused.starts_with("room in etcd: refused: "), "{refused}");
    }
}
