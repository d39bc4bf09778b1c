//! `etcd.joined`

use halite_host_reports::etcd::LOG;
use halite_host_reports::etcd_log::Ids;
use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::etcd::{has_log, log_ids};
use super::image_name::stored;
use super::paths::{absolute, join};
use super::{Failure, Plan, failure};
use crate::host::Host;
use crate::host::effect::Effect;
use crate::host::founding::{FirstStart, JOINING_MARK};

/// Seconds without incoming data.
const QUIET: u64 = 15;

/// Compares the data directory, which is the name: a member that has started its log continues with
/// it, and the log of any other member is set aside. The container of an interrupted run has the
/// member's ports and is ended first.
pub(super) async fn joined(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let data = absolute(&chunk.name)?;
    let member = args.required("member")?;
    let is_interrupted = host.stat(JOINING_MARK).await?.is_some();
    let foreign = foreign(host, &args, &data).await?;
    if has_log(host, &join(&data, LOG)).await? && !is_interrupted && foreign.is_none() {
        return Ok(Plan::nothing(format!(
            "the log of the etcd member {member} is in {data}"
        )));
    }
    let first = FirstStart {
        image: stored(&args.required("image")?)?,
        command: args.list("command")?,
        data: data.clone(),
        reads: absolute(&args.required("reads")?)?,
        seconds: args.number("timeout")?.unwrap_or(QUIET),
    };
    let mut effects = Vec::new();
    let (mut aside, mut is_aside) = (String::new(), String::new());
    let found = match &foreign {
        Some(foreign) => {
            let (from, to) = (first.member(), foreign.name(&first.member(), host.now()));
            aside = format!(
                "; before that, the data of {}, which are not its own, would be set aside as {to}",
                foreign.ids
            );
            is_aside = format!(
                "; the data of {}, which are not its own, were set aside as {to}",
                foreign.ids
            );
            // The record is of those data: without it, a run that ends here starts over.
            let record = absolute(&args.required("record")?)?;
            if host.stat(&record).await?.is_some() {
                effects.push(Effect::Remove { path: record });
            }
            effects.push(Effect::Rename { from, to });
            format!("the data of {}", foreign.ids)
        }
        None if is_interrupted => "interrupted".to_owned(),
        None => "no data".to_owned(),
    };
    effects.push(Effect::JoinEtcd(first));
    Ok(Plan::change(
        Map::from_iter([(member.clone(), json!({"old": found, "new": "started once"}))]),
        effects,
        format!("etcd member {member} would be started once, to receive its data{aside}"),
        format!(
            "etcd member {member} was started once; it receives the rest at its next start{is_aside}"
        ),
    ))
}

/// The log of another member, in the place of this one's.
struct Foreign {
    ids: Ids,
    is_of_cluster: bool,
}

impl Foreign {
    /// The name under which it is kept: the reason and the time.
    fn name(&self, member: &str, now: i64) -> String {
        let whose = if self.is_of_cluster {
            "other-member"
        } else {
            "other-cluster"
        };
        format!("{member}.{whose}-{now}")
    }
}

/// Compares the ids of the log with the ids that the cluster gave this member. A log whose ids
/// cannot be read is not etcd's; etcd refuses it.
async fn foreign(host: &dyn Host, args: &Args<'_>, data: &str) -> Result<Option<Foreign>, Failure> {
    let (cluster, member) = (id(args, "cluster_id")?, id(args, "member_id")?);
    let Some(ids) = log_ids(host, data).await? else {
        return Ok(None);
    };
    let is_of_cluster = cluster.is_none_or(|cluster| cluster == ids.cluster);
    let is_own = is_of_cluster && member.is_none_or(|member| member == ids.member);
    Ok((!is_own).then_some(Foreign { ids, is_of_cluster }))
}

fn id(args: &Args<'_>, key: &str) -> Result<Option<u64>, Failure> {
    let Some(text) = args.text(key)? else {
        return Ok(None);
    };
    let id = u64::from_str_radix(&text, 16);
    id.map(Some).map_err(|_| {
        failure(format!(
            "etcd.joined: `{key}` must be an etcd id in hexadecimal"
        ))
    })
}
