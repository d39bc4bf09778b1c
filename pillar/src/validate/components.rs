//! Versions, the bundle, and settings that only Halite may set.

use halite_document::source::join;
use halite_names::MASTER;
use serde_json::{Map, Value};

use super::Check;
use crate::bundle_facts::{CLUSTER_IMAGES, FLANNEL_IMAGES};
use crate::declaration::Document;
use crate::flags::Flags;
use crate::node::Node;
use crate::options;
use crate::programs::CniPlugin;
use crate::release::minor;
use crate::role::Role;

pub(super) fn check(check: &mut Check<'_>) {
    version(check);
    settings(check);
    sysctls(check);
    secrets(check);
}

fn version(check: &mut Check<'_>) {
    const PATH: &str = "kubernetes.version";
    let cluster = &check.declaration.cluster;
    let declared = &cluster.kubernetes.version;
    if let Some(resolved) = &cluster.resolved {
        let have: Vec<&str> = resolved
            .kubernetes
            .trim_start_matches('v')
            .split('.')
            .collect();
        let want: Vec<&str> = declared.trim_start_matches('v').split('.').collect();
        if check.sound("resolved") && !have.starts_with(&want) {
            check.cluster(
                PATH,
                format!(
                    "this cluster has Kubernetes {}, not {declared}",
                    resolved.kubernetes
                ),
                format!(
                    "write `{}`; `ctl upgrade` goes to another version, and changes this field with the minor one",
                    minor(&resolved.kubernetes)
                ),
            );
            return;
        }
    }
    let Some(bundle) = check.context.bundle else {
        return;
    };
    let wanted = cluster.kubernetes_version();
    if check.sound(PATH) && !bundle.satisfies(wanted) {
        let hint = match cluster.resolved {
            None => "declare its version, or use a bundle that has the wanted one",
            Some(_) => {
                "use a bundle that has the version which this cluster runs; `ctl upgrade` goes to one with a newer version"
            }
        };
        check.cluster(
            PATH,
            format!(
                "the bundle {} has Kubernetes {}, not {wanted}",
                bundle.path, bundle.kubernetes
            ),
            hint,
        );
    }
    for (path, chosen, allowed) in options::refused(cluster, &bundle.options) {
        check.cluster(
            path,
            format!(
                "the bundle {} was not made for `{path}: {chosen}`, only for {}",
                bundle.path,
                allowed.join(", ")
            ),
            "choose a value that it was made for, or use a bundle that was made for this one",
        );
    }
    let flannel: &[&str] = if cluster.cni.plugin == CniPlugin::Flannel {
        &FLANNEL_IMAGES
    } else {
        &[]
    };
    let missing: Vec<&str> = CLUSTER_IMAGES
        .iter()
        .chain(flannel)
        .filter(|name| !bundle.images.contains_key(**name))
        .copied()
        .collect();
    if !missing.is_empty() {
        let path = if missing.iter().all(|name| flannel.contains(name)) {
            "cni.plugin"
        } else {
            PATH
        };
        check.cluster(
            path,
            format!(
                "the bundle {} lacks the images: {}",
                bundle.path,
                missing.join(", ")
            ),
            "use a complete bundle; `ctl bundle show` shows what this one has",
        );
    }
}

/// Keys of component configurations that follow from other keys.
const KUBELET: &[(&str, &str)] = &[
    ("apiVersion", "it is always the same"),
    ("kind", "it is always the same"),
    ("clusterDNS", "it follows from networks.services"),
    ("clusterDomain", "it follows from dnsDomain"),
    ("staticPodPath", "it is always /etc/kubernetes/manifests"),
    (
        "containerRuntimeEndpoint",
        "it is always containerd's socket",
    ),
];
const KUBE_PROXY: &[(&str, &str)] = &[
    ("apiVersion", "it is always the same"),
    ("kind", "it is always the same"),
    ("mode", "it follows from kubeProxy.mode"),
    ("clusterCIDR", "it follows from networks.pods"),
    (
        "nodePortAddresses",
        "it follows from firewall.nodePorts.cidrs",
    ),
];

fn settings(check: &mut Check<'_>) {
    let declaration = check.declaration;
    let cluster = &declaration.cluster;
    owned(check, "kubelet.config", &cluster.kubelet.config, KUBELET);
    kubelet_flags(check, None, &cluster.kubelet.extra_args);
    for node in declaration.nodes.values() {
        node_kubelet(check, node);
    }
    owned(
        check,
        "kubeProxy.config",
        &cluster.kube_proxy.config,
        KUBE_PROXY,
    );
    if cluster.cni.plugin == CniPlugin::None && cluster.cni.mtu.is_some() {
        check.cluster(
            "cni.mtu",
            "the MTU has no effect with `plugin: none`",
            "remove it, and set it in the configuration of the plugin that you bring",
        );
    }
}

/// Flags of the kubelet that Halite sets, or that would keep it from its cluster.
const KUBELET_FLAGS: &[(&str, &str)] = &[
    (
        "bootstrap-kubeconfig",
        "Halite makes the identity of the kubelet itself",
    ),
    (
        "config",
        "it is always /var/lib/kubelet/config.yaml; write `kubelet.config`",
    ),
    (
        "container-runtime-endpoint",
        "it is always containerd's socket",
    ),
    ("hostname-override", "it follows from the node's name"),
    ("kubeconfig", "it is always /etc/kubernetes/kubelet.conf"),
    ("node-ip", "it follows from the node's address"),
    ("node-labels", "write `labels` in the node document"),
    ("register-node", "Halite needs the node"),
    (
        "register-with-taints",
        "write `taints` in the node document",
    ),
];

/// Checks flags of the cluster document, or of a node document.
fn kubelet_flags(check: &mut Check<'_>, node: Option<&Document<Node>>, flags: &Flags) {
    let mut report = |path: &str, message: String, hint: String| match node {
        Some(node) => check.node(node, path, message, hint),
        None => check.cluster(path, message, hint),
    };
    for (flag, value) in flags {
        let path = join("kubelet.extraArgs", flag);
        if let Some((_, instead)) = KUBELET_FLAGS.iter().find(|(name, _)| name == flag) {
            let message = format!("Halite sets the flag `{flag}` itself");
            report(&path, message, format!("remove it: {instead}"));
        }
        let is_split = |c: char| c.is_whitespace() || "\"'\\$".contains(c);
        if value.all().iter().any(|value| value.contains(is_split)) {
            report(
                &path,
                "a flag of the kubelet cannot contain spaces, quotes, `$` or `\\`: its unit splits them".to_owned(),
                "write the setting into `kubelet.config`, or into a file that the flag names".to_owned(),
            );
        }
    }
}

/// Checks the kubelet of one host.
fn node_kubelet(check: &mut Check<'_>, node: &Document<Node>) {
    let kubelet = &node.kubelet;
    if !kubelet.is_empty() && !node.runs_containers() {
        check.node(
            node,
            "kubelet",
            "a host with only an etcd member has no kubelet",
            "remove it",
        );
        return;
    }
    for key in kubelet.config.keys() {
        let path = join("kubelet.config", key);
        if let Some((_, instead)) = KUBELET.iter().find(|(name, _)| name == key) {
            check.node(
                node,
                &path,
                format!("Halite sets `{key}` itself"),
                format!("remove it: {instead}"),
            );
        } else if key == "protectKernelDefaults" {
            check.node(
                node,
                &path,
                "the kernel parameters that it needs are the same on all hosts",
                "write it into `kubelet.config` of the cluster document",
            );
        }
    }
    kubelet_flags(check, Some(node), &kubelet.extra_args);
}

fn owned(check: &mut Check<'_>, path: &str, given: &Map<String, Value>, owned: &[(&str, &str)]) {
    for key in given.keys() {
        if let Some((_, instead)) = owned.iter().find(|(name, _)| name == key) {
            check.cluster(
                &join(path, key),
                format!("Halite sets `{key}` itself"),
                format!("remove it: {instead}"),
            );
        }
    }
}

/// Kernel parameters without which pods have no network.
const NEEDED_SYSCTLS: [&str; 2] = ["net.ipv4.ip_forward", "net.bridge.bridge-nf-call-iptables"];

fn sysctls(check: &mut Check<'_>) {
    for (key, value) in &check.declaration.cluster.host.sysctls {
        let dotted = key.replace('/', ".");
        if NEEDED_SYSCTLS.contains(&dotted.as_str())
            && value.as_deref().is_some_and(|value| value.trim() == "0")
        {
            check.cluster(
                &join("host.sysctls", key),
                format!("with {dotted} = 0 pods cannot reach other hosts"),
                "remove it, or write null if another program keeps it at 1",
            );
        }
    }
}

fn secrets(check: &mut Check<'_>) {
    let declaration = check.declaration;
    for (name, secret) in &declaration.cluster.secrets {
        let path = join("secrets", name);
        let is_password = declaration
            .cluster
            .site_registry
            .users
            .values()
            .any(|password| password == name);
        // The role or node may be the value to correct.
        let is_client = !check.sound("etcd.external.clientSecret")
            || declaration
                .cluster
                .external_etcd()
                .is_some_and(|external| external.client_secret == *name);
        let is_for_sinks = (declaration.cluster.notify.sinks)
            .values()
            .any(|sink| sink.secrets().any(|own| own == name));
        let for_hosts = !secret.roles.is_empty() || !secret.nodes.is_empty();
        if !for_hosts
            && !is_password
            && !is_client
            && !is_for_sinks
            && check.sound(&join(&path, "roles"))
        {
            check.cluster(
                &path,
                format!("no host gets the secret `{name}`"),
                format!(
                    "name `roles:` ({}, …) or `nodes:`; for your Kubernetes manifests `nodes: [{MASTER}]`",
                    Role::Worker
                ),
            );
        }
        if secret.known() == Some("") {
            check.cluster(
                &join(&path, "value"),
                format!("the secret `{name}` is empty"),
                "write its value",
            );
        }
        for (index, node) in secret.nodes.iter().enumerate() {
            let is_known = node == MASTER || declaration.nodes.contains_key(node.as_str());
            if !declaration.nodes.is_empty() && !is_known {
                check.cluster(
                    &format!("{path}.nodes[{index}]"),
                    format!("there is no node `{node}`"),
                    format!(
                        "the nodes are: {}",
                        declaration
                            .nodes
                            .values()
                            .map(|node| node.metadata.name.as_str())
                            .collect::<Vec<_>>()
                            .join(", ")
                    ),
                );
            }
        }
    }
}
