//! `etcd.founded`

use halite_host_reports::etcd::LOG;
use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, json};

use super::etcd::{accepting, has_log, whose};
use super::image_name::stored;
use super::paths::{absolute, join};
use super::{Failure, Plan, fail, failure};
use crate::host::Host;
use crate::host::effect::Effect;
use crate::host::founding::FirstStart;

/// The flag of every member that has run; etcd then refuses to start without its data.
const EXISTING: &str = "--initial-cluster-state=existing";
/// The flag with which a member founds a new cluster, once.
const NEW: &str = "--initial-cluster-state=new";
/// Seconds until etcd serves.
const LIMIT: u64 = 60;

/// Starts etcd once with the other flag if there is no record and no log. `etcd.recorded` writes
/// the record; until then the directory in which the data were made proves that they are the host's
/// own, so that an interrupted run continues. Data without such proof may be the last of another
/// cluster: they are refused.
pub(super) async fn founded(host: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    let data = absolute(&args.required("data")?)?;
    let record = absolute(&chunk.name)?;
    let member = args.required("member")?;
    if host.stat(&record).await?.is_some() {
        return Ok(Plan::nothing(format!("the member is recorded in {record}")));
    }
    let first = founding(&args, &data)?;
    if has_log(host, &join(&data, LOG)).await? {
        let mut signs = vec![first.scratch()];
        signs.extend(args.list("started_by")?);
        for sign in &signs {
            if host.stat(&absolute(sign)?).await?.is_some() {
                return Ok(Plan::nothing(format!(
                    "the etcd member {member} was founded in {data}"
                )));
            }
        }
        let place = first.member();
        return fail(format!(
            "cannot found an etcd cluster with the member {member}: {data} has {}, and nothing on this host says that they are \
             its own, so nothing was changed; if they are not, set them aside with `mv -T {place} {place}.other`, and if they \
             are, {}; then run the command again",
            whose(host, &data).await?,
            accepting(&member, &record),
        ));
    }
    Ok(Plan::change(
        Map::from_iter([(
            member.clone(),
            json!({"old": "no cluster", "new": "founded"}),
        )]),
        vec![Effect::FoundEtcd(first)],
        format!("etcd member {member} would be founded"),
        format!("etcd member {member} is founded in {data}"),
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
        image: stored(&args.required("image")?)?,
        command,
        data: data.to_owned(),
        reads: absolute(&args.required("reads")?)?,
        seconds: args.number("timeout")?.unwrap_or(LIMIT),
    })
}
