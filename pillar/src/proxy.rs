//! The proxy through which containerd reaches registries outside of the site.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::formats;

/// The proxy through which containerd reaches registries outside of the site. Nothing else of the
/// cluster goes out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Proxy {
    /// For what is asked without TLS: `http://proxy.corp:3128`.
    pub http: Option<String>,
    /// For what is asked over TLS; the proxy itself may be an `http://` one.
    pub https: Option<String>,
    /// What is asked without the proxy, besides the cluster itself: `.corp`, `10.7.0.0/16`.
    #[schemars(schema_with = "formats::no_proxy")]
    pub no_proxy: Vec<String>,
}

impl Proxy {
    /// Whether there is one.
    #[must_use]
    pub fn is_there(&self) -> bool {
        self.http.is_some() || self.https.is_some()
    }
}

/// What must never go through the proxy: this host, the hosts' networks (the bundle's servers are
/// in them), pods, Services and the API; then what the operator added. Networks and not addresses:
/// with a further host nothing here changes, and containerd goes on running.
fn without(cluster: &Cluster) -> Vec<String> {
    let networks = &cluster.networks;
    let mut all = vec!["localhost".to_owned(), "127.0.0.0/8".to_owned()];
    let planes = networks
        .control_plane
        .cidrs
        .iter()
        .chain(networks.workload_cidrs());
    all.extend(
        planes
            .chain([&networks.pods, &networks.services])
            .map(ToString::to_string),
    );
    all.extend(cluster.api_server.vip.map(|vip| vip.to_string()));
    all.push(cluster.endpoint());
    all.extend([".svc".to_owned(), format!(".{}", cluster.dns_domain)]);
    all.extend(cluster.proxy.no_proxy.iter().cloned());
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|entry| seen.insert(entry.clone()));
    all
}

/// What templates see of it.
pub(crate) fn view(cluster: &Cluster) -> Value {
    let bare = |url: &Option<String>| {
        url.as_deref()
            .map(|url| url.trim_end_matches('/').to_owned())
    };
    json!({
        "http": bare(&cluster.proxy.http),
        "https": bare(&cluster.proxy.https),
        "noProxy": without(cluster),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test's panic is its report")]
mod tests {
    use super::*;

    #[test]
    fn the_cluster_itself_is_never_asked_through_the_proxy() {
        let cluster: Cluster = serde_json::from_value(json!({
            "apiVersion": "halite/v1", "kind": "Cluster", "metadata": {"name": "prod"}, "dnsDomain": "k8s.corp",
            "networks": {"controlPlane": {"cidrs": ["10.0.0.0/24", "10.1.0.0/24"]}, "workloadPlane": {"cidrs": ["10.2.0.0/24"]}},
            "apiServer": {"vip": "10.0.0.100"}, "kubernetes": {"version": "1.36"},
            "proxy": {"https": "http://proxy.corp:3128/", "noProxy": [".corp", "10.2.0.0/24"]},
        }))
        .unwrap();
        let view = view(&cluster);
        assert_eq!(view["http"], Value::Null);
        assert_eq!(view["https"], "http://proxy.corp:3128");
        let wanted = [
            "localhost",
            "127.0.0.0/8",
            "10.0.0.0/24",
            "10.1.0.0/24",
            "10.2.0.0/24",
            "10.233.0.0/16",
            "10.96.0.0/12",
            "10.0.0.100",
            "api.prod.internal",
            ".svc",
            ".k8s.corp",
            ".corp",
        ];
        assert_eq!(view["noProxy"], json!(wanted));
    }
}
