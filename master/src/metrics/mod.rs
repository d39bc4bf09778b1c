//! The metrics for Prometheus: the master's own counters, and the state of the cluster as of the
//! last health round.
//!
//! A scrape reads values in memory. It queries neither the cluster nor the store, so it answers at
//! once whatever is broken. [`http`] serves it on the loopback port, [`tls`] to the declared
//! networks.

mod http;
mod round;
#[cfg(test)]
mod rules_tests;
#[cfg(test)]
mod tests;
mod tls;

use std::sync::Arc;

use halite_core::app::App;
use halite_core::metrics::Metrics;
use halite_errors::chain;
use prometheus_client::encoding::text;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use self::round::{flag, gauge, register_health, single};
use crate::health_rounds::LatestHealth;

pub use self::http::serve;
pub use self::tls::serve_tls;

/// The sources of the metrics.
pub struct Exposition {
    cluster: String,
    isolated: Box<dyn Fn() -> bool + Send + Sync>,
    metrics: Arc<Metrics>,
    commits: Histogram,
    health: watch::Receiver<LatestHealth>,
}

impl Exposition {
    /// The metrics of this master, and of its cluster as of the latest health round.
    #[must_use]
    pub fn new(app: &Arc<App>, health: watch::Receiver<LatestHealth>) -> Self {
        let own = Arc::clone(app);
        Self {
            cluster: app.config.cluster.clone(),
            isolated: Box::new(move || own.isolation.reason().is_some()),
            metrics: Arc::clone(&app.metrics),
            commits: app.store.commit_durations(),
            health,
        }
    }

    /// All metrics in the OpenMetrics text format.
    fn text(&self) -> String {
        let mut registry = Registry::default();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let labels = vec![("cluster", self.cluster.clone()), ("version", version)];
        gauge(
            &mut registry,
            "halite_master_info",
            "The acting master: always 1; a standby serves no metrics",
            [(labels, 1.0)],
        );
        single(
            &mut registry,
            "halite_master_isolated",
            "1 while the master starts nothing, because another host may have taken its place",
            flag((self.isolated)()),
        );
        self.metrics.register(&mut registry);
        registry.register(
            "halite_master_commit_duration_seconds",
            "Time until a change is on the master's disk and on each standby that follows",
            self.commits.clone(),
        );
        let latest = self.health.borrow().clone();
        register_health(&mut registry, &latest);
        let mut out = String::new();
        // Writing to a String fails only if a metric cannot be encoded; the metrics before it are
        // still correct.
        if let Err(error) = text::encode(&mut out, &registry) {
            tracing::error!(error = chain(&error), "cannot encode the metrics");
        }
        out
    }
}
