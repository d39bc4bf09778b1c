//! `ctl status`: how the cluster is, from what is declared, who is connected, what the API says and what ran last.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::app::{App, Refusal};
use crate::clock::rfc3339;
use crate::jobs::Jobs;
use crate::kubernetes::node::overview;
use crate::store::{Facts, Key, RowState};
use crate::view::World;

/// The API is given this time; a status without it is still one.
const API_TIMEOUT: Duration = Duration::from_secs(3);
/// How far back the last highstates are looked for, in jobs.
const JOBS: u32 = 200;
/// How many runs are shown.
const RUNS: u32 = 5;

pub(super) async fn status(app: &App, jobs: &Jobs) -> Result<Value, Refusal> {
    let mut problems: Vec<String> = Vec::new();
    let world = match jobs.views().load() {
        Ok(world) => Some(world),
        Err(refusal) => {
            problems.push(refusal.message);
            None
        }
    };
    let (api, ready) = match &world {
        Some(world) => kubernetes(jobs, world).await,
        None => (json!({"answers": false}), Map::new()),
    };
    let keys: BTreeMap<String, Key> =
        app.store.keys().await?.into_iter().map(|key| (key.id.clone(), key)).collect();
    let facts: BTreeMap<String, Facts> =
        app.store.all_facts().await?.into_iter().map(|facts| (facts.minion.clone(), facts)).collect();
    let connected: BTreeSet<String> = app.hub.connected().into_iter().collect();
    let highstates = highstates(app).await?;
    let mut names: BTreeSet<&String> = keys.keys().collect();
    if let Some(world) = &world {
        names.extend(world.declaration().nodes.keys());
    }
    let node = |name: &String| {
        let declared = world.as_ref().and_then(|world| world.declaration().nodes.get(name));
        let facts = facts.get(name);
        json!({
            "name": name,
            "declared": declared.is_some(),
            "roles": declared.map(|node| node.roles.clone()),
            "address": declared.and_then(|node| node.control_plane()),
            "key": keys.get(name).map_or("none", |key| key.state.as_str()),
            "connected": connected.contains(name),
            "version": facts.map(|facts| facts.version.as_str()),
            "last_seen": facts.map(|facts| rfc3339(facts.last_seen)),
            "kubernetes": ready.get(name),
            "highstate": highstates.get(name),
        })
    };
    let runs = app.store.runs(RUNS).await?;
    let run = |run: &crate::store::Run| json!({"id": run.id, "sls": run.sls, "status": run.status.as_str(), "changed": rfc3339(run.changed)});
    Ok(json!({
        "cluster": app.config.cluster,
        "version": env!("CARGO_PKG_VERSION"),
        "master": app.config.endpoints(),
        "bundle": world.as_ref().map(|world| json!({
            "version": world.bundle().version, "kubernetes": world.bundle().kubernetes,
        })),
        "api": api,
        "nodes": names.into_iter().map(node).collect::<Vec<_>>(),
        "master_highstate": highstates.get(crate::jobs::MASTER),
        "runs": runs.iter().map(run).collect::<Vec<_>>(),
        "problems": problems,
    }))
}

async fn kubernetes(jobs: &Jobs, world: &World) -> (Value, Map<String, Value>) {
    let asked = async {
        let api = jobs.clusters().api(world).await.map_err(|refusal| refusal.message)?;
        overview(api.as_ref()).await.map_err(|error| error.to_string())
    };
    match tokio::time::timeout(API_TIMEOUT, asked).await {
        Ok(Ok(nodes)) => (json!({"answers": true}), nodes),
        Ok(Err(error)) => (json!({"answers": false, "error": error}), Map::new()),
        Err(_) => {
            let error = format!("the Kubernetes API did not answer within {} s", API_TIMEOUT.as_secs());
            (json!({"answers": false, "error": error}), Map::new())
        }
    }
}

/// Each minion's last highstate that was no test run.
async fn highstates(app: &App) -> Result<BTreeMap<String, Value>, Refusal> {
    let mut found = BTreeMap::new();
    for job in app.store.jobs(JOBS).await? {
        if job.test || job.function != "state.highstate" || job.minions.iter().all(|m| found.contains_key(m))
        {
            continue;
        }
        for row in app.store.rows(&job.jid).await? {
            let state = match (row.state, row.retcode) {
                (RowState::Returned, Some(0)) => "succeeded",
                (RowState::Returned, Some(2)) => "interrupted",
                (RowState::Returned, _) => "failed",
                (RowState::Lost, _) => "lost",
                _ => "running",
            };
            let ended = row.ended.map(rfc3339);
            found.entry(row.minion).or_insert_with(
                || json!({"jid": job.jid, "result": state, "ended": ended, "error": row.error}),
            );
        }
    }
    Ok(found)
}
