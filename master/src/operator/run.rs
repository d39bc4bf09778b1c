//! `ctl run`, `ctl apply` and `ctl highstate`: one function on a set of minions.

use std::sync::Arc;

use halite_core::app::App;
use halite_core::declared::Direction;
use halite_core::event_stream::EventStream;
use halite_core::names::some_of;
use halite_core::refusal::Refusal;
use halite_fleet::jobs::function::{Function, FunctionSite, RENEW};
use halite_fleet::jobs::target::Target;
use halite_fleet::jobs::{Jobs, NewJob, target};
use halite_orchestrate::outdated_minions::outdated;
use halite_proto::ids::MinionId;
use halite_proto::v1::RunRequest;
use serde_json::{Value, json};

use super::{minions_first, silent_hosts};

/// Makes the requested job; returns its events.
///
/// # Errors
/// The request is invalid, matches no minion, or does not compile; or the store failed.
pub async fn run(
    app: &App,
    jobs: &Arc<Jobs>,
    operator: &str,
    request: RunRequest,
) -> Result<EventStream, Refusal> {
    let function = Function::find(&request.function)?;
    let args = arguments(&request.args_json)?;
    let all_minions = request.target_kind.is_empty() || request.target_kind == "glob";
    let all_minions = all_minions && matches!(request.target.trim(), "" | "*");
    let mut order = Vec::new();
    let minions = if function.name == "state.highstate" && all_minions {
        // The only request that may omit its target: its effect on each host is declared.
        let groups = jobs
            .declarations()
            .load()
            .await?
            .safe_order(&target::accepted(app).await?);
        let minions = groups.iter().flatten().cloned().collect();
        if !request.test {
            order = groups;
        }
        minions
    } else {
        let target = Target {
            kind: &request.target_kind,
            expression: &request.target,
            also_master: function.place != FunctionSite::Minion || function.name == "test.ping",
        };
        let minions = target::resolve(app, jobs.declarations(), target).await?;
        if function.name == RENEW {
            let groups = jobs.declarations().load().await?.safe_order(&minions);
            let groups = hosts_only(groups);
            let declared: Vec<MinionId> = groups.iter().flatten().cloned().collect();
            if declared.is_empty() {
                return Err(Refusal::invalid(format!(
                    "cannot renew certificates of {}: no host of the target is declared",
                    some_of(&minions)
                )));
            }
            if !request.test {
                order = groups;
            }
            declared
        } else {
            minions
        }
    };
    let new = NewJob {
        function: request.function,
        args,
        test: request.test,
        operator: operator.to_owned(),
        target: if request.target.is_empty() {
            "*".into()
        } else {
            request.target
        },
        minions,
        order,
        bundle: None,
        direction: Direction::default(),
        timeout: request.timeout_seconds,
        request_id: Some(request.request_id).filter(|id| !id.is_empty()),
        job_id: None,
        is_shipped_step: false,
    };
    if function.name == "state.highstate" {
        let outdated = outdated(jobs, &new.minions).await?;
        if !outdated.is_empty() {
            return minions_first::run(jobs, new, outdated).await;
        }
    }
    let bus = app.events.subscribe();
    let job_id = jobs.create(new).await?;
    Ok(silent_hosts::follow(jobs, job_id, bus))
}

/// The groups without the target `master`, which has no certificates in its states.
fn hosts_only(mut groups: Vec<Vec<MinionId>>) -> Vec<Vec<MinionId>> {
    for group in &mut groups {
        group.retain(|host| !host.is_master());
    }
    groups.retain(|group| !group.is_empty());
    groups
}

fn arguments(text: &str) -> Result<Value, Refusal> {
    if text.trim().is_empty() {
        return Ok(json!({}));
    }
    match serde_json::from_str::<Value>(text) {
        Ok(value) if value.is_object() => Ok(value),
        _ => Err(Refusal::invalid(
            "the arguments of a function must be a JSON mapping",
        )),
    }
}
