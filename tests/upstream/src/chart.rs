//! The lab's own charts (`tests/upstream/charts`).

use std::path::PathBuf;

use anyhow::Result;
use halite_lab::build::source_root;
use halite_lab::net::Network;
use serde_json::{Value, json};

/// The name of [`Chart::Hello`], and that of its namespace.
pub const NAME: &str = "hello";

/// Number of pods in its values.
pub const REPLICAS: u64 = 2;

/// The text that they answer.
pub const GREETING: &str = "hello from the bundle's chart";

/// The name of [`Chart::Podnet`], and that of its namespace.
pub const PODNET: &str = "podnet";

/// The addresses of its pods: those of every cluster document of the lab. A chart is rendered
/// before there is a document.
const PODS: &str = "10.233.0.0/16";

/// A chart of the lab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Chart {
    /// Pods that answer with the text in its values, behind a Service.
    Hello,
    /// A pod network that replaces Halite's.
    Podnet,
}

impl Chart {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Hello => NAME,
            Self::Podnet => PODNET,
        }
    }

    /// Its folder.
    #[must_use]
    pub fn folder(self) -> PathBuf {
        source_root()
            .join("tests/upstream/charts")
            .join(self.name())
    }

    /// Its entry in a recipe. `image` names the image of a component.
    ///
    /// # Errors
    /// `image` does not know an image that its pods run.
    pub fn entry(self, image: impl Fn(&str) -> Result<String>) -> Result<Value> {
        let values = match self {
            Self::Hello => {
                json!({"replicas": REPLICAS, "greeting": GREETING, "image": image("lab-pod")?})
            }
            Self::Podnet => json!({
                "image": image("flannel")?,
                "pluginImage": image("flannel-cni-plugin")?,
                "network": PODS,
                "interface": format!("^{}\\.[0-9]+$", Network::Workload.prefix().replace('.', "\\.")),
            }),
        };
        let name = self.name();
        Ok(json!({"name": name, "source": self.folder(), "namespace": name, "values": values}))
    }
}

#[cfg(test)]
mod tests {
    use halite_lab::cluster::CLUSTER;

    use super::*;

    #[test]
    fn the_pod_network_is_that_of_the_cluster_document() {
        assert!(CLUSTER.contains(&format!("\n  pods: {PODS}\n")));
        let entry = Chart::Podnet
            .entry(|component| Ok(format!("{component}:1")))
            .unwrap();
        assert_eq!(entry["values"]["pluginImage"], "flannel-cni-plugin:1");
        assert_eq!(entry["values"]["interface"], r"^10\.20\.0\.[0-9]+$");
    }
}
