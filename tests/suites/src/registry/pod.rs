//! A pod whose image the worker must pull.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Error, Result, anyhow, ensure};
use halite_lab::cluster::{BUNDLE, Cluster, WORKER};
use halite_lab::wait;
use serde_json::Value;

use crate::images;

/// Directory in which containerd stores unfinished downloads.
const INGEST: &str = "/var/lib/containerd/io.containerd.content.v1.content/ingest";

/// The reference of a bundle's image, by its component.
fn image(cluster: &Cluster, component: &str) -> Result<String> {
    let manifest = fs::read(
        cluster
            .bootstrap
            .root()
            .join(BUNDLE.trim_start_matches('/'))
            .join("manifest.json"),
    )?;
    let manifest: Value = serde_json::from_slice(&manifest)?;
    Ok(manifest["images"][component]
        .as_str()
        .context("no such image")?
        .to_owned())
}

/// A pod on the worker that prints its program's version and exits; the pod and its image are
/// removed on drop.
pub(crate) struct Pod<'a> {
    cluster: &'a Cluster,
    component: &'static str,
    image: String,
}

impl<'a> Pod<'a> {
    pub(crate) fn start(cluster: &'a Cluster, component: &'static str) -> Result<Self> {
        let image = image(cluster, component)?;
        let there = images::names(&cluster.worker)?;
        ensure!(
            !there.contains(&images::stored(&image)),
            "{image} is already on {WORKER}: this shows nothing"
        );
        let pod = Self {
            cluster,
            component,
            image,
        };
        let spec = serde_json::json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod.name()},
            "spec": {"nodeName": WORKER, "restartPolicy": "Never", "containers": [{
                "name": "it", "image": pod.image, "command": [component, "--version"],
            }]},
        });
        fs::write(
            cluster.bootstrap.root().join("root/pod.json"),
            spec.to_string(),
        )?;
        cluster.kubectl(&["apply", "-f", "/root/pod.json"])?;
        Ok(pod)
    }

    pub(super) fn name(&self) -> String {
        format!("pulled-{}", self.component)
    }

    /// Waits until containerd has downloaded a part of the image, but not all of it.
    pub(super) fn wait_for_the_middle(&self) -> Result<()> {
        wait::promptly(
            "the pull to be in its middle",
            Duration::from_secs(90),
            || {
                let text = self
                    .cluster
                    .worker
                    .sh(&format!("find {INGEST} -name data -size +2048k"))?;
                if text.trim().is_empty() {
                    Err(anyhow!("nothing has arrived"))
                } else {
                    Ok(())
                }
            },
        )
    }

    pub(crate) fn wait_until_done(&self, limit: Duration) -> Result<()> {
        wait::until("the pod to have run", limit, || {
            let answer = self
                .cluster
                .kubectl(&["get", "pod", &self.name(), "-o", "json"]);
            let pod: Value = serde_json::from_str(&answer?)?;
            match pod["status"]["phase"].as_str() {
                Some("Succeeded") => Ok(()),
                _ => Err(Error::msg(pod["status"].to_string())),
            }
        })?;
        let said = self.cluster.kubectl(&["logs", &self.name()])?;
        ensure!(!said.trim().is_empty(), "{} said nothing", self.name());
        Ok(())
    }
}

impl Drop for Pod<'_> {
    /// Removes pod and image even after a failure, for the tests that follow.
    fn drop(&mut self) {
        let _ = self.cluster.kubectl(&[
            "delete",
            "pod",
            &self.name(),
            "--wait=true",
            "--timeout=60s",
        ]);
        let _ = images::remove(&self.cluster.worker, &self.image);
    }
}
