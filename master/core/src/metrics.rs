//! The metrics of the master, in OpenMetrics text on a local port.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

/// Labels of a call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CallLabels {
    /// Service and method, for example `Operator/Run`.
    pub method: String,
    /// gRPC code, for example `ok` or `permission_denied`.
    pub code: String,
}

/// All metrics. Cloned handles count into the same values.
#[derive(Debug, Clone, Default)]
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
}

impl Metrics {
    /// All metrics in the OpenMetrics text format.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut registry = Registry::with_prefix("halite_master");
        registry.register("calls", "Calls that reached a service", self.calls.clone());
        registry.register(
            "refusals",
            "Handshakes and calls refused before a service saw them",
            self.refusals.clone(),
        );
        registry.register(
            "connected_minions",
            "Minions with an open stream",
            self.connected.clone(),
        );
        registry.register(
            "signed_certificates",
            "Certificates signed",
            self.signed.clone(),
        );
        registry.register("jobs", "Jobs made", self.jobs.clone());
        registry.register("returns", "Returns of minions stored", self.returns.clone());
        let mut out = String::new();
        // Writing to a String fails only if a metric cannot be encoded; the metrics before it are
        // still correct.
        if let Err(error) = text::encode(&mut out, &registry) {
            tracing::error!(%error, "cannot encode the metrics");
        }
        out
    }
}

/// Serves `/metrics` and `/healthz` until the task is dropped.
///
/// # Errors
/// The port cannot be opened.
pub async fn serve(address: SocketAddr, metrics: Arc<Metrics>) -> std::io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    serve_on(listener, metrics).await
}

/// Like [`serve`], on an open port.
///
/// # Errors
/// The port fails.
pub async fn serve_on(listener: TcpListener, metrics: Arc<Metrics>) -> std::io::Result<()> {
    const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let shown = move || {
        let text = metrics.encode();
        async move { ([(CONTENT_TYPE, TYPE)], text) }
    };
    let routes = axum::Router::new()
        .route("/metrics", get(shown))
        .route("/healthz", get(async || "ok\n"));
    axum::serve(listener, routes).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counted_call_is_shown() {
        let metrics = Metrics::default();
        metrics
            .calls
            .get_or_create(&CallLabels {
                method: "Operator/Run".into(),
                code: "ok".into(),
            })
            .inc();
        metrics.connected.set(2);
        let text = metrics.encode();
        assert!(
            text.contains("halite_master_calls_total{method=\"Operator/Run\",code=\"ok\"} 1"),
            "{text}"
        );
        assert!(text.contains("halite_master_connected_minions 2"), "{text}");
        assert!(text.ends_with("# EOF\n"));
    }
}
