//! `etcd.founded`

use halite_host_reports::etcd::LOG;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::args::Args;
use super::etcd::has_log;
use super::paths::{absolute, join, parents};
use super::{Failure, Plan, fail, static_pod};
use crate::host::Host;
use crate::host::effect::{Effect, Meta};

/// The flag of every member that has run; etcd then refuses to start without its data.
const EXISTING: &str = "--initial-cluster-state=existing";
/// The flag with which a member makes a new cluster, once.
const NEW: &str = "--initial-cluster-state=new";

/// Compares the record of the member. Without record and log, the manifest is written with the
/// other flag, and the pod waited for; the record is written last, so that a run that was
/// interrupted begins again.
pub(super) async fn founded(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let data = absolute(&args.required("data")?)?;
    let record = absolute(&chunk.name)?;
    let member = args.required("member")?;
    if host.stat(&record).await?.is_some() {
        return Ok(Plan::nothing(format!("the member is recorded in {record}")));
    }
    let mut effects = Vec::new();
    let found = if has_log(host, &join(&data, LOG)).await? {
        "not recorded"
    } else {
        effects.extend(found(host, chunk, &args).await?);
        "no cluster"
    };
    let root = Some("root".to_owned());
    let directory = Meta {
        mode: Some(0o755),
        ..Meta::default()
    };
    for effect in parents(host, &record, true, &directory).await? {
        // The wait makes some of them, too.
        if !effects.iter().any(|e| matches!((e, &effect), (Effect::Mkdir { path: a, .. }, Effect::Mkdir { path: b, .. }) if a == b)) {
            effects.push(effect);
        }
    }
    let content = format!(
        "{{\"member\":{},\"initialCluster\":{}}}\n",
        json!(member),
        json!(args.required("initial_cluster")?)
    );
    effects.push(Effect::Write {
        path: record.clone(),
        content: content.into_bytes(),
        meta: Meta {
            user: root.clone(),
            group: root,
            mode: Some(0o644),
        },
    });
    Ok(Plan::change(
        Map::from_iter([(member.clone(), json!({"old": found, "new": "recorded"}))]),
        effects,
        format!("etcd member {member} would be founded or recorded"),
        format!("etcd member {member} is recorded in {record}"),
    ))
}

/// The effects that found a cluster of this member.
async fn found(host: &dyn Host, chunk: &Chunk, args: &Args<'_>) -> Result<Vec<Effect>, Failure> {
    let pod = static_pod::described(chunk)?;
    let declared = args.required("contents")?;
    if declared.matches(EXISTING).count() != 1 {
        return fail(format!(
            "cannot found an etcd cluster: `contents` does not have `{EXISTING}` once; remove `initial-cluster-state` from \
             `etcd.extraArgs`"
        ));
    }
    let content = (declared.replace(EXISTING, NEW).trim_end().to_owned() + "\n").into_bytes();
    let root = Some("root".to_owned());
    let meta = Meta {
        user: root.clone(),
        group: root,
        mode: Some(0o600),
    };
    let mut effects = Vec::new();
    if host.read(&pod.manifest).await?.as_ref() != Some(&content) {
        let directory = Meta {
            mode: Some(0o700),
            ..meta.clone()
        };
        effects = parents(host, &pod.manifest, true, &directory).await?;
        effects.push(Effect::Write {
            path: pod.manifest.clone(),
            content,
            meta,
        });
    }
    effects.extend(static_pod::wait(host, &pod, None).await?);
    Ok(effects)
}
