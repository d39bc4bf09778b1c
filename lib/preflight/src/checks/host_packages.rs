//! The packages that a host gets by their names, with Debian's names (`halite/host/map.jinja`).
//! Their dependencies are not among them: only apt can compute those.

use std::collections::BTreeMap;

use halite_pillar::declaration::{Declaration, Document};
use halite_pillar::node::Node;
use halite_pillar::role::Role;
use halite_pillar::view::has_proxies;

/// The packages of a Kubernetes node.
const NODE: &[&str] = &[
    "conntrack",
    "containerd",
    "ethtool",
    "iptables",
    "kubeadm",
    "kubelet",
    "kubernetes-cni",
    "nftables",
    "runc",
    "socat",
];
const RUNTIME: &[&str] = &["containerd", "runc"];
const CLIENT: &[&str] = &["kubectl"];
const SERVER: &[&str] = &["nginx-light"];
const SITE_REGISTRY: &[&str] = &["distribution-registry"];
const VIRTUAL_ADDRESS: &[&str] = &["curl", "keepalived"];
const PROXY: &[&str] = &["haproxy"];
const FIREWALL: &[&str] = &["firewalld", "netbase"];
const TIME: &[&str] = &["chrony"];

/// The packages of a bundle that a host with this document gets: name to version.
#[must_use]
pub fn packages_of(
    declaration: &Declaration,
    node: &Node,
    bundle: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let cluster = &declaration.cluster;
    let is_own = |other: Option<&Document<Node>>| {
        other.is_some_and(|other| other.metadata.name == node.metadata.name)
    };
    let is_node = node.runs_containers();
    let has_plane = node.has(Role::ControlPlane);
    let has_master = is_own(declaration.master_node());
    let has_address = cluster.api_server.keeps_vip();
    let sets = [
        (is_node, NODE),
        (node.has(Role::Etcd), RUNTIME),
        (has_plane || has_master, CLIENT),
        (has_master || node.has(Role::Registry), SERVER),
        (is_own(declaration.registry_host()), SITE_REGISTRY),
        (has_plane && has_address, VIRTUAL_ADDRESS),
        (is_node && !has_plane && has_proxies(declaration), PROXY),
        (cluster.host.manage_firewall, FIREWALL),
        (cluster.host.manage_time, TIME),
    ];
    let named = sets.iter().filter(|(gets, _)| *gets);
    let named: Vec<&str> = named.flat_map(|(_, names)| names.iter().copied()).collect();
    let further = &cluster.host.packages;
    chosen(bundle, |name| {
        named.contains(&name) || further.iter().any(|other| other == name)
    })
}

/// The same for a first host whose documents cannot be read: those that it gets in any case.
#[must_use]
pub fn packages_of_first_host(bundle: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    chosen(bundle, |name| {
        [NODE, CLIENT, SERVER].iter().any(|set| set.contains(&name))
    })
}

fn chosen(
    bundle: &BTreeMap<String, String>,
    is_chosen: impl Fn(&str) -> bool,
) -> BTreeMap<String, String> {
    let all = bundle.iter().filter(|(name, _)| is_chosen(name));
    all.map(|(name, version)| (name.clone(), version.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use halite_pillar::load::{Text, Texts, load};
    use halite_pillar::validate::Context;

    use super::*;

    const SETS: [&[&str]; 9] = [
        NODE,
        RUNTIME,
        CLIENT,
        SERVER,
        SITE_REGISTRY,
        VIRTUAL_ADDRESS,
        PROXY,
        FIREWALL,
        TIME,
    ];

    /// A bundle with all packages of hosts, and another one.
    fn bundle() -> BTreeMap<String, String> {
        let names = SETS.iter().flat_map(|set| set.iter().copied());
        names
            .chain(["tmux"])
            .map(|name| (name.to_owned(), "1".to_owned()))
            .collect()
    }

    fn names(further: &str, host: &str) -> BTreeSet<String> {
        let cluster = format!(
            "apiVersion: halite/v1\nkind: Cluster\nmetadata: {{name: prod}}\nnetworks: {{controlPlane: {{cidrs: [10.0.0.0/24]}}}}\n\
             kubernetes: {{version: \"1.36\"}}\n{further}"
        );
        let text = |file: String, text: String| Text { file, text };
        let node = |name: &str, last: u8, roles: &[Role]| {
            let node = Node::new(name, Some([10, 0, 0, last].into()), roles);
            text(format!("nodes/{name}.yaml"), node.to_text())
        };
        let first = [
            Role::Bootstrap,
            Role::Registry,
            Role::Etcd,
            Role::ControlPlane,
        ];
        let texts = Texts {
            cluster: text("cluster.yaml".to_owned(), cluster),
            nodes: vec![
                node("cp-1", 11, &first),
                node("cp-2", 12, &[Role::Etcd, Role::ControlPlane]),
                node("worker-1", 13, &[Role::Worker]),
                node("server", 14, &[Role::Registry]),
            ],
            ..Texts::default()
        };
        let declaration = load(&texts, &Context::default()).unwrap();
        let node = &declaration.nodes[host];
        packages_of(&declaration, node, &bundle())
            .into_keys()
            .collect()
    }

    /// The texts in quotes after a beginning of a template, up to an end.
    fn quoted<'a>(tree: &'a str, from: &str, to: &str) -> BTreeSet<&'a str> {
        let part = tree
            .split(from)
            .nth(1)
            .and_then(|rest| rest.split(to).next());
        part.unwrap().split('\'').skip(1).step_by(2).collect()
    }

    #[test]
    fn the_packages_are_those_of_the_state_tree() {
        let tree = include_str!("../../../../states/tree/halite/host/map.jinja");
        let mut found = quoted(tree, "set kubernetes_packages = ", "%}");
        let node: BTreeSet<&str> = NODE.iter().copied().collect();
        assert_eq!(found, node);
        found.append(&mut quoted(tree, "set debian_packages = ", "%}"));
        assert!(found.remove("control-plane"), "it is a role");
        let known: BTreeSet<&str> = SETS.iter().flat_map(|set| set.iter().copied()).collect();
        assert_eq!(found, known);
    }

    #[test]
    fn a_host_gets_the_packages_of_its_roles() {
        let has = |further: &str, host: &str, package: &str| names(further, host).contains(package);
        assert!(has("", "worker-1", "kubelet") && !has("", "worker-1", "kubectl"));
        assert!(has("", "cp-1", "kubectl") && has("", "cp-1", "nginx-light"));
        assert!(has("", "cp-2", "kubectl") && !has("", "cp-2", "nginx-light"));
        let server: Vec<String> = names("", "server").into_iter().collect();
        assert_eq!(server, ["firewalld", "netbase", "nginx-light"]);
        assert!(!has("", "cp-2", "tmux") && has("host: {packages: [tmux]}\n", "cp-2", "tmux"));
        assert!(!has("", "cp-2", "chrony"));
        let time = "host: {manageTime: true}\ntime: {servers: [10.0.0.1]}\n";
        assert!(has(time, "cp-2", "chrony"));
        let vip = "apiServer: {vip: 10.0.0.100}\n";
        assert!(has(vip, "cp-2", "keepalived") && !has(vip, "worker-1", "keepalived"));
        assert!(!has("", "cp-2", "keepalived"));
    }
}
