//! The declaration of a bootstrap: the operator's document, the documents on the host, and the
//! values that are resolved from both.

mod first_host;
mod given;

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::Path;

use halite_backup::Identity;
use halite_diff::{Side, unified};
use halite_document::Problem;
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::cluster::ResolvedCluster;
use halite_pillar::declaration::Declaration;
use halite_pillar::etcd::Placement;
use halite_pillar::host_facts::HostFacts;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::node::Node;
use halite_pillar::role::Role;
use halite_pillar::validate::Context;
use halite_pillar::view::{MASTER_PORT, Pki};
use halite_pillar::{resolve, view};
use halite_secret_file::{SecretFile, SecretFileError};
use halite_secrets::yaml;
use serde_json::{Value, json};

use self::given::GivenDocuments;
use super::Preparation;
use crate::files;
use crate::paths::{CLUSTER_DOCUMENT_MODE, CONFIG, NODE_DOCUMENT_MODE};
use crate::preflight::{
    ExistingCluster, HostRequirements, of_cluster, packages_of, packages_of_first_host, resolver,
    thresholds,
};

/// The documents as text, not validated yet.
pub struct InitialDocuments {
    texts: Texts,
    existing: ExistingCluster,
    /// `true` if they come from a backup.
    is_backup: bool,
}

impl InitialDocuments {
    /// Reads the documents on the host and the operator's: a cluster document, or a directory with
    /// it and the first host's document. They replace those on the host, except for the resolved
    /// values.
    ///
    /// # Errors
    /// A file cannot be read, or there is no cluster document.
    pub fn read(directory: &Path, config: Option<&Path>, name: &str) -> anyhow::Result<Self> {
        let there = directory.join("cluster.yaml").exists();
        let mut texts = if there {
            Texts::from_dir(directory)
                .map_err(|problems| anyhow::anyhow!("{}", crate::compile::report(&problems)))?
        } else {
            Texts {
                custom: given::installed_custom(directory)?,
                ..Texts::default()
            }
        };
        let mut existing = if there {
            ExistingCluster::This
        } else {
            ExistingCluster::None
        };
        if let Some(config) = config {
            let given = GivenDocuments::read(config, name, directory)?;
            let Text { file, mut text } = given.cluster.clone();
            if there {
                let (old, new) = (cluster_name(&texts.cluster.text), cluster_name(&text));
                if let (Some(old), true) = (&old, old != new) {
                    existing = ExistingCluster::Other(old.clone());
                }
                text = keep_resolved(&texts.cluster.text, &file, text);
            }
            texts.cluster = Text { file, text };
            given.place_node(&mut texts, name);
        } else if !there {
            anyhow::bail!(
                "name the cluster document with --config; `ctl config wizard` writes one, `ctl config example` prints one to \
                 start with"
            );
        }
        let master = value_at(&texts.cluster, "resolved.master");
        if master.as_ref().and_then(Value::as_str) != Some(name) {
            first_host::declare(&mut texts, directory, name)?;
        }
        Ok(Self {
            texts,
            existing,
            is_backup: false,
        })
    }

    /// Decrypts the values of secrets, with the identity of this host or one of these keys. Without
    /// this, they are unknown.
    ///
    /// # Errors
    /// Neither decrypts them.
    pub fn open_secrets(
        &mut self,
        file: &SecretFile,
        keys: &[Identity],
    ) -> Result<(), SecretFileError> {
        let Some(sealed) = &mut self.texts.sealed else {
            return Ok(());
        };
        let opened = file.open(&sealed.bytes);
        let opened = match keys.is_empty() {
            true => opened,
            false => opened.or_else(|_| file.open_with(&sealed.bytes, keys)),
        };
        sealed.plain = Some(opened?);
        Ok(())
    }

    /// The same documents, marked as a backup's: the host has none of them yet, and becomes the
    /// first one.
    ///
    /// # Errors
    /// The roles in the host's document cannot be changed.
    pub fn of_bare_host(mut self, directory: &Path, name: &str) -> anyhow::Result<Self> {
        first_host::declare(&mut self.texts, directory, name)?;
        Ok(Self {
            existing: ExistingCluster::None,
            is_backup: true,
            ..self
        })
    }

    /// The cluster whose configuration is on the host.
    pub fn existing(&self) -> ExistingCluster {
        self.existing.clone()
    }

    /// The problems of the documents, checked without bundle and host.
    pub fn problems(&self) -> Vec<String> {
        let found = load(&self.texts, &Context::default())
            .err()
            .unwrap_or_default();
        found.iter().map(ToString::to_string).collect()
    }

    /// The requirements for the host, as far as the documents can be read.
    pub fn requirements(&self) -> HostRequirements {
        load(&self.texts, &Context::default()).map_or_else(
            |_| requirements_of_invalid(&self.texts.cluster),
            |declaration| of_cluster(&declaration.cluster),
        )
    }

    /// Validates the documents with bundle and host, and resolves the open values.
    ///
    /// # Errors
    /// All problems.
    pub fn load(&self, preparation: &Preparation) -> Result<Declared, Vec<Problem>> {
        let mut bundle = crate::compile::facts(
            &preparation.manifest,
            &preparation.site.display().to_string(),
        )
        .map_err(|error| {
            let manifest = preparation.site.join("manifest.json");
            vec![Problem::in_file(
                manifest.display().to_string(),
                format!("{error:#}"),
            )]
        })?;
        bundle.site.clone_from(&preparation.others);
        let host = HostFacts::from_grains(&preparation.name, &preparation.grains);
        let context = Context {
            bundle: Some(&bundle),
            host: Some(&host),
        };
        let mut declaration = load(&self.texts, &context)?;
        // A restore makes this host the master's. Otherwise the master may have moved.
        let first = match self.is_backup {
            true => declaration.bootstrap_node(),
            false => declaration.master_node(),
        };
        let what = match first {
            Some(node) if !node.has(Role::Bootstrap) => "master's host",
            _ => "first host",
        };
        let first = first
            .map(|node| node.metadata.name.clone())
            .unwrap_or_default();
        if first != preparation.name {
            let problem = Problem::in_file(
                "",
                format!(
                    "the {what} of this cluster is `{first}`, not `{}`",
                    preparation.name
                ),
            );
            return Err(vec![problem.hint(format!(
                "run this on {first}, or give this host's name with --name"
            ))]);
        }
        let recorded = declaration.cluster.resolved.clone();
        if self.is_backup
            && let Some(own) = declaration.cluster.value.resolved.as_mut()
            && own.master.is_some()
        {
            // The other hosts and their masters no longer exist.
            own.master = Some(preparation.name.clone());
        }
        let resolved = resolve::node(
            &mut declaration,
            &preparation.name,
            &host,
            resolve::Evidence::OnTheHost,
        )
        .map_err(|problem| vec![problem])?;
        let node_text = match resolved.node_text {
            Some(text) => text,
            None => declaration.nodes[preparation.name.as_str()]
                .source
                .text()
                .to_owned(),
        };
        let cluster = &declaration.cluster;
        let kubernetes = cluster
            .resolved
            .as_ref()
            .map_or(&bundle.kubernetes, |resolved| &resolved.kubernetes);
        let new = ResolvedCluster {
            kubernetes: kubernetes.clone(),
            bundle: Some(preparation.manifest.version.clone()),
            master: cluster.resolved.as_ref().and_then(|own| own.master.clone()),
            etcd: Some(cluster.etcd.placement).filter(|placement| *placement != Placement::Stacked),
        };
        let cluster_text = if recorded.as_ref() == Some(&new) {
            cluster.source.text().to_owned()
        } else {
            resolve::record(
                &cluster.source.file,
                cluster.source.text(),
                &resolve::cluster_block(&new),
            )
            .map_err(|problem| vec![problem])?
        };
        let node_file = format!("nodes/{}.yaml", preparation.name);
        let files = vec![
            (
                "cluster.yaml".to_owned(),
                cluster_text,
                CLUSTER_DOCUMENT_MODE,
            ),
            (node_file, node_text, NODE_DOCUMENT_MODE),
        ];
        Ok(Declared {
            declaration,
            bundle,
            files,
        })
    }
}

/// The value at a path of a document, for example `etcd.placement`; `None` if it is missing or the
/// document cannot be parsed.
fn value_at(document: &Text, path: &str) -> Option<Value> {
    let root = yaml::parse(&document.file, &document.text).ok()?;
    let node = path.split('.').try_fold(&root, |node, key| node.get(key))?;
    Some(node.to_json())
}

fn is_etcd_external(cluster: &Text) -> bool {
    let placement = value_at(cluster, "etcd.placement");
    let placement = placement.as_ref().and_then(Value::as_str);
    placement.and_then(Placement::named) == Some(Placement::External)
}

fn cluster_name(text: &str) -> Option<String> {
    let root = yaml::parse("cluster.yaml", text).ok()?;
    Some(root.get("metadata")?.get("name")?.raw.clone())
}

/// Adds the resolved values of the installed document to the operator's, if that one lacks them.
fn keep_resolved(installed: &str, file: &str, given: String) -> String {
    let resolved = |text: &str| {
        let root = yaml::parse(file, text).ok()?;
        let resolved = root.get("resolved")?;
        let bundle = resolved.get("bundle");
        Some(ResolvedCluster {
            kubernetes: resolved.get("kubernetes")?.raw.clone(),
            bundle: bundle.and_then(|version| version.raw.parse().ok()),
            master: resolved.get("master").map(|name| name.raw.clone()),
            etcd: resolved
                .get("etcd")
                .and_then(|placement| Placement::named(&placement.raw)),
        })
    };
    match (resolved(installed), resolved(&given)) {
        // A document that cannot be parsed is reported later.
        (Some(there), None) => {
            resolve::record(file, &given, &resolve::cluster_block(&there)).unwrap_or(given)
        }
        _ => given,
    }
}

/// The requirements from an invalid document. Its readable values count, so that they are not
/// reported as missing.
fn requirements_of_invalid(document: &Text) -> HostRequirements {
    let at = |path: &str| value_at(document, path);
    let flag = |path: &str| at(path).and_then(|value| value.as_bool()).unwrap_or(true);
    HostRequirements {
        manage_swap: flag("host.manageSwap"),
        fail_swap_on: flag("kubelet.config.failSwapOn"),
        fail_cgroup_v1: flag("kubelet.config.failCgroupV1"),
        manage_firewall: flag("host.manageFirewall"),
        nftables: at("kubeProxy.mode").is_none_or(|mode| mode != "iptables"),
        eviction: thresholds(at("kubelet.config.evictionHard").as_ref()),
        vip: vip(at("apiServer.vip"), at("apiServer.keepalived")),
        external_etcd: is_etcd_external(document),
        own_pod_network: at("cni.plugin").is_some_and(|plugin| plugin == "none"),
        forwarders: at("dns.forwarders").is_some_and(|servers| servers != json!([])),
        resolver: resolver(at("kubelet.config.resolvConf").as_ref()),
        packages: BTreeMap::new(),
    }
}

/// The address that keepalived would manage, as far as it can be read.
fn vip(address: Option<Value>, keepalived: Option<Value>) -> Option<Ipv4Addr> {
    let address = address?.as_str()?.parse().ok()?;
    let is_managed = keepalived.is_none_or(|flag| flag != false);
    is_managed.then_some(address)
}

/// A valid declaration, and the files that contain it.
pub struct Declared {
    declaration: Declaration,
    bundle: BundleFacts,
    /// For each file: path below the configuration directory, text, mode.
    files: Vec<(String, String, u32)>,
}

impl Declared {
    /// The cluster's name.
    pub fn cluster(&self) -> &str {
        &self.declaration.cluster.metadata.name
    }

    /// Returns whether a host is the first one of the cluster. The master of another one was
    /// promoted.
    pub fn is_first(&self, name: &str) -> bool {
        let first = self.declaration.bootstrap_node();
        first.is_some_and(|node| node.metadata.name == name)
    }

    /// The control-plane address of a host.
    pub fn control_plane(&self, name: &str) -> Option<Ipv4Addr> {
        self.declaration.nodes.get(name)?.control_plane()
    }

    /// `true` if no host of the cluster is a member of etcd.
    pub fn has_external_etcd(&self) -> bool {
        self.declaration.cluster.external_etcd().is_some()
    }

    /// The other hosts.
    pub fn others(&self, name: &str) -> Vec<&Node> {
        let nodes = self.declaration.nodes.iter();
        let others = nodes.filter(|(other, _)| **other != *name);
        others.map(|(_, node)| &**node).collect()
    }

    /// The pillar view of a host.
    ///
    /// # Errors
    /// The host is not declared.
    pub fn view(&self, pki: &Pki, name: &str) -> anyhow::Result<Value> {
        Ok(view::view(&self.declaration, &self.bundle, pki, name)?)
    }

    /// The secrets that a host may receive.
    pub fn allowed_secrets(&self, name: &str) -> BTreeSet<String> {
        view::allowed_secrets(&self.declaration, name)
    }

    /// Returns whether a pillar path is that of a key of objects in etcd, and a host may have it.
    pub fn is_encryption_key(&self, name: &str, path: &str) -> bool {
        view::is_encryption_key(&self.declaration, name, path)
    }

    /// A secret of the operator.
    pub fn own_secret(&self, name: &str, path: &str) -> Option<String> {
        view::own_secret(&self.declaration, name, path)
    }

    /// The address of this host's master, as `host:port`.
    pub fn master(&self) -> String {
        let address = self
            .declaration
            .master_node()
            .and_then(|node| node.control_plane());
        format!(
            "{}:{MASTER_PORT}",
            address.map_or_else(|| "127.0.0.1".to_owned(), |address| address.to_string())
        )
    }

    /// The time servers of the hosts; empty if the operator keeps the clocks.
    pub fn time_servers(&self) -> &[String] {
        let cluster = &self.declaration.cluster;
        if cluster.host.manage_time {
            &cluster.time.servers
        } else {
            &[]
        }
    }

    /// The requirements for the host.
    pub fn requirements(&self) -> HostRequirements {
        of_cluster(&self.declaration.cluster)
    }

    /// The packages of the bundle that a host gets: name to version.
    pub fn packages(&self, name: &str) -> BTreeMap<String, String> {
        match self.declaration.nodes.get(name) {
            Some(node) => packages_of(&self.declaration, node, &self.bundle.packages),
            None => packages_of_first_host(&self.bundle.packages),
        }
    }

    /// The existing files that would change, with their diffs. A file that may contain secrets is
    /// only named. `existing` returns a file's text by its path below the configuration directory:
    /// from the host, or on a bare host from the backup.
    pub fn changes(&self, existing: impl Fn(&str) -> Option<String>) -> String {
        let mut text = String::new();
        for (name, new, mode) in &self.files {
            let Some(old) = existing(name).filter(|old| old != new && !old.is_empty()) else {
                continue;
            };
            text.push_str(&format!("{CONFIG}/{name} changes\n"));
            if *mode != CLUSTER_DOCUMENT_MODE
                || self.declaration.cluster.secrets.is_empty() && !old.contains("secrets:")
            {
                let side = |name, text| Side { name, text };
                unified(side("now", &old), side("then", new), 1)
                    .lines()
                    .for_each(|line| text.push_str(&format!("    {line}\n")));
            }
        }
        text
    }

    /// Writes each file atomically. The cluster document comes first, because it names the cluster.
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
#[path = "declaration_tests.rs"]
pub(super) mod tests;
