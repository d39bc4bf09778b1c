//! The counters and histograms of the master's work.

use std::fmt;
use std::time::Duration;

use halite_states::low::StateReturn;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// The upper bounds of the durations of jobs, in seconds: from a ping to a highstate of many hosts.
const JOB_DURATIONS: [f64; 10] = [
    0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0,
];

/// Labels of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CallLabels {
    /// Service and method, for example `Operator/Run`.
    pub method: String,
    /// gRPC code, for example `Ok` or `PermissionDenied`.
    pub code: String,
}

/// Labels of a job that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct JobLabels {
    /// The function, for example `state.highstate`.
    pub function: &'static str,
    /// `succeeded` or `failed`.
    pub result: &'static str,
}

/// Labels of a state that a minion has applied.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct StateLabels {
    /// `unchanged`, `changed`, `failed`, `skipped` or, in a test run, `planned`.
    pub result: &'static str,
}

/// The results of states.
const RESULTS: [&str; 5] = ["unchanged", "changed", "failed", "skipped", "planned"];

type JobDurations = Family<JobLabels, Histogram, fn() -> Histogram>;

/// All of them. Cloned handles count into the same values.
#[derive(Clone)]
pub struct Metrics {
    /// Calls that reached a service.
    pub calls: Family<CallLabels, Counter>,
    /// Handshakes and calls that were refused before a service saw them.
    pub refusals: Counter,
    /// Minions with an open stream.
    pub connected: Gauge,
    /// Certificates signed.
    pub signed: Counter,
    /// Jobs made.
    pub jobs: Counter,
    /// Returns of minions stored.
    pub returns: Counter,
    states: Family<StateLabels, Counter>,
    job_durations: JobDurations,
}

impl Default for Metrics {
    fn default() -> Self {
        let durations: fn() -> Histogram = || Histogram::new(JOB_DURATIONS);
        let states: Family<StateLabels, Counter> = Family::default();
        // An increase is only seen from a value before it, so each result begins at 0.
        for result in RESULTS {
            states.get_or_create(&StateLabels { result }).inc_by(0);
        }
        Self {
            calls: Family::default(),
            refusals: Counter::default(),
            connected: Gauge::default(),
            signed: Counter::default(),
            jobs: Counter::default(),
            returns: Counter::default(),
            states,
            job_durations: Family::new_with_constructor(durations),
        }
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// The result of a state, as a label.
fn result(state: &StateReturn) -> &'static str {
    match state.result {
        Some(false) => "failed",
        _ if !state.ran => "skipped",
        None => "planned",
        Some(true) if state.changes.is_empty() => "unchanged",
        Some(true) => "changed",
    }
}

impl Metrics {
    /// Counts a state whose result a minion has reported.
    pub fn count_state(&self, state: &StateReturn) {
        let labels = StateLabels {
            result: result(state),
        };
        self.states.get_or_create(&labels).inc();
    }

    /// Records the duration of a job that has ended.
    pub fn count_job(&self, function: &'static str, succeeded: bool, took: Duration) {
        let labels = JobLabels {
            function,
            result: if succeeded { "succeeded" } else { "failed" },
        };
        let durations = self.job_durations.get_or_create(&labels);
        durations.observe(took.as_secs_f64());
    }

    /// Adds all of them to a registry, with names that begin with `halite_master_`.
    pub fn register(&self, registry: &mut Registry) {
        let own = registry.sub_registry_with_prefix("halite_master");
        own.register("calls", "Calls that reached a service", self.calls.clone());
        own.register(
            "refusals",
            "Handshakes and calls refused before a service saw them",
            self.refusals.clone(),
        );
        own.register(
            "connected_minions",
            "Minions with an open stream",
            self.connected.clone(),
        );
        own.register(
            "signed_certificates",
            "Certificates signed",
            self.signed.clone(),
        );
        own.register("jobs", "Jobs made", self.jobs.clone());
        own.register("returns", "Returns of minions stored", self.returns.clone());
        own.register(
            "states",
            "States that minions reported while they applied them, by result: unchanged, changed, failed, skipped, planned",
            self.states.clone(),
        );
        own.register(
            "job_duration_seconds",
            "Time from the creation of a job to its end",
            self.job_durations.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text;
    use serde_json::{Map, json};

    use super::*;

    fn state(result: Option<bool>, ran: bool, changes: bool) -> StateReturn {
        let changes = changes.then(|| ("mode".to_owned(), json!("0644")));
        StateReturn {
            index: 0,
            id: "a".to_owned(),
            name: "a".to_owned(),
            function: "file.managed".to_owned(),
            sls: "a".to_owned(),
            result,
            changes: changes.into_iter().collect::<Map<_, _>>(),
            comment: String::new(),
            start_time: String::new(),
            duration: 0.0,
            run_num: 0,
            ran,
            fail_run: true,
        }
    }

    #[test]
    fn each_state_counts_by_its_result() {
        for (given, wanted) in [
            (state(Some(true), true, false), "unchanged"),
            (state(Some(true), true, true), "changed"),
            (state(Some(false), true, true), "failed"),
            (state(Some(false), false, false), "failed"),
            (state(Some(true), false, false), "skipped"),
            (state(None, true, true), "planned"),
        ] {
            assert_eq!(result(&given), wanted);
            assert!(RESULTS.contains(&wanted));
        }
    }

    #[test]
    fn counted_work_is_displayed() {
        let metrics = Metrics::default();
        let call = CallLabels {
            method: "Operator/Run".into(),
            code: "Ok".into(),
        };
        metrics.calls.get_or_create(&call).inc();
        metrics.connected.set(2);
        metrics.count_state(&state(Some(false), true, false));
        metrics.count_job("state.highstate", true, Duration::from_secs(20));
        let (mut registry, mut text) = (Registry::default(), String::new());
        metrics.register(&mut registry);
        text::encode(&mut text, &registry).unwrap();
        for line in [
            "halite_master_calls_total{method=\"Operator/Run\",code=\"Ok\"} 1",
            "halite_master_connected_minions 2",
            "halite_master_states_total{result=\"failed\"} 1",
            "halite_master_states_total{result=\"planned\"} 0",
            "halite_master_job_duration_seconds_bucket{le=\"15.0\",function=\"state.highstate\",result=\"succeeded\"} 0",
            "halite_master_job_duration_seconds_bucket{le=\"60.0\",function=\"state.highstate\",result=\"succeeded\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
