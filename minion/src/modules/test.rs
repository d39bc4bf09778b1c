//! `test.*`: states that only pretend, for trying out requisites.

use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use super::user::program;
use super::{Failure, Plan, fail};
use crate::host::Host;

fn pretended() -> Map<String, Value> {
    let change = json!({"old": "Unchanged", "new": "Something pretended to change"});
    Map::from_iter([("testing".to_owned(), change)])
}

/// The outcome, with Salt's comments.
fn outcome(chunk: &Chunk, changes: bool, succeeds: bool) -> Result<Plan, Failure> {
    let usual = if succeeds { "Success!" } else { "Failure!" };
    let comment = Args::new(chunk)
        .text("comment")?
        .unwrap_or_else(|| usual.to_owned());
    match (changes, succeeds) {
        (false, true) => Ok(Plan::nothing(comment)),
        (false, false) => fail(comment),
        (true, true) => Ok(Plan::change(
            pretended(),
            Vec::new(),
            "If we weren't testing, this would be successful with changes",
            comment,
        )),
        // The failure must happen during apply: in test mode this is a planned change.
        (true, false) => Ok(Plan::change(
            pretended(),
            vec![program(&["/bin/false"])],
            "If we weren't testing, this would be failed with changes",
            comment,
        )),
    }
}

pub(super) async fn succeed_without_changes(_: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    outcome(chunk, false, true)
}

pub(super) async fn succeed_with_changes(_: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    outcome(chunk, true, true)
}

pub(super) async fn fail_without_changes(_: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    outcome(chunk, false, false)
}

pub(super) async fn fail_with_changes(_: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    outcome(chunk, true, false)
}

pub(super) async fn configurable_test_state(_: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    let args = Args::new(chunk);
    outcome(
        chunk,
        args.flag("changes", true)?,
        args.flag("result", true)?,
    )
}

pub(super) async fn show_notification(_: &dyn Host, chunk: &Chunk) -> Result<Plan, Failure> {
    Ok(Plan::nothing(
        Args::new(chunk).text("text")?.unwrap_or_default(),
    ))
}

/// A watched state changed: only reports it, as in Salt.
pub(super) async fn watched(_: &dyn Host, _: &Chunk) -> Result<Plan, Failure> {
    let changes = Map::from_iter([("Requisites with changes".to_owned(), json!([]))]);
    Ok(Plan::change(
        changes,
        Vec::new(),
        "Watch statement fired.",
        "Watch statement fired.",
    ))
}
