//! Target expressions over the accepted minions.

use halite_errors::chain;
use halite_proto::ids::MinionId;
use halite_states::target::{Candidate, matches};
use serde_json::Value;

use crate::app::App;
use crate::declared::Declarations;
use crate::names::MASTER;
use crate::refusal::Refusal;
use crate::store::KeyState;

/// The accepted minions that an expression matches, sorted; with `also_master`, the target `master`
/// too, where the expression has its name.
///
/// # Errors
/// The expression is empty or malformed, or matches no accepted minion.
pub async fn resolve(
    app: &App,
    declarations: &Declarations,
    kind: &str,
    expression: &str,
    also_master: bool,
) -> Result<Vec<MinionId>, Refusal> {
    let kind = if kind.is_empty() { "glob" } else { kind };
    let expression = expression.trim();
    if expression.is_empty() {
        return Err(Refusal::invalid(
            "the target is empty; '*' addresses every accepted minion",
        ));
    }
    // Only an expression about the pillar needs the declared state; a ping must work without it.
    let snapshot = if matches!(kind, "compound") || kind.starts_with("pillar") {
        Some(declarations.load().await?)
    } else {
        None
    };
    // Without a bundle there is no pillar, and no minion would match.
    snapshot
        .as_ref()
        .map(|snapshot| snapshot.bundle())
        .transpose()?;
    let accepted = accepted(app).await?;
    let mut found = Vec::new();
    for minion in &accepted {
        let grains = grains(app, minion).await?;
        let pillar = snapshot
            .as_ref()
            .map_or(Value::Null, |snapshot| snapshot.pillar_or_empty(minion));
        let candidate = Candidate {
            id: minion,
            grains: &grains,
            pillar: &pillar,
        };
        if matches(kind, expression, &candidate).map_err(|error| Refusal::invalid(chain(&error)))? {
            found.push(minion.clone());
        }
    }
    if also_master && names_master(kind, expression) {
        found.push(MASTER.clone());
    }
    if found.is_empty() {
        let known = if accepted.is_empty() {
            "none is accepted yet".into()
        } else {
            accepted.join(", ")
        };
        return Err(Refusal::not_found(format!(
            "no accepted minion matches {expression:?} ({kind}); known: {known}"
        )));
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// True when an expression has the name of the target `master`; a pattern never matches it.
fn names_master(kind: &str, expression: &str) -> bool {
    match kind {
        "glob" => expression == MASTER.as_str(),
        "list" => expression
            .split(',')
            .any(|name| name.trim() == MASTER.as_str()),
        _ => false,
    }
}

/// Ids of the accepted minions, sorted.
///
/// # Errors
/// The store failed.
pub async fn accepted(app: &App) -> Result<Vec<MinionId>, Refusal> {
    let keys = app.store.keys().await?;
    Ok(keys
        .into_iter()
        .filter(|key| key.state == KeyState::Accepted)
        .map(|key| key.id)
        .collect())
}

/// The grains of a minion; an empty mapping when it has never connected.
///
/// # Errors
/// The store failed.
pub async fn grains(app: &App, minion: &MinionId) -> Result<Value, Refusal> {
    let facts = app.store.facts(minion).await?;
    Ok(facts
        .and_then(|facts| serde_json::from_str(&facts.grains_json).ok())
        .filter(Value::is_object)
        .unwrap_or_else(|| Value::Object(serde_json::Map::new())))
}
