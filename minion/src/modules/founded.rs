//! `etcd.founded`

use halite_host_reports::etcd::LOG;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::args::Args;
use super::etcd::has_log;
use super::paths::{absolute, join, parents};
use super::{Failure, Plan, failure};
use crate::host::Host;
use crate::host::effect::{Effect, Meta};
use crate::host::founding::FirstStart;

/// The flag of every member that has run; etcd then refuses to start without its data.
const EXISTING: &str = "--initial-cluster-state=existing";
/// The flag with which a member makes a new cluster, once.
const NEW: &str = "--initial-cluster-state=new";
/// Seconds until etcd serves.
const LIMIT: u64 = 60;

/// Compares the record of the member. Without record and log, etcd is started once with the other
/// flag; the record is written last, so that a run that was interrupted begins again.
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
        effects.push(Effect::FoundEtcd(founding(&args, &data)?));
        "no cluster"
    };
    let root = Some("root".to_owned());
    let directory = Meta {
        mode: Some(0o755),
        ..Meta::default()
    };
    effects.extend(parents(host, &record, true, &directory).await?);
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

/// The first start of the member.
fn founding(args: &Args<'_>, data: &str) -> Result<FirstStart, Failure> {
    let mut command = args.list("command")?;
    let flags: Vec<_> = (command.iter_mut())
        .filter(|argument| *argument == EXISTING)
        .collect();
    let [flag] = flags.try_into().map_err(|_| {
        failure(format!(
            "cannot found an etcd cluster: `command` does not have `{EXISTING}` once; remove `initial-cluster-state` from \
             `etcd.extraArgs`"
        ))
    })?;
    NEW.clone_into(flag);
    Ok(FirstStart {
        image: args.required("image")?,
        command,
        data: data.to_owned(),
        reads: absolute(&args.required("reads")?)?,
        seconds: args.number("timeout")?.unwrap_or(LIMIT),
    })
}
