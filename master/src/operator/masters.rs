//! The masters in `ctl status` and `ctl health`: this one, its epoch, its standbys and their lag.

use halite_pillar::declaration::Declaration;
use serde_json::{Value, json};

use crate::app::App;
use crate::clock::rfc3339;
use crate::standby::roster::State;

/// The names of the declared standbys.
#[must_use]
pub fn declared(declaration: &Declaration) -> Vec<String> {
    let standbys = declaration.standbys().into_iter();
    standbys.map(|node| node.metadata.name.clone()).collect()
}

/// The masters: the epoch, each standby, and since when none follows.
pub fn json(app: &App, declaration: Option<&Declaration>) -> Value {
    let seen = app.standbys.seen();
    let names = declaration.map(declared);
    let names = names.unwrap_or_else(|| seen.keys().cloned().collect());
    let standby = |name: &String| match seen.get(name) {
        Some(seen) => json!({
            "name": name,
            "state": seen.state.as_str(),
            "since": rfc3339(seen.since),
            "lag": seen.lag,
            "reason": seen.reason,
        }),
        None => json!({"name": name, "state": "missing"}),
    };
    let alone = app.standbys.alone_since().filter(|_| !names.is_empty());
    json!({
        "epoch": app.store.epoch(),
        "standbys": names.iter().map(standby).collect::<Vec<_>>(),
        "alone_since": alone.map(rfc3339),
    })
}

/// What is wrong with the standbys. A declared one that has never followed this master is none: the
/// state tree does not set them up yet.
pub fn problems(app: &App, declaration: &Declaration) -> Vec<String> {
    let seen = app.standbys.seen();
    let names = declared(declaration);
    let mut problems = Vec::new();
    let has_followed = names.iter().any(|name| seen.contains_key(name));
    if let Some(since) = app.standbys.alone_since().filter(|_| has_followed) {
        problems.push(format!(
            "the master is alone since {}: what it does from then on is on no other host",
            rfc3339(since)
        ));
    }
    for name in &names {
        if let Some(seen) = seen.get(name).filter(|seen| seen.state == State::Gone) {
            problems.push(format!(
                "the standby {name} is gone since {}: {}",
                rfc3339(seen.since),
                seen.reason
            ));
        }
    }
    problems
}
