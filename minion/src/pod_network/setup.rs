//! This host's part of the pod network for its next pod: the network that the container runtime
//! uses, and flannel's part of it.

use std::net::Ipv4Addr;
use std::path::Path;

use halite_host_reports::pod_network::{Configuration, Setup};
use serde_json::Value;

use super::TOOL;
use crate::host::linux::command::{command, run};
use crate::host::linux::files;

/// The directory of the container runtime's networks, as configured for containerd by Halite.
const NETWORKS: &str = "/etc/cni/net.d";
/// flannel's file for its plugin.
const SUBNET: &str = "/run/flannel/subnet.env";
/// The kernel's setting.
const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";
/// The bridge of flannel's pods.
const BRIDGE: &str = "cni0";

/// Inspects the host below a root.
pub(super) async fn inspect(root: &Path) -> Setup {
    Setup {
        configuration: configuration(root),
        forwards: text(root, FORWARD).is_some_and(|value| value.trim() == "1"),
        gateway: text(root, SUBNET).and_then(|text| gateway(&text)),
        bridge: bridge().await,
    }
}

fn text(root: &Path, path: &str) -> Option<String> {
    let content = files::read(&root.join(path.trim_start_matches('/')));
    String::from_utf8(content.ok().flatten()?).ok()
}

/// The first usable network by file name, containerd's choice (github.com/containerd/go-cni,
/// `loadFromConfDir`).
fn configuration(root: &Path) -> Option<Configuration> {
    let mut names = files::utf8_names(&root.join(NETWORKS.trim_start_matches('/'))).ok()?;
    names.retain(|name| {
        let ending = Path::new(name).extension();
        ending.is_some_and(|ending| {
            ["conf", "conflist", "json"]
                .iter()
                .any(|one| ending == *one)
        })
    });
    names.sort();
    names.iter().find_map(|name| {
        let path = format!("{NETWORKS}/{name}");
        let network: Value = serde_json::from_str(&text(root, &path)?).ok()?;
        let types: Vec<String> = match network["plugins"].as_array() {
            Some(plugins) => plugins.iter().filter_map(kind).collect(),
            None => kind(&network).into_iter().collect(),
        };
        (!types.is_empty()).then(|| Configuration {
            path,
            name: network["name"].as_str().unwrap_or_default().to_owned(),
            plugins: types,
        })
    })
}

fn kind(plugin: &Value) -> Option<String> {
    plugin["type"].as_str().map(str::to_owned)
}

/// The address in `FLANNEL_SUBNET=10.233.1.1/24`.
fn gateway(environment: &str) -> Option<Ipv4Addr> {
    let value = environment
        .lines()
        .find_map(|line| line.strip_prefix("FLANNEL_SUBNET="))?;
    value.split('/').next()?.trim().parse().ok()
}

/// The addresses of the bridge, also while it is down.
async fn bridge() -> Vec<Ipv4Addr> {
    let command = command(&["ip", "-4", "-o", "addr", "show", "dev", BRIDGE], &[]);
    let output = run(&command, Some(TOOL)).await;
    output.map_or_else(|_| Vec::new(), |output| addresses(&output.stdout))
}

/// The addresses in lines `5: cni0    inet 10.233.1.1/24 brd …`.
fn addresses(listed: &str) -> Vec<Ipv4Addr> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        words.find(|word| *word == "inet");
        words.next()?.split('/').next()?.parse().ok()
    };
    listed.lines().filter_map(address).collect()
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "the test makes a host's files")]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn the_network_in_use_is_the_first_by_its_name_that_can_be_read() {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path.trim_start_matches('/'));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let found = || configuration(root.path()).map(|found| (found.path, found.plugins));
        assert_eq!(found(), None);
        let flannel = r#"{"name": "cbr0", "plugins": [{"type": "flannel"}, {"type": "portmap"}]}"#;
        put("/etc/cni/net.d/10-flannel.conflist", flannel);
        let own = (
            "/etc/cni/net.d/10-flannel.conflist".to_owned(),
            vec!["flannel".to_owned(), "portmap".to_owned()],
        );
        put("/etc/cni/net.d/00-README.txt", flannel);
        put("/etc/cni/net.d/01-empty.conflist", "{\"plugins\": []}");
        put("/etc/cni/net.d/02-half.conf", "{");
        put(
            "/etc/cni/net.d/99-last.conf",
            r#"{"name": "last", "type": "bridge"}"#,
        );
        assert_eq!(found(), Some(own));
        put(
            "/etc/cni/net.d/05-old.conf",
            r#"{"name": "old", "type": "bridge"}"#,
        );
        let old = (
            "/etc/cni/net.d/05-old.conf".to_owned(),
            vec!["bridge".to_owned()],
        );
        assert_eq!(found(), Some(old));

        put(
            SUBNET,
            "FLANNEL_NETWORK=10.233.0.0/16\nFLANNEL_SUBNET=10.233.1.1/24\nFLANNEL_MTU=1450\n",
        );
        put(FORWARD, "0\n");
        let before = inspect(root.path()).await;
        assert_eq!(
            (before.gateway, before.forwards),
            (Some([10, 233, 1, 1].into()), false)
        );
        put(FORWARD, "1\n");
        assert!(inspect(root.path()).await.forwards);
    }

    #[test]
    fn addresses_of_a_bridge() {
        let listed = "5: cni0    inet 10.244.0.1/24 scope global cni0\\       valid_lft forever preferred_lft forever\n\
                      5: cni0    inet 10.233.1.1/24 brd 10.233.1.255 scope global cni0\n";
        let found = addresses(listed);
        assert_eq!(
            found,
            [[10, 244, 0, 1], [10, 233, 1, 1]].map(Ipv4Addr::from)
        );
        assert_eq!(addresses(""), [] as [Ipv4Addr; 0]);
    }
}
