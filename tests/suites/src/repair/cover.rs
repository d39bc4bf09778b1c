//! Checks that every state is damaged, or left out for a reason.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use super::low::{Low, State, Tag};

/// States that no round damages: function, end of the name (empty: any), and reason. An entry that
/// matches no state fails the test.
const LEFT_OUT: &[(&str, &str, &str)] = &[
    (
        "cmd.run",
        "halite-master init --config /etc/halite/master.yaml",
        "makes the authorities once; without them no program could repair, see how to go back to a copy",
    ),
    (
        "cmd.run",
        "containerd.config in the cluster document' >&2; exit 1",
        "waits, and changes nothing",
    ),
    (
        "cmd.run",
        "systemctl restart containerd.service",
        "acts when a package was replaced: the suite of the upgrade brings another one",
    ),
    ("cmd.run", "systemctl restart kubelet.service", "the same"),
    (
        "http.wait_for_successful_query",
        "/healthz",
        "waits, and changes nothing",
    ),
    (
        "etcd.data",
        "",
        "compares, and changes nothing: the test of lost data takes the data away",
    ),
    (
        "etcd.founded",
        "",
        "acts only on a host without data and record",
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
        "acts only on a host that held the virtual address before; this one has no keepalived",
    ),
    (
        "service.dead",
        "chrony",
        "acts only on a host whose clock Halite kept before",
    ),
    (
        "cmd.run",
        "systemctl reload nginx.service",
        "asks nginx, and acts when that has not read what is there: the suite of the bundles takes one away",
    ),
    (
        "service.dead",
        "haproxy",
        "acts only on a host that had a proxy to the API, which the suite of three control planes takes away",
    ),
    (
        "service.dead",
        "halite-registry",
        "acts only on a host that ran the site's registry, which the suite of that switches off",
    ),
    ("service.dead", "halite-registry-backup.timer", "the same"),
    ("service.dead", "halite-registry-verify.timer", "the same"),
    ("host.absent", "registry.demo.internal", "the same"),
    (
        "cmd.run",
        "openssl rehash /etc/ssl/certs",
        "acts when a run was cut off before: the suite of what is outside leaves a store as such a run does",
    ),
    (
        "cmd.run",
        "do rm -r \"${file%/*}\"; done",
        "removes registries that were taken out, which the suite of what is outside does",
    ),
    (
        "cmd.run",
        "rm -f /etc/systemd/system/etcd.service && systemctl daemon-reload",
        "acts only on a host whose member was a service before, which the suite of etcd changes",
    ),
    (
        "cmd.run",
        "pkill -x flanneld",
        "acts when flannel's file or routes are gone, which the suite of the health takes away",
    ),
    ("kubernetes.api_ready", "", "waits, and changes nothing"),
    (
        "kubernetes.owned",
        "addons-owned",
        "removes what was switched off, which the suite of the addons does",
    ),
];

/// Returns whether an entry matches a state.
fn matches(entry: &(&str, &str, &str), state: &State) -> bool {
    state.function == entry.0 && state.name.ends_with(entry.1)
}

/// Fails if a state is neither damaged in a round nor left out, or if an entry matches no state.
pub fn complete(low: &Low, damaged: &BTreeSet<Tag>) -> Result<usize> {
    let covered = low.followers(damaged);
    let open: Vec<&State> = low
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
        "left out, but damaged or not there: {unused:#?}"
    );
    Ok(low.0.len())
}
