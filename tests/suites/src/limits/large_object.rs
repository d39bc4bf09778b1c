//! A large object that is replaced until etcd refuses it.

use std::time::Duration;

use anyhow::{Context as _, Result};
use halite_lab::cluster::Cluster;
use halite_lab::wait;

const NAME: &str = "halite-test-large";

/// Replaces the object with most of a MiB of other content, until that is refused for `REASON`. A
/// failure for another reason, such as an etcd that is slow for a moment, is retried with the same
/// content. `kept` has the last acknowledged content, `tried` the refused one.
const REPLACE: &str = "cd /root && : > kept && for turn in $(seq 1 120); do \
    head -c 700000 /dev/urandom | base64 -w0 > tried; \
    kubectl create configmap halite-test-large --from-file=content=tried --dry-run=client -o yaml > large.yaml; \
    tries=0; until said=$(kubectl replace --request-timeout=30s -f large.yaml 2>&1); do \
    case \"$said\" in *'REASON'*) echo \"$said\"; exit 0;; esac; \
    tries=$((tries + 1)); test $tries -lt 60 || { echo \"$said\"; exit 1; }; sleep 1; done; cp tried kept; done; \
    exit 1";

/// Succeeds if the object is the last acknowledged one, or the one that got no answer.
const COMPARE: &str = "cd /root && kubectl get configmap halite-test-large -o 'jsonpath={.data.content}' > found && \
    { cmp found kept || cmp found tried; }";

/// Makes the object, and replaces it until that is refused with this text; returns all output.
pub(super) fn until_refused(cluster: &Cluster, reason: &str) -> Result<String> {
    // It may exist from an earlier attempt.
    cluster.kubectl(&["delete", "configmap", NAME, "--ignore-not-found"])?;
    cluster.kubectl(&["create", "configmap", NAME])?;
    let refused = cluster.bootstrap.sh(&REPLACE.replace("REASON", reason));
    refused.with_context(|| format!("etcd did not refuse it with {reason:?}"))
}

/// Waits until the API accepts a write again, and compares the object with the acknowledged
/// content.
pub(super) fn until_taken(cluster: &Cluster, limit: Duration) -> Result<()> {
    wait::until("the API to take writes again", limit, || {
        let words = [
            "label",
            "configmap",
            NAME,
            "--overwrite",
            "--request-timeout=30s",
            "room=made",
        ];
        cluster.kubectl(&words).map(drop)
    })?;
    let compared = cluster.bootstrap.sh(COMPARE);
    compared.context("the object is not the one that was acknowledged")?;
    Ok(())
}

/// Removes the object and its files.
pub(super) fn remove(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["delete", "configmap", NAME])?;
    let files = "cd /root && rm -f kept tried found large.yaml";
    cluster.bootstrap.sh(files).map(drop)
}
