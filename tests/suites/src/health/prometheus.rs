//! A real Prometheus on the worker. It scrapes the master over the network with the site's CA, as
//! docs/guide/monitoring.md says, and evaluates the alert rules of the bundle.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use halite_lab::cluster::{BUNDLE, CTL, Cluster};
use halite_lab::host::Host;
use halite_lab::wait;
use serde_json::Value;

use crate::declare::declare;

const PROGRAM: &str = "/root/prometheus";
const CONFIGURATION: &str = "/root/prometheus.yml";
const RULES: &str = "/root/prometheus-alerts.yaml";
const DATA: &str = "/root/prometheus-data";
const UNIT: &str = "lab-prometheus";
const OWN: &str = "127.0.0.1:9091";
const METRICS: u16 = 4553;
/// Limit for the master to restart with its declared metrics, and for the first scrapes.
const SCRAPED: Duration = Duration::from_secs(240);

/// The state of the alerts about a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AlertState {
    /// One is pending or fires.
    Pending,
    /// One fires.
    Firing,
    /// There is none.
    Gone,
}

/// The Prometheus of the lab.
pub(super) struct Prometheus<'a>(&'a Host);

impl<'a> Prometheus<'a> {
    /// Declares the metrics for the worker's network, and scrapes them from there.
    pub(super) fn start(cluster: &'a Cluster) -> Result<Self> {
        let mut report = |line: &str| println!("  {line}");
        let (program, _) = halite_upstream::prometheus(&halite_lab::cache(), &mut report)?;
        let (master, host) = (&cluster.bootstrap, &cluster.worker);
        let address = master.control_plane_address();
        let network = format!("{}/32", host.control_plane_address());
        declare(
            cluster,
            "master",
            &format!("{{metrics: {{from: [{network}]}}}}"),
        )?;
        master.run(&[CTL, "highstate"])?;
        fs::copy(&program, host.file(PROGRAM))
            .with_context(|| format!("cannot copy {}", program.display()))?;
        let rules = master.run(&["cat", &format!("{BUNDLE}/prometheus/halite-alerts.yaml")])?;
        fs::write(host.file(RULES), rules)?;
        let text = format!(
            "global: {{scrape_interval: 5s, evaluation_interval: 5s}}\n\
             rule_files: [{RULES}]\n\
             scrape_configs:\n\
             - job_name: halite\n  \
               scheme: https\n  \
               tls_config: {{ca_file: /etc/halite/pki/site-ca.crt}}\n  \
               static_configs: [{{targets: ['{address}:{METRICS}']}}]\n"
        );
        fs::write(host.file(CONFIGURATION), text)?;
        host.sh(&format!(
            "systemd-run --quiet --collect --unit={UNIT} {PROGRAM} --config.file={CONFIGURATION} \
             --storage.tsdb.path={DATA} --web.listen-address={OWN}"
        ))?;
        let started = Self(host);
        wait::until("Prometheus to scrape a round of checks", SCRAPED, || {
            let rounds = started.query("halite_health_round_timestamp_seconds")?;
            ensure!(!rounds.is_empty(), "it has {:?}", started.query("up")?);
            Ok(())
        })?;
        // The master's own host is in no declared network.
        master.sh(&format!(
            "! curl -sS --max-time 10 --noproxy '*' --cacert /etc/halite/pki/site-ca.crt \
             https://{address}:{METRICS}/metrics 2>&1 | grep halite_"
        ))?;
        Ok(started)
    }

    /// Stops it, if it runs, and removes its files.
    pub(super) fn remove(cluster: &Cluster) -> Result<()> {
        let line = format!(
            "! systemctl -q is-active {UNIT} || systemctl stop {UNIT}; \
             rm -rf {PROGRAM} {CONFIGURATION} {RULES} {DATA}"
        );
        cluster.worker.sh(&line).map(drop)
    }

    /// Waits until the alerts about a check of `ctl health` are in this state.
    pub(super) fn alerts(&self, check: &str, state: AlertState, limit: Duration) -> Result<()> {
        let what = format!("the alert about {check}: {state:?}");
        wait::until(&what, limit, || {
            let alerts = self.query(&format!("ALERTS{{check=\"{check}\"}}"))?;
            let fires = |alert: &Value| alert["metric"]["alertstate"] == "firing";
            let is_so = match state {
                AlertState::Pending => !alerts.is_empty(),
                AlertState::Firing => alerts.iter().any(fires),
                AlertState::Gone => alerts.is_empty(),
            };
            ensure!(is_so, "{alerts:?}");
            Ok(())
        })
    }

    /// The present values of an expression.
    fn query(&self, expression: &str) -> Result<Vec<Value>> {
        let answer = self.0.sh(&format!(
            "curl -sS --max-time 10 --noproxy '*' -G http://{OWN}/api/v1/query --data-urlencode 'query={expression}'"
        ))?;
        let answer: Value = serde_json::from_str(&answer).context("not JSON")?;
        let values = answer["data"]["result"].as_array().cloned();
        values.with_context(|| format!("Prometheus answers {answer}"))
    }
}
