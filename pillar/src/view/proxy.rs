//! The proxy in a minion's view.

use serde::Serialize;

use crate::cluster::Cluster;

/// The hosts that are reached without the proxy: this host, the hosts' networks (which contain the
/// bundle's servers), pods, Services and the API; then the operator's own entries. They are
/// networks rather than addresses, so that adding a host changes nothing and containerd is not
/// restarted.
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

/// The part of the view about the proxy.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct View<'a> {
    http: Option<&'a str>,
    https: Option<&'a str>,
    no_proxy: Vec<String>,
}

/// Returns the part of the view.
pub(super) fn view(cluster: &Cluster) -> View<'_> {
    View {
        http: bare(cluster.proxy.http.as_ref()),
        https: bare(cluster.proxy.https.as_ref()),
        no_proxy: without(cluster),
    }
}

/// A URL without the slash at its end.
fn bare(url: Option<&String>) -> Option<&str> {
    url.map(|url| url.trim_end_matches('/'))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test's panic is its report")]
mod tests {
    use serde_json::json;

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
        assert_eq!(
            (view.http, view.https),
            (None, Some("http://proxy.corp:3128"))
        );
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
        assert_eq!(view.no_proxy, wanted);
    }
}
