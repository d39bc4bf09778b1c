//! What is declared: the operator's document, what is on the host already, and what is resolved
//! from both.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;
use halite_document::Problem;
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::cluster::{Cluster, ProxyMode, ResolvedCluster};
use halite_pillar::host_facts::HostFacts;
use halite_pillar::load::{Declaration, Text, Texts, load};
use halite_pillar::node::{BOOTSTRAP_ROLES, Node};
use halite_pillar::validate::Context;
use halite_pillar::view::{MASTER_PORT, Pki, bootstrap_node};
use halite_pillar::{resolve, view};
use halite_secrets::yaml;
use serde_json::Value;

use super::Ground;
use crate::files;
use crate::preflight::{Installed, Wanted};

/// The cluster document may hold the operator's secrets.
pub const CLUSTER_MODE: u32 = 0o600;
const NODE_MODE: u32 = 0o644;

/// The texts before anything is known of them.
pub struct Given {
    texts: Texts,
    installed: Installed,
}

impl Given {
    /// Reads what is on the host and what the operator gives; his cluster document takes the place
    /// of the one on the host, except for what was resolved.
    ///
    /// # Errors
    /// A file cannot be read, or there is no cluster document at all.
    pub fn read(directory: &Path, config: Option<&Path>, name: &str) -> anyhow::Result<Self> {
        let there = directory.join("cluster.yaml").exists();
        let mut texts = if there {
            Texts::from_dir(directory)
                .map_err(|problems| anyhow::anyhow!("{}", crate::compile::report(&problems)))?
        } else {
            Texts::default()
        };
        let mut installed = if there {
            Installed::This
        } else {
            Installed::Nothing
        };
        if let Some(config) = config {
            let file = config.display().to_string();
            let mut text = std::fs::read_to_string(config)
                .with_context(|| format!("{file} cannot be read"))?;
            if there {
                let (old, new) = (cluster_name(&texts.cluster.text), cluster_name(&text));
                if let (Some(old), true) = (&old, old != new) {
                    installed = Installed::Other(old.clone());
                }
                text = keep_resolved(&texts.cluster.text, &file, text);
            }
            texts.cluster = Text { file, text };
        } else if !there {
            anyhow::bail!(
                "name the cluster document with --config; `ctl config example` prints one to begin with"
            );
        }
        // The first host has a document already on a second run.
        let is_first = |text: &Text| {
            let node = yaml::parse(&text.file, &text.text).ok();
            let roles = node
                .as_ref()
                .and_then(|node| node.get("roles"))
                .map(|roles| roles.items().to_vec());
            roles
                .unwrap_or_default()
                .iter()
                .any(|role| role.raw == "bootstrap")
        };
        if !texts.nodes.iter().any(is_first) {
            let file = directory
                .join("nodes")
                .join(format!("{name}.yaml"))
                .display()
                .to_string();
            texts.nodes.retain(|text| text.file != file);
            texts.nodes.push(Text {
                file,
                text: Node::new(name, None, &BOOTSTRAP_ROLES).to_text(),
            });
        }
        Ok(Self { texts, installed })
    }

    /// Whose configuration is on the host.
    pub fn installed(&self) -> Installed {
        self.installed.clone()
    }

    /// What is wrong with the texts alone, without bundle and host.
    pub fn problems(&self) -> Vec<String> {
        let found = load(&self.texts, &Context::default())
            .err()
            .unwrap_or_default();
        found.iter().map(ToString::to_string).collect()
    }

    /// What the checks of the host depend on, as far as the texts can be read.
    pub fn wanted(&self) -> Wanted {
        load(&self.texts, &Context::default()).map_or_else(
            |_| roughly(&self.texts.cluster),
            |declaration| wanted(&declaration.cluster),
        )
    }

    /// Validates everything with bundle and host, and resolves what is open.
    ///
    /// # Errors
    /// All problems.
    pub fn load(&self, ground: &Ground) -> Result<Declared, Vec<Problem>> {
        let mut bundle =
            crate::compile::facts(&ground.manifest, &ground.site.display().to_string());
        bundle.site.clone_from(&ground.others);
        let host = HostFacts::from_grains(&ground.name, &ground.grains);
        let context = Context {
            bundle: Some(&bundle),
            host: Some(&host),
        };
        let mut declaration = load(&self.texts, &context)?;
        if !declaration.nodes.contains_key(&ground.name) {
            let first = bootstrap_node(&declaration)
                .map(|node| node.metadata.name.clone())
                .unwrap_or_default();
            let problem = Problem::in_file(
                "",
                format!(
                    "the first host of this cluster is `{first}`, not `{}`",
                    ground.name
                ),
            );
            return Err(vec![problem.hint(format!(
                "run this on {first}, or give this host's name with --name"
            ))]);
        }
        let resolved = resolve::node(&mut declaration, &ground.name, &host)
            .map_err(|problem| vec![problem])?;
        let node_text = match resolved.node_text {
            Some(text) => text,
            None => declaration.nodes[&ground.name].source.text().to_owned(),
        };
        let cluster = &declaration.cluster;
        let kubernetes = cluster
            .resolved
            .as_ref()
            .map_or(&bundle.kubernetes, |resolved| &resolved.kubernetes);
        let wanted = ResolvedCluster {
            kubernetes: kubernetes.clone(),
            bundle: Some(bundle.version.clone()),
        };
        let cluster_text = if cluster.resolved.as_ref() == Some(&wanted) {
            cluster.source.text().to_owned()
        } else {
            resolve::record(
                &cluster.source.file,
                cluster.source.text(),
                &resolve::cluster_block(&wanted),
            )
            .map_err(|problem| vec![problem])?
        };
        let node_file = format!("nodes/{}.yaml", ground.name);
        let files = vec![
            ("cluster.yaml".to_owned(), cluster_text, CLUSTER_MODE),
            (node_file, node_text, NODE_MODE),
        ];
        Ok(Declared {
            declaration,
            bundle,
            files,
        })
    }
}

fn cluster_name(text: &str) -> Option<String> {
    let root = yaml::parse("cluster.yaml", text).ok()?;
    Some(root.get("metadata")?.get("name")?.raw.clone())
}

/// What was resolved when the cluster was made stays, although the operator's own copy does not
/// have it.
fn keep_resolved(installed: &str, file: &str, given: String) -> String {
    let resolved = |text: &str| {
        let root = yaml::parse(file, text).ok()?;
        let resolved = root.get("resolved")?;
        let bundle = resolved.get("bundle").map(|version| version.raw.clone());
        Some(ResolvedCluster {
            kubernetes: resolved.get("kubernetes")?.raw.clone(),
            bundle,
        })
    };
    match (resolved(installed), resolved(&given)) {
        // What does not parse is reported as such later.
        (Some(there), None) => {
            resolve::record(file, &given, &resolve::cluster_block(&there)).unwrap_or(given)
        }
        _ => given,
    }
}

/// The same from a document with mistakes, so that what it does say is not reported as missing.
fn roughly(document: &Text) -> Wanted {
    let json = yaml::parse(&document.file, &document.text)
        .map(|root| root.to_json())
        .unwrap_or_default();
    let flag = |pointer: &str| {
        json.pointer(pointer)
            .and_then(Value::as_bool)
            .unwrap_or(true)
    };
    Wanted {
        manage_swap: flag("/host/manageSwap"),
        fail_swap_on: flag("/kubelet/config/failSwapOn"),
        fail_cgroup_v1: flag("/kubelet/config/failCgroupV1"),
        manage_firewall: flag("/host/manageFirewall"),
        nftables: json
            .pointer("/kubeProxy/mode")
            .is_none_or(|mode| mode != "iptables"),
        eviction: eviction(json.pointer("/kubelet/config/evictionHard")),
        vip: None,
    }
}

/// The kubelet's hard eviction thresholds by signal, where some are declared.
fn eviction(declared: Option<&Value>) -> Option<BTreeMap<String, String>> {
    let each =
        |(signal, limit): (&String, &Value)| Some((signal.clone(), limit.as_str()?.to_owned()));
    Some(declared?.as_object()?.iter().filter_map(each).collect())
}

fn wanted(cluster: &Cluster) -> Wanted {
    let kubelet = |key: &str| {
        cluster
            .kubelet
            .config
            .get(key)
            .and_then(Value::as_bool)
            .unwrap_or(true)
    };
    Wanted {
        manage_swap: cluster.host.manage_swap,
        fail_swap_on: kubelet("failSwapOn"),
        fail_cgroup_v1: kubelet("failCgroupV1"),
        manage_firewall: cluster.host.manage_firewall,
        nftables: cluster.kube_proxy.mode == ProxyMode::Nftables,
        eviction: eviction(cluster.kubelet.config.get("evictionHard")),
        vip: cluster
            .api_server
            .vip
            .filter(|_| cluster.api_server.keeps_vip()),
    }
}

/// A declaration that is known to be good, and the files that hold it.
pub struct Declared {
    declaration: Declaration,
    bundle: BundleFacts,
    /// Path below the configuration directory, text, mode.
    files: Vec<(String, String, u32)>,
}

impl Declared {
    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.declaration.cluster.metadata.name
    }

    /// What a host's templates see.
    ///
    /// # Errors
    /// The host is not declared.
    pub fn view(&self, pki: &Pki, name: &str) -> anyhow::Result<Value> {
        Ok(view::view(&self.declaration, &self.bundle, pki, name)?)
    }

    /// The secrets that a host may have.
    pub fn allowed_secrets(&self, name: &str) -> BTreeSet<String> {
        view::allowed_secrets(&self.declaration, name)
    }

    /// One of the operator's own secrets.
    pub fn own_secret(&self, name: &str, path: &str) -> Option<String> {
        view::own_secret(&self.declaration, name, path)
    }

    /// `host:port` under which this host's master will be reached.
    pub fn master(&self) -> String {
        let address = bootstrap_node(&self.declaration).and_then(|node| node.control_plane());
        format!(
            "{}:{MASTER_PORT}",
            address.map_or_else(|| "127.0.0.1".to_owned(), |address| address.to_string())
        )
    }

    /// What the checks of the host depend on.
    pub fn wanted(&self) -> Wanted {
        wanted(&self.declaration.cluster)
    }

    /// Which of the files would change, with the difference; a file that may hold secrets is only
    /// named.
    pub fn changes(&self, directory: &Path) -> String {
        let mut text = String::new();
        for (name, new, mode) in &self.files {
            let path = directory.join(name);
            let old = std::fs::read_to_string(&path).unwrap_or_default();
            if old == *new || old.is_empty() {
                continue;
            }
            text.push_str(&format!("{} changes\n", path.display()));
            if *mode != CLUSTER_MODE
                || self.declaration.cluster.secrets.is_empty() && !old.contains("secrets:")
            {
                let diff = similar::TextDiff::from_lines(old.as_str(), new.as_str());
                let diff = diff
                    .unified_diff()
                    .context_radius(1)
                    .header("now", "then")
                    .to_string();
                diff.lines()
                    .for_each(|line| text.push_str(&format!("    {line}\n")));
            }
        }
        text
    }

    /// Writes the files, each atomically; the cluster document first, because it says whose the
    /// others are.
    ///
    /// # Errors
    /// The system's reason.
    pub fn write(&self, directory: &Path) -> anyhow::Result<()> {
        for (name, text, mode) in &self.files {
            files::write(&directory.join(name), text.as_bytes(), *mode)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "declare_tests.rs"]
pub(super) mod tests;
