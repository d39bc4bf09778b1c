//! Root on each control plane works with `ctl` and `kubectl`, under its own name.

use anyhow::{Result, ensure};
use halite_api::AuditLog;
use halite_lab::cluster::Cluster;

use crate::ctl_answer;
use crate::test::Counts;

/// `ctl` and `kubectl` on each control plane; the audit log names the one that was used.
pub(super) fn on_each(cluster: &Cluster) -> Result<Counts> {
    let first = &cluster.bootstrap;
    for host in cluster.control_planes() {
        let name = &host.spec.name;
        let nodes = host.run(&["kubectl", "get", "nodes", "-o", "name"])?;
        ensure!(nodes.contains(&format!("node/{name}")), "{name}: {nodes}");
        let operator = if *name == first.spec.name {
            "root".to_owned()
        } else {
            format!("root@{name}")
        };
        host.run(&["ctl", "cmd", name, "--", "true"])?;
        let words = ["audit", "--operator", &operator, "--action", "Run"];
        let log: AuditLog = ctl_answer::of(host, &words)?;
        ensure!(!log.audit.is_empty(), "nothing was done as {operator}");
        let key = host.run(&["stat", "-c", "%a %U", "/etc/halite/operator/operator.key"])?;
        ensure!(key.trim() == "600 root", "{name}: {key}");
    }
    Ok(Counts::ONE)
}
