//! `etcd.joined`

use halite_host_reports::etcd::LOG;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::args::Args;
use super::etcd::has_log;
use super::paths::{absolute, join};
use super::{Failure, Plan};
use crate::host::Host;
use crate::host::effect::Effect;
use crate::host::founding::{FirstStart, JOINING_MARK};

/// Seconds in which nothing arrives.
const QUIET: u64 = 15;

/// Compares the data directory, which is the name: a member that has begun its log goes on with it.
/// The container of an interrupted run has the member's ports and ends first.
pub(super) async fn joined(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let data = absolute(&chunk.name)?;
    let member = args.required("member")?;
    let is_interrupted = host.stat(JOINING_MARK).await?.is_some();
    if has_log(host, &join(&data, LOG)).await? && !is_interrupted {
        return Ok(Plan::nothing(format!(
            "the log of the etcd member {member} is in {data}"
        )));
    }
    let first = FirstStart {
        image: args.required("image")?,
        command: args.list("command")?,
        data: data.clone(),
        reads: absolute(&args.required("reads")?)?,
        seconds: args.number("timeout")?.unwrap_or(QUIET),
    };
    let found = if is_interrupted {
        "interrupted"
    } else {
        "no data"
    };
    Ok(Plan::change(
        Map::from_iter([(member.clone(), json!({"old": found, "new": "started once"}))]),
        vec![Effect::JoinEtcd(first)],
        format!("etcd member {member} would be started once, to receive its data"),
        format!(
            "etcd member {member} was started once; what it did not receive follows at its next start"
        ),
    ))
}
