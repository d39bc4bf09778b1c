//! Target expressions over the accepted minions.

use std::collections::BTreeMap;

use halite_core::app::App;
use halite_core::declared::Declarations;
use halite_core::names::{MASTER, some_of};
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_proto::ids::MinionId;
use halite_states::target::{Candidate, TargetError, matches, needs};
use halite_store::{Facts, KeyState};
use serde_json::Value;

/// The minions that a request or a step names.
#[derive(Debug, Clone, Copy)]
pub struct Target<'a> {
    /// The kind of the expression; empty for `glob`.
    pub kind: &'a str,
    /// The expression.
    pub expression: &'a str,
    /// `true` if the target `master` is included when the expression is its name.
    pub also_master: bool,
}

impl<'a> Target<'a> {
    fn kind_or_glob(&self) -> &'a str {
        if self.kind.is_empty() {
            "glob"
        } else {
            self.kind
        }
    }
}

/// The accepted minions that a target matches, sorted.
///
/// # Errors
/// The expression is empty or malformed, or matches no accepted minion.
pub async fn resolve(
    app: &App,
    declarations: &Declarations,
    target: Target<'_>,
) -> Result<Vec<MinionId>, Refusal> {
    let found = matching(app, declarations, target).await?;
    if found.is_empty() {
        let accepted = accepted(app).await?;
        let known = if accepted.is_empty() {
            "none is accepted yet".into()
        } else {
            some_of(&accepted)
        };
        let (kind, expression) = (target.kind_or_glob(), target.expression);
        return Err(Refusal::not_found(format!(
            "no accepted minion matches {expression:?} ({kind}); known: {known}"
        )));
    }
    Ok(found)
}

/// The accepted minions that a target matches, like [`resolve`], but possibly none.
///
/// # Errors
/// The expression is empty or malformed.
pub async fn matching(
    app: &App,
    declarations: &Declarations,
    target: Target<'_>,
) -> Result<Vec<MinionId>, Refusal> {
    let (kind, expression) = (target.kind_or_glob(), target.expression.trim());
    if expression.is_empty() {
        return Err(Refusal::invalid(
            "the target is empty; '*' addresses every accepted minion",
        ));
    }
    let mistake = |error: TargetError| Refusal::invalid(chain(&error));
    let needs = needs(kind, expression).map_err(mistake)?;
    // Only an expression about the pillar needs the declared state; a ping must work without it.
    let snapshot = if needs.pillar {
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
    let grains = match needs.grains {
        true => all_grains(app).await?,
        false => BTreeMap::new(),
    };
    let mut found = Vec::new();
    for minion in &accepted {
        let pillar = snapshot
            .as_ref()
            .map_or(Value::Null, |snapshot| snapshot.pillar_or_empty(minion));
        let candidate = Candidate {
            id: minion,
            grains: grains.get(minion).unwrap_or(&Value::Null),
            pillar: &pillar,
        };
        if matches(kind, expression, &candidate).map_err(mistake)? {
            found.push(minion.clone());
        }
    }
    if target.also_master && names_master(kind, expression) {
        found.push(MASTER.clone());
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// Returns whether an expression is the name of the target `master`; a pattern never matches it.
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

/// The grains of a minion; an empty mapping if it has never connected.
///
/// # Errors
/// The store failed.
pub async fn grains(app: &App, minion: &MinionId) -> Result<Value, Refusal> {
    let facts = app.store.facts(minion).await?;
    Ok(facts
        .and_then(|facts| read_grains(&facts))
        .unwrap_or_else(|| Value::Object(serde_json::Map::new())))
}

/// The grains of all minions that have connected.
async fn all_grains(app: &App) -> Result<BTreeMap<MinionId, Value>, Refusal> {
    let all = app.store.all_facts().await?.into_iter();
    Ok(all
        .filter_map(|facts| Some((facts.minion.clone(), read_grains(&facts)?)))
        .collect())
}

fn read_grains(facts: &Facts) -> Option<Value> {
    let grains: Option<Value> = serde_json::from_str(&facts.grains_json).ok();
    grains.filter(Value::is_object)
}
