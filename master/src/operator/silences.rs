//! The silences of a job's hosts, derived from its events.

use std::collections::BTreeMap;
use std::time::Duration;

use halite_api::{EventData, EventTag};
use halite_core::clock::Steady;
use halite_core::due::NextReport;
use halite_proto::ids::MinionId;
use halite_proto::v1;

/// The times at which the hosts of a job were last heard from.
pub(super) struct Silences {
    /// The start of the watch: nothing is known of the time before it.
    since: Steady,
    hosts: BTreeMap<MinionId, Host>,
}

/// The state of a host.
#[derive(Default)]
struct Host {
    /// The time of its last event; `None` before the first.
    heard: Option<Steady>,
    /// The state after the last reported one; `None` before the host has started.
    next: Option<usize>,
    due: NextReport,
}

impl Silences {
    /// A job whose watch starts now.
    pub(super) fn since(since: Steady) -> Self {
        Self {
            since,
            hosts: BTreeMap::new(),
        }
    }

    /// Takes an event of the job; a host's event ends its silence.
    pub(super) fn hear(&mut self, event: &v1::Event, now: Steady) {
        let EventTag::Job {
            minion: Some(host), ..
        } = EventTag::parse(&event.tag)
        else {
            return;
        };
        let next = match EventData::read(&event.tag, &event.data_json) {
            EventData::PartStarted(_) => Some(0),
            EventData::StateProgress(progress) => usize::try_from(progress.index + 1).ok(),
            _ => None,
        };
        let host: &mut Host = self.hosts.entry(host).or_default();
        host.heard = Some(now);
        // States that are triggered at the end of a run report their original positions.
        host.next = host.next.max(next);
        host.due = NextReport::default();
    }

    /// The hosts among these whose silence is due for a report now. Each comes with the time since
    /// which the job waits for it.
    pub(super) fn due(&mut self, waited_for: &[(MinionId, Steady)], now: Steady) -> Vec<MinionId> {
        let mut due = Vec::new();
        for (minion, ready) in waited_for {
            let host = self.hosts.entry(minion.clone()).or_default();
            let heard = host.heard.unwrap_or(self.since).max(*ready);
            let silent = u64::try_from(now - heard).unwrap_or_default();
            if host.due.take(Duration::from_millis(silent)) {
                due.push(minion.clone());
            }
        }
        due
    }

    /// The state after the last one that a host reported; `None` before it has started.
    pub(super) fn next_state(&self, host: &MinionId) -> Option<usize> {
        self.hosts.get(host)?.next
    }
}

#[cfg(test)]
mod tests {
    use halite_core::names::minion;
    use serde_json::{Value, json};

    use super::*;

    const JOB: &str = "20261121000000123000";
    const HOST: &str = "worker-1";

    fn event(kind: &str, host: &str, data: &Value) -> v1::Event {
        v1::Event {
            tag: format!("halite/job/{JOB}/{kind}/{host}"),
            data_json: data.to_string(),
            ..v1::Event::default()
        }
    }

    fn progress(index: u64) -> Value {
        json!({"job": JOB, "minion": HOST, "index": index, "total": 9})
    }

    /// The seconds at which a host is reported that is ready at once and sends events at these
    /// seconds.
    fn reported(reports: &[i64]) -> Vec<i64> {
        let mut silences = Silences::since(Steady(1_000));
        let waited_for = [(minion(HOST), Steady(1_000))];
        let mut said = Vec::new();
        for second in 0..45 {
            let now = Steady(1_000 + second * 1_000);
            if reports.contains(&second) {
                silences.hear(&event("prog", HOST, &progress(0)), now);
            }
            if !silences.due(&waited_for, now).is_empty() {
                said.push(second);
            }
        }
        said
    }

    #[test]
    fn a_silent_host_is_reported_every_ten_seconds_and_one_that_reports_is_not() {
        assert_eq!(reported(&[]), [10, 20, 30, 40]);
        let every_nine: Vec<i64> = (0..45).step_by(9).collect();
        assert_eq!(reported(&every_nine), [0; 0]);
        // Its silence restarts with each event.
        assert_eq!(reported(&[15]), [10, 25, 35]);
    }

    #[test]
    fn a_silence_starts_with_the_hosts_turn_but_not_before_the_watch() {
        let mut silences = Silences::since(Steady(5_000));
        let (early, late) = (minion("a"), minion("b"));
        let both = [(early.clone(), Steady(1)), (late.clone(), Steady(9_000))];
        assert!(silences.due(&both, Steady(14_999)).is_empty());
        assert_eq!(silences.due(&both, Steady(15_000)), [early]);
        assert_eq!(silences.due(&both, Steady(19_000)), [late]);
    }

    #[test]
    fn the_state_after_the_last_report_is_known_and_does_not_go_back() {
        let mut silences = Silences::since(Steady(0));
        let host = minion(HOST);
        assert_eq!(silences.next_state(&host), None);
        let mut next = |kind: &str, index: u64| {
            let heard = event(kind, HOST, &progress(index));
            silences.hear(&heard, Steady(1));
            silences.next_state(&host)
        };
        assert_eq!(next("start", 0), Some(0));
        assert_eq!(next("prog", 4), Some(5));
        // A state that another one triggers at the end.
        assert_eq!(next("prog", 1), Some(5));
    }
}
