//! Leftovers of another pod network on a host: CNI configuration and interfaces of the kernel.
//!
//! Chains of iptables are not listed: the kernel reports them only through a program of the host,
//! and running that program would load its modules. kube-proxy and the CNI plugins rewrite their
//! own chains.

use std::path::Path;

use serde::{Deserialize, Serialize};

/// The directory from which the container runtime takes the first file by name.
const CONFIGURATION: &str = "/etc/cni/net.d";
/// The interfaces of the host, one per line after two heading lines. `/sys` may be mounted from
/// another network namespace.
const INTERFACES: &str = "/proc/net/dev";
/// The files that count as CNI configuration (`ConfFiles` in libcni).
const EXTENSIONS: [&str; 3] = ["conf", "conflist", "json"];
/// Interfaces of flannel, kube-proxy's IPVS mode, node-local DNS, kube-router, Weave, Antrea and
/// Calico.
const NAMES: [&str; 8] = [
    "antrea-gw0",
    "cni0",
    "kube-bridge",
    "kube-ipvs0",
    "nodelocaldns",
    "vxlan.calico",
    "weave",
    "wireguard.cali",
];
/// Prefixes of names: flannel's tunnels, and the interfaces of Calico's and Cilium's pods.
const PREFIXES: [&str; 3] = ["cali", "cilium_", "flannel."];

/// Traces of a pod network on a host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodNetworkTraces {
    /// Paths of CNI configurations.
    pub files: Vec<String>,
    /// Names of interfaces.
    pub interfaces: Vec<String>,
}

impl PodNetworkTraces {
    /// The traces on this host.
    #[must_use]
    pub fn collect() -> Self {
        Self::read(Path::new(CONFIGURATION), Path::new(INTERFACES))
    }

    /// Returns `true` if there are no traces.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && self.interfaces.is_empty()
    }

    fn read(configuration: &Path, interfaces: &Path) -> Self {
        let is_configuration = |name: &String| {
            let extension = Path::new(name).extension().and_then(|text| text.to_str());
            extension.is_some_and(|extension| EXTENSIONS.contains(&extension))
        };
        let path = |name: String| configuration.join(name).display().to_string();
        let files = names(configuration).into_iter().filter(is_configuration);
        let is_interface = |name: &String| {
            NAMES.contains(&name.as_str()) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        };
        Self {
            files: files.map(path).collect(),
            interfaces: links(interfaces).into_iter().filter(is_interface).collect(),
        }
    }
}

/// The sorted names in a directory; empty if it cannot be read.
fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The sorted names of interfaces; empty if they cannot be read.
fn links(table: &Path) -> Vec<String> {
    let table = std::fs::read_to_string(table).unwrap_or_default();
    let name = |line: &str| Some(line.split_once(':')?.0.trim().to_owned());
    let mut names: Vec<String> = table.lines().filter_map(name).collect();
    names.sort();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_and_interfaces_of_pod_networks_are_found_and_no_others() {
        let scratch = tempfile::tempdir().unwrap();
        let (cni, net) = (scratch.path().join("net.d"), scratch.path().join("dev"));
        assert!(PodNetworkTraces::read(&cni, &net).is_empty());
        std::fs::create_dir(&cni).unwrap();
        for name in [
            "87-other.conflist",
            "05-old.conf",
            "old.json",
            "calico-kubeconfig",
            ".kubernetes-cni-keep",
            "10-flannel.conflist.bak",
        ] {
            std::fs::write(cni.join(name), "").unwrap();
        }
        let names = [
            "lo",
            "eth0",
            "cali01",
            "cilium_host",
            "flannel.1",
            "cni0",
            "cni1",
            "docker0",
            "veth1",
        ];
        let rows = names
            .map(|name| format!("{name:>6}:  2986  12 0\n"))
            .concat();
        std::fs::write(&net, format!("Inter-|   Receive\n face |bytes\n{rows}")).unwrap();
        let found = PodNetworkTraces::read(&cni, &net);
        let below = |name: &str| cni.join(name).display().to_string();
        let files = ["05-old.conf", "87-other.conflist", "old.json"].map(below);
        assert_eq!(found.files, files);
        assert_eq!(
            found.interfaces,
            ["cali01", "cilium_host", "cni0", "flannel.1"]
        );
    }
}
