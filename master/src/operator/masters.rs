//! The masters in `ctl status` and `ctl health`: this one, its epoch, its standbys and their lag.

use std::collections::BTreeMap;

use halite_api::{
    FailedHandOver, HandOver, HandOverPhase, Masters, StandbyHost, StandbyState, Time,
};
use halite_core::app::App;
use halite_core::clock::rfc3339;
use halite_core::roster::{FollowState, SeenStandby};
use halite_pillar::declaration::Declaration;
use halite_standby::hand_over;
use halite_store::Millis;

/// The time for which a failed hand-over is shown.
const FAILED: Millis = 24 * 60 * 60 * 1000;
/// The time in which standbys connect to a master that has started.
const SETTLED: Millis = 60_000;

/// The names of the declared standbys.
#[must_use]
pub fn declared(declaration: &Declaration) -> Vec<String> {
    let standbys = declaration.standbys().into_iter();
    standbys.map(|node| node.metadata.name.clone()).collect()
}

/// The masters: this one's host, the epoch, each standby, and the time since which none follows.
pub fn masters(app: &App, declaration: Option<&Declaration>) -> Masters {
    let seen = app.standbys.seen();
    let names = declaration.map(declared);
    let names = names.unwrap_or_else(|| seen.keys().cloned().collect());
    let standby = |name: &String| match seen.get(name) {
        Some(seen) => StandbyHost {
            host: name.clone(),
            state: seen.state.as_str().into(),
            since: Some(Time::from_millis(seen.since)),
            lag: Some(seen.lag),
            reason: Some(seen.reason.clone()).filter(|reason| !reason.is_empty()),
        },
        None => StandbyHost {
            host: name.clone(),
            state: StandbyState::Missing,
            since: None,
            lag: None,
            reason: None,
        },
    };
    let alone = app.standbys.alone_since().filter(|_| !names.is_empty());
    let node = declaration.and_then(Declaration::master_node);
    let note = hand_over::read(&app.config).ok().flatten();
    Masters {
        host: node.map(|node| node.metadata.name.to_string()),
        epoch: app.store.epoch(),
        standbys: names.iter().map(standby).collect(),
        alone_since: alone.map(Time::from_millis),
        isolated: app.isolation.reason(),
        hand_over: note.and_then(|note| failed_move(&note, &names, app.clock.now())),
    }
}

/// The last hand-over from this host, if it failed, for a day and while it can be retried.
fn failed_move(note: &HandOver, standbys: &[String], now: Millis) -> Option<FailedHandOver> {
    let is_recent = now - note.since.as_millis() < FAILED;
    let is_news = is_recent && note.phase == HandOverPhase::Failed && standbys.contains(&note.to);
    is_news.then(|| FailedHandOver {
        from: note.from.clone(),
        to: note.to.clone(),
        leaves: note.leaves,
        since: note.since,
        reason: note.reason.clone(),
    })
}

/// The problems with the standbys. A standby that has not connected counts as missing from a minute
/// after the start of the master.
pub fn problems(app: &App, declaration: &Declaration) -> Vec<String> {
    let names = declared(declaration);
    let is_settled = app.clock.now() - app.standbys.started() >= SETTLED;
    let alone = app.standbys.alone_since();
    let isolated = app.isolation.reason();
    let isolated = isolated.map(|reason| format!("the master starts no new work: {reason}"));
    let faults = faults(&names, &app.standbys.seen(), alone, is_settled);
    isolated.into_iter().chain(faults).collect()
}

fn faults(
    names: &[String],
    seen: &BTreeMap<String, SeenStandby>,
    alone_since: Option<Millis>,
    is_settled: bool,
) -> Vec<String> {
    let mut problems = Vec::new();
    let has_followed = names.iter().any(|name| seen.contains_key(name));
    let counts = has_followed || is_settled && !names.is_empty();
    if let Some(since) = alone_since.filter(|_| counts) {
        problems.push(format!(
            "the master has had no standby since {}: its later changes are on no other host",
            rfc3339(since)
        ));
    }
    for name in names {
        match seen.get(name) {
            Some(seen) if seen.state == FollowState::Gone => problems.push(format!(
                "the standby {name} has been gone since {}: {}",
                rfc3339(seen.since),
                seen.reason
            )),
            None if is_settled => problems.push(format!(
                "the standby {name} has not connected since the master started"
            )),
            Some(_) | None => {}
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_over_that_failed_is_shown_for_a_day_and_while_its_standby_is_one() {
        let note = |phase: HandOverPhase| HandOver {
            from: "cp-1".to_owned(),
            to: "cp-2".to_owned(),
            leaves: false,
            epoch: 2,
            masters: Vec::new(),
            hosts: Vec::new(),
            since: Time::from_millis(1_000),
            phase,
            reason: "it was off".to_owned(),
        };
        let failed = note(HandOverPhase::Failed);
        let standbys = ["cp-2".to_owned()];
        let shown = failed_move(&failed, &standbys, FAILED).unwrap();
        assert_eq!(shown.since, Time::from_millis(1_000));
        assert_eq!(shown.reason, "it was off");
        assert_eq!(failed_move(&failed, &standbys, FAILED + 1_000), None);
        assert_eq!(failed_move(&failed, &["cp-3".to_owned()], FAILED), None);
        for phase in [HandOverPhase::Offered, HandOverPhase::Decided] {
            assert_eq!(failed_move(&note(phase), &standbys, FAILED), None);
        }
    }

    #[test]
    fn a_standby_that_never_came_is_a_problem_once_the_master_is_up_for_a_while() {
        let names = ["cp-2".to_owned(), "cp-3".to_owned()];
        let none = BTreeMap::new();
        assert_eq!(faults(&names, &none, Some(0), false), Vec::<String>::new());
        assert_eq!(faults(&[], &none, Some(0), true), Vec::<String>::new());
        let found = faults(&names, &none, Some(0), true);
        assert_eq!(found.len(), 3, "{found:?}");
        assert!(found[0].contains("has had no standby since"), "{found:?}");
        assert!(
            found[1].contains("cp-2 has not connected since"),
            "{found:?}"
        );
        let seen = |state: FollowState| SeenStandby {
            state,
            since: 0,
            lag: 0,
            reason: "cut off".to_owned(),
        };
        let seen = BTreeMap::from([
            ("cp-2".to_owned(), seen(FollowState::Following)),
            ("cp-3".to_owned(), seen(FollowState::Gone)),
        ]);
        let found = faults(&names, &seen, None, true);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("cp-3 has been gone"), "{found:?}");
    }
}
