//! Addons and charts: the bundle must have their images and archives.

use std::collections::BTreeMap;

use super::Check;
use crate::bundle_facts::BundleFacts;

/// The images of each addon, by its field of the cluster document.
const METRICS_SERVER: (&str, &[&str]) = ("addons.metricsServer", &["metrics-server"]);
const LOCAL_PATH: (&str, &[&str]) = (
    "addons.localPath",
    &["local-path-provisioner", "local-path-helper"],
);

pub(super) fn check(check: &mut Check<'_>) {
    let cluster = &check.declaration.cluster;
    for (at, chart) in cluster.charts.iter().enumerate() {
        if cluster.charts.iter().take(at).any(|before| before == chart) {
            let message = format!("the chart `{chart}` is listed twice");
            check.cluster(
                &format!("charts[{at}]"),
                message,
                "name it once: it is installed once",
            );
        }
    }
    let Some(bundle) = check.context.bundle else {
        return;
    };
    let addons = &cluster.addons;
    for (on, (path, images)) in [
        (addons.metrics_server, METRICS_SERVER),
        (addons.local_path, LOCAL_PATH),
    ] {
        let lacking: Vec<&str> = images
            .iter()
            .filter(|name| on && !bundle.images.contains_key(**name))
            .copied()
            .collect();
        if !lacking.is_empty() {
            check.cluster(
                path,
                format!("the bundle {} lacks the images: {}", bundle.path, lacking.join(", ")),
                "switch it off, or use a bundle that was made with it; `ctl bundle show` shows what this one has",
            );
        }
    }
    for (at, chart) in cluster.charts.iter().enumerate() {
        if !bundle.charts.contains_key(chart) {
            unknown(check, bundle, at, chart);
        }
    }
}

fn unknown(check: &mut Check<'_>, bundle: &BundleFacts, at: usize, chart: &str) {
    let hint = if bundle.charts.is_empty() {
        "it has no charts; add them when you build it".to_owned()
    } else {
        format!("it has {}", listed(&bundle.charts))
    };
    check.cluster(
        &format!("charts[{at}]"),
        format!("the bundle {} has no chart `{chart}`", bundle.path),
        hint,
    );
}

fn listed(charts: &BTreeMap<String, String>) -> String {
    charts
        .iter()
        .map(|(name, version)| format!("{name} {version}"))
        .collect::<Vec<_>>()
        .join(", ")
}
