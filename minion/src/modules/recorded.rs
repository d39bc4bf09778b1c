//! `etcd.recorded`

use halite_errors::chain;
use halite_host_reports::etcd::{EtcdRecord, LOG};
use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::etcd::{has_log, log_ids, record_of};
use super::paths::{absolute, join, meta_difference, parents};
use super::{Failure, Plan, failure};
use crate::host::Host;
use crate::host::effect::{Effect, Meta};
use crate::host::founding;

/// Compares the record of the member with its log. `etcd.data` has already refused a log of another
/// member.
pub(super) async fn recorded(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let path = absolute(&chunk.name)?;
    let data = absolute(&args.required("data")?)?;
    let member = args.required("member")?;
    if !has_log(host, &join(&data, LOG)).await? {
        return Ok(Plan::nothing(format!(
            "the etcd member {member} has no data yet"
        )));
    }
    let there = record_of(host, &path).await?;
    let known = there.as_ref().and_then(EtcdRecord::ids);
    let ids = log_ids(host, &data).await?.or(known);
    let record = EtcdRecord::new(&member, &args.required("initial_cluster")?, ids);
    let root = Some("root".to_owned());
    let meta = Meta {
        user: root.clone(),
        group: root,
        mode: Some(0o644),
    };
    let is_right = there.as_ref() == Some(&record)
        && match host.stat(&path).await? {
            Some(stat) => meta_difference(host, &stat, &meta).await?.0.is_empty(),
            None => false,
        };
    let mut effects = Vec::new();
    if !is_right {
        let directory = Meta {
            mode: Some(0o755),
            ..Meta::default()
        };
        effects.extend(parents(host, &path, true, &directory).await?);
        let text = record
            .text()
            .map_err(|e| failure(format!("cannot record {member}: {}", chain(&e))))?;
        effects.push(Effect::Write {
            path: path.clone(),
            content: text.into_bytes(),
            meta,
        });
    }
    // The record exists: from now on the data need no other proof that they were founded here.
    let scratch = founding::scratch(&data);
    if host.stat(&scratch).await?.is_some() {
        effects.push(Effect::Remove { path: scratch });
    }
    let found = match &there {
        _ if effects.is_empty() => {
            return Ok(Plan::nothing(format!("the member is recorded in {path}")));
        }
        None => "not recorded",
        Some(_) if is_right => "being founded",
        Some(there) if there.ids().is_none() => "recorded without ids",
        Some(_) => "recorded otherwise",
    };
    Ok(Plan::change(
        Map::from_iter([(member.clone(), json!({"old": found, "new": "recorded"}))]),
        effects,
        format!("etcd member {member} would be recorded"),
        format!("etcd member {member} is recorded in {path}"),
    ))
}
