//! Declared patches of the components of the control plane and of the cluster's DNS.

use anyhow::{Result, ensure};
use halite_lab::cluster::{BOOTSTRAP, Cluster};
use halite_lab::wait;
use serde_json::Value;

use crate::cluster::PODS;

/// The patches of the components other than the API server.
pub(super) const DECLARED: &str = "\
controllerManager:
  patches: [{spec: {containers: [{name: kube-controller-manager, resources: {requests: {cpu: 110m}}}]}}]
scheduler:
  patches: [{spec: {containers: [{name: kube-scheduler, resources: {requests: {cpu: 60m}}}]}}]
etcd:
  patches: [{spec: {containers: [{name: etcd, resources: {requests: {cpu: 120m}}}]}}]
dns:
  patches: [{spec: {template: {spec: {containers: [{name: coredns, resources: {requests: {cpu: 70m}}}]}}}}]
";

/// The containers of the patched static pods, and the CPU that each requests.
const PATCHED: [(&str, &str); 4] = [
    ("kube-apiserver", "200m"),
    ("kube-controller-manager", "110m"),
    ("kube-scheduler", "60m"),
    ("etcd", "120m"),
];
/// The CPU that each pod of the cluster's DNS requests.
const PATCHED_DNS: &str = "70m";

/// Checks that each component has its patch in its manifest and in its pods, and has kept what the
/// patch does not name.
///
/// # Errors
/// The first one that does not.
pub(super) fn are_applied(cluster: &Cluster) -> Result<()> {
    let host = &cluster.bootstrap;
    let containers = |words: &[&str]| -> Result<Vec<Value>> {
        let json = [&["-n", "kube-system", "get"], words, &["-o", "json"]].concat();
        let mut found: Value = serde_json::from_str(&cluster.kubectl(&json)?)?;
        let pods = match found["items"].take() {
            Value::Array(pods) => pods,
            _ => vec![found],
        };
        Ok(pods.into_iter().map(first_container).collect())
    };
    for (name, cpu) in PATCHED {
        let manifest = host.run(&["cat", &format!("/etc/kubernetes/manifests/{name}.yaml")])?;
        let manifest = first_container(serde_saphyr::from_str(&manifest)?);
        let pod = containers(&["pod", &format!("{name}-{BOOTSTRAP}")])?;
        for own in std::iter::once(&manifest).chain(&pod) {
            requests(own, name, cpu)?;
            ensure!(own["command"][0] == name, "{name}: {own}");
        }
    }
    let memory = |own: &Value| own["resources"]["requests"]["memory"].clone();
    let etcd = containers(&["pod", &format!("etcd-{BOOTSTRAP}")])?;
    ensure!(etcd.iter().all(|own| memory(own) == "100Mi"), "{etcd:?}");
    wait::until("the patched pods of the DNS", PODS, || {
        let pods = containers(&["pods", "-l", "k8s-app=kube-dns"])?;
        ensure!(!pods.is_empty(), "the DNS has no pod");
        for own in &pods {
            requests(own, "coredns", PATCHED_DNS)?;
            ensure!(memory(own) == "70Mi", "{own}");
        }
        Ok(())
    })
}

/// The first container of a pod.
fn first_container(mut pod: Value) -> Value {
    let first = pod.pointer_mut("/spec/containers/0");
    first.map(Value::take).unwrap_or_default()
}

/// Fails unless a container has this name and requests this CPU.
fn requests(container: &Value, name: &str, cpu: &str) -> Result<()> {
    let is_patched = container["resources"]["requests"]["cpu"] == cpu;
    ensure!(
        container["name"] == name && is_patched,
        "the patch of {name} is not applied: {container}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use halite_lab::layout::TWO;

    use crate::hardened::document;
    use crate::shipped_tree::declaration;

    #[test]
    fn each_component_has_a_patch() {
        let declared = declaration(&document().unwrap(), &TWO).unwrap();
        let cluster = &declared.cluster;
        for (name, patches) in [
            ("apiServer", &cluster.api_server.patches),
            ("controllerManager", &cluster.controller_manager.patches),
            ("scheduler", &cluster.scheduler.patches),
            ("etcd", &cluster.etcd.patches),
            ("dns", &cluster.dns.patches),
        ] {
            assert_eq!(patches.len(), 1, "{name}");
        }
    }
}
