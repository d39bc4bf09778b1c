//! The order of an upgrade, from the steps of its orchestration, with the times that these steps
//! usually take here.

use std::collections::BTreeMap;
use std::time::Duration;

use halite_api::UpgradeTurn;
use halite_names::MASTER;
use halite_states::args::Args;
use halite_states::low::Chunk;

/// The order of an upgrade, with its times.
#[derive(Debug, Default)]
pub(super) struct TimedTurns {
    pub(super) turns: Vec<UpgradeTurn>,
    /// The sum of all known times in seconds; `None` without any.
    pub(super) estimate: Option<u64>,
    pub(super) steps: usize,
    /// The steps without a known time.
    pub(super) unknown_steps: usize,
}

/// Reads the turns from the steps. A turn starts with `halite.upgrade_turn`, and that of the
/// Kubernetes objects with their highstate, without those that are created ahead.
pub(super) fn of(steps: &[Chunk], usual: &BTreeMap<String, Duration>) -> TimedTurns {
    let mut timed = TimedTurns {
        steps: steps.len(),
        ..TimedTurns::default()
    };
    let (mut total, mut times): (Option<Duration>, Vec<Option<Duration>>) = Default::default();
    for step in steps {
        let text = |name: &str| Args::new(step).text(name).ok().flatten();
        let starts = match step.fun.as_str() {
            "upgrade_turn" => Args::new(step).list("nodes").ok(),
            "state" if text("tgt").as_deref() == Some(MASTER) && is_highstate(step) => {
                Some(vec![MASTER.to_owned()])
            }
            _ => None,
        };
        if let Some(hosts) = starts {
            timed.turns.push(UpgradeTurn {
                // The tree names declared hosts, whose names are valid ids.
                hosts: hosts.iter().filter_map(|host| host.parse().ok()).collect(),
                ..UpgradeTurn::default()
            });
            times.push(None);
        }
        if step.fun == "drain"
            && let (Some(turn), Some(node)) = (timed.turns.last_mut(), text("node"))
        {
            turn.drained.extend(node.parse());
        }
        let Some(time) = usual.get(&step.id) else {
            timed.unknown_steps += 1;
            continue;
        };
        *total.get_or_insert_default() += *time;
        if let Some(own) = times.last_mut() {
            *own.get_or_insert_default() += *time;
        }
    }
    for (turn, time) in timed.turns.iter_mut().zip(times) {
        turn.estimate = time.map(seconds);
    }
    timed.estimate = total.map(seconds);
    timed
}

fn is_highstate(step: &Chunk) -> bool {
    Args::new(step).flag("highstate", false).unwrap_or_default()
}

/// Whole seconds, rounded up.
fn seconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis().div_ceil(1000)).unwrap_or(u64::MAX)
}
