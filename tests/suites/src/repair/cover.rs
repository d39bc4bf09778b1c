//! Checks that every state is damaged, or left out for a reason.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::low::{Low, LowStateEntry, Tag};

/// States that no round damages: function, end of the name (empty: any), and reason. An entry that
/// matches no state fails the test.
const LEFT_OUT: &[(&str, &str, &str)] = &[
    (
        "cmd.run",
        "halite-master init --config /etc/halite/master.yaml",
        "makes the authorities once; without them no program could repair; see how to restore a copy",
    ),
    (
        "cmd.run",
        "containerd.config in the cluster document' >&2; exit 1",
        "waits, and changes nothing",
    ),
    (
        "cmd.run",
        "systemctl restart containerd.service",
        "acts when a package was replaced: the suite of the upgrade installs another one",
    ),
    ("cmd.run", "systemctl restart kubelet.service", "the same"),
    (
        "cmd.run",
        "they cannot be put back if the new ones do not serve'",
        "acts when another containerd is about to be installed: the suite of the runtime does that",
    ),
    (
        "cmd.run",
        "it cannot be put back if the new one does not start'",
        "acts before a package is replaced: the suite of the upgrade installs another one",
    ),
    (
        "cmd.run",
        "The last lines of the new one: $reason\" >&2; exit 1",
        "acts when a new containerd or kubelet does not serve: suites install such ones",
    ),
    (
        "http.wait_for_successful_query",
        "/healthz",
        "waits, and changes nothing",
    ),
    (
        "etcd.data",
        "",
        "compares, and changes nothing: the test of lost data removes the data",
    ),
    (
        "etcd.founded",
        "",
        "acts only on a host without data and record",
    ),
    (
        "test.fail_without_changes",
        "ca-stage-not-later",
        "acts on a host with a later stage of a CA's rotation than its master",
    ),
    (
        "test.fail_without_changes",
        "kube-apiserver-not-newer",
        "compares, and changes nothing: a unit test runs its condition",
    ),
    (
        "test.fail_without_changes",
        "kube-apiserver-keys-not-later",
        "the same",
    ),
    (
        "mount.refused",
        "own-directories",
        "compares, and changes nothing: the test of a mount makes one",
    ),
    (
        "http.wait_for_successful_query",
        "/manifest.json",
        "waits, and changes nothing",
    ),
    (
        "service.dead",
        "keepalived",
        "acts only on a host that once held the virtual address; this one has no keepalived",
    ),
    (
        "service.dead",
        "chrony",
        "acts only on a host whose clock Halite once kept",
    ),
    (
        "cmd.run",
        "systemctl reload nginx.service",
        "queries nginx, and acts if it has not read the current bundles: the suite of the bundles removes one",
    ),
    (
        "service.dead",
        "haproxy",
        "acts only on a host that had a proxy to the API, which the suite of three control planes removes",
    ),
    (
        "service.dead",
        "halite-registry",
        "acts only on a host that ran the site's registry, which its suite disables",
    ),
    ("service.dead", "halite-registry-backup.timer", "the same"),
    ("service.dead", "halite-registry-verify.timer", "the same"),
    ("host.absent", "registry.demo.internal", "the same"),
    (
        "cmd.run",
        "openssl rehash /etc/ssl/certs",
        "acts after an interrupted run: the suite of external services leaves a store as such a run does",
    ),
    (
        "cmd.run",
        "do rm -r \"${file%/*}\"; done",
        "removes registries that were removed from the document, which the suite of external services does",
    ),
    (
        "cmd.run",
        "rm -f /etc/systemd/system/etcd.service && systemctl daemon-reload",
        "acts only on a host whose member used to be a service, which the suite of etcd changes",
    ),
    (
        "cmd.run",
        "pkill -x flanneld",
        "acts if flannel's file or routes are missing, which the suite of the health removes",
    ),
    ("kubernetes.api_ready", "", "waits, and changes nothing"),
    (
        "kubernetes.owned",
        "addons-owned",
        "removes disabled sets, which the suite of the addons does",
    ),
];

/// Returns whether an entry matches a state.
fn matches(entry: &(&str, &str, &str), state: &LowStateEntry) -> bool {
    state.function == entry.0 && state.name.ends_with(entry.1)
}

/// Fails if a state is neither damaged in a round nor left out, or if an entry matches no state.
pub fn complete(low: &Low, damaged: &BTreeSet<Tag>) -> Result<usize> {
    let covered = low.followers(damaged);
    let open: Vec<&LowStateEntry> = low
        .0
        .iter()
        .filter(|state| !covered.contains(&state.tag))
        .collect();
    let without: Vec<&Tag> = open
        .iter()
        .filter(|state| !LEFT_OUT.iter().any(|entry| matches(entry, state)))
        .map(|s| &s.tag)
        .collect();
    ensure!(
        without.is_empty(),
        "neither damaged nor left out for a reason: {without:#?}"
    );
    let unused: Vec<_> = LEFT_OUT
        .iter()
        .filter(|entry| !open.iter().any(|state| matches(entry, state)))
        .collect();
    ensure!(
        unused.is_empty(),
        "left out, but damaged or missing: {unused:#?}"
    );
    Ok(low.0.len())
}
