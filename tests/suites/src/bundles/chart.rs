//! A chart of the bundle in use, from its declaration to answering pods, and its removal.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use halite_api::BundleContent;
use halite_lab::cluster::{CTL, Cluster};
use halite_lab::wait;
use halite_upstream::chart;
use serde_json::Value;

use super::first::FIRST;
use super::second;
use crate::addons;
use crate::checks::refused;
use crate::ctl_answer;
use crate::declare::declare;
use crate::repair::{highstate, pods, quiet, settled};
use crate::test::Counts;

/// Number of the chart's objects: the namespace, the Deployment, the Service and the ConfigMap.
const OBJECTS: usize = 4;

/// Limit for pods to start.
const READY: Duration = Duration::from_secs(120);

fn kubectl(cluster: &Cluster, args: &[&str]) -> Result<String> {
    cluster.kubectl(&[&["-n", chart::NAME], args].concat())
}

pub(super) fn all(cluster: &Cluster) -> Result<Counts> {
    let before = addons::objects(cluster)?;
    let running = pods(cluster)?;
    declare(cluster, "charts", &format!("[{}]", chart::NAME))?;
    highstate(cluster, &[])?;
    answers(cluster)?;
    from_the_bundle(cluster)?;
    let why = format!("has no chart `{}`", chart::NAME);
    refused(
        &cluster.bootstrap,
        &[CTL, "bundle", "use", FIRST, "--allow-downgrade"],
        &[&why],
    )?;

    let running = running + usize::try_from(chart::REPLICAS)?;
    settled(cluster, running)?;
    quiet(cluster)?;
    damage(cluster)?;
    let repaired = highstate(cluster, &[])?.changed;
    let tag = format!("[chart-{}]", chart::NAME);
    ensure!(
        repaired.len() == 1 && repaired.iter().all(|repaired| repaired.ends_with(&tag)),
        "{repaired:#?}"
    );
    answers(cluster)?;
    settled(cluster, running)?;
    addons::nothing_written(cluster, OBJECTS)?;

    declare(cluster, "charts", "")?;
    highstate(cluster, &[])?;
    addons::only(cluster, &before)?;
    quiet(cluster)?;
    Ok(Counts {
        passed: 3,
        failed: 0,
    })
}

/// Deletes one object and changes a value of another.
fn damage(cluster: &Cluster) -> Result<()> {
    for object in ["deployment", "service"] {
        kubectl(cluster, &["delete", object, chart::NAME])?;
    }
    let other = r#"{"data": {"ANSWER": "somebody else's"}}"#;
    kubectl(
        cluster,
        &[
            "patch",
            "configmap",
            chart::NAME,
            "--type=merge",
            "-p",
            other,
        ],
    )?;
    Ok(())
}

/// Checks that as many pods are ready as the values declare, and that every host gets the declared
/// value from them through the Service.
pub(crate) fn answers(cluster: &Cluster) -> Result<()> {
    let limit = format!("--timeout={}s", READY.as_secs());
    let deployment = format!("deployment/{}", chart::NAME);
    kubectl(
        cluster,
        &["wait", "--for=condition=Available", &deployment, &limit],
    )?;
    wait::until("all pods of the chart to be ready", READY, || {
        let ready = kubectl(
            cluster,
            &["get", &deployment, "-o", "jsonpath={.status.readyReplicas}"],
        );
        match ready {
            Ok(ready) if ready == chart::REPLICAS.to_string() => Ok(()),
            other => Err(anyhow!("{other:?}")),
        }
    })?;
    let address = kubectl(
        cluster,
        &[
            "get",
            "service",
            chart::NAME,
            "-o",
            "jsonpath={.spec.clusterIP}",
        ],
    )?;
    for host in cluster.hosts() {
        wait::until("the Service to answer", READY, || {
            let get = format!("curl -sS --noproxy '*' --max-time 2 http://{address}/");
            match host.sh(&get)?.trim() {
                chart::GREETING => Ok(()),
                other => Err(anyhow!("{} gets {other:?}", host.spec.name)),
            }
        })?;
    }
    Ok(())
}

/// Checks that the bundle has every image of the chart's pods, which name it with its digest, and
/// that containerd requested each of them.
fn from_the_bundle(cluster: &Cluster) -> Result<()> {
    let manifest: Value =
        serde_json::from_slice(&fs::read(second::file(cluster, "manifest.json"))?)?;
    let there: BTreeSet<&str> = manifest["images"]
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(_, image)| image.as_str())
        .collect();
    let list: Value = serde_json::from_str(&kubectl(cluster, &["get", "pods", "-o", "json"])?)?;
    let pods = list["items"].as_array().context("no list of pods")?;
    let images = pods
        .iter()
        .flat_map(|pod| pod["spec"]["containers"].as_array().into_iter().flatten());
    let images: Vec<&str> = images
        .filter_map(|container| container["image"].as_str())
        .collect();
    ensure!(
        !images.is_empty() && images.iter().all(|image| there.contains(image)),
        "the pods have {images:?}, and the bundle {there:?}"
    );
    let events = [
        "get",
        "events",
        "--field-selector",
        "reason=Pulled",
        "-o",
        "json",
    ];
    let asked = |event: &Value| {
        event["message"]
            .as_str()
            .is_some_and(|text| text.contains("Successfully pulled"))
    };
    // A kubelet sends its events in the background, and again after ten seconds.
    wait::until("the event of a pull", READY, || {
        let pulled: Value = serde_json::from_str(&kubectl(cluster, &events)?)?;
        ensure!(
            pulled["items"].as_array().into_iter().flatten().any(asked),
            "nothing was pulled: {pulled}"
        );
        Ok(())
    })?;
    let words = ["bundle", "show", second::VERSION];
    let shown: BundleContent = ctl_answer::of(&cluster.bootstrap, &words)?;
    let version = shown.charts.get(chart::NAME).map(String::as_str);
    ensure!(
        version == Some("1.0.0"),
        "ctl bundle show: {:?}",
        shown.charts
    );
    cluster.nothing_tried_to_leave()
}
