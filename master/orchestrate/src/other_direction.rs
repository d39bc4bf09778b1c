//! An upgrade and a return do not wait for each other: the steps of the second would be those of
//! hosts that the first has changed since.

use halite_core::refusal::Refusal;
use halite_states::shipped::UPGRADE;
use halite_store::Run;
use serde_json::{Value, json};

use super::BACK;

/// Refuses an upgrade, or a return, while an open run changes hosts in the other direction.
///
/// # Errors
/// There is one.
pub fn refuse_other_direction(open: &[Run], is_back: bool) -> Result<(), Refusal> {
    let returns = |run: &Run| {
        let pillar: Value = serde_json::from_str(&run.pillar_json).unwrap_or_default();
        pillar.get(BACK) == Some(&json!(true))
    };
    let other = |run: &&Run| run.sls == UPGRADE && !run.test && returns(run) != is_back;
    let Some(run) = open.iter().find(other) else {
        return Ok(());
    };
    let (what, runs) = match is_back {
        true => ("return to the previous bundle", "upgrade"),
        false => ("upgrade the cluster", "return to the previous bundle"),
    };
    let id = &run.id;
    Err(Refusal::conflict(format!(
        "cannot {what}: the {runs} is running ({id}); `ctl upgrade pause` ends it before its next host, \
         `ctl orchestrate cancel {id}` at once"
    )))
}
