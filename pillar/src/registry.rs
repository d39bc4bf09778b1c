//! The site registry, which clients can push images to. Bundles are served by other servers, which
//! never write to them.

use std::collections::BTreeMap;

use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, STANDARD};
use base64::{Engine as _, alphabet};
use halite_secrets::reference;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::cluster::Cluster;
use crate::load::{Declaration, Document};
use crate::node::Node;
use crate::view::bootstrap_node;
use crate::{field_schemas, formats};

/// The port of the site registry.
pub const PORT: u16 = 4552;
/// The directory of its images on its host.
pub const DATA: &str = "/var/lib/halite/registry";
/// The package with its program.
pub const PACKAGE: &str = "distribution-registry";
/// Pillar path of the file with its users, for its own host.
pub const HTPASSWD: &str = "siteRegistry.htpasswd";
/// Pillar path of the name and password with which hosts pull (RFC 7617), for all hosts that run
/// containers.
pub const PULL: &str = "siteRegistry.pull";

/// Minimum number of characters of a password.
pub const SHORTEST_PASSWORD: usize = 8;
/// Bytes of a password that bcrypt uses.
pub const LONGEST_PASSWORD: usize = 72;
/// The cost factor of bcrypt. The registry computes it at every request, which takes 10 ms with
/// this cost.
const COST: u32 = 8;

/// The site registry: a registry for the site's own images, which clients can push to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct SiteRegistry {
    /// `true`: the site has one. Switched off, its images are kept.
    pub enabled: bool,
    /// The host that runs it and stores its images. Default: the first host.
    #[schemars(schema_with = "field_schemas::optional_subdomain")]
    pub node: Option<String>,
    /// The users that may push and pull: each name, with the name in `secrets` of its password.
    /// That secret needs no roles or nodes.
    #[schemars(schema_with = "field_schemas::users")]
    pub users: BTreeMap<String, String>,
    /// The user with whose password every host pulls. Without one, pods need `imagePullSecrets`.
    #[schemars(schema_with = "field_schemas::optional_user")]
    pub pull_as: Option<String>,
    /// The backup of its images.
    pub backup: RegistryBackup,
}

/// The daily backup of the site registry's images, on its own host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct RegistryBackup {
    /// The directory of the backups. Mount another disk here, so that the backups survive the loss
    /// of the images' disk.
    #[schemars(schema_with = "field_schemas::path")]
    pub directory: String,
    /// The time of day, by the host's clock.
    #[schemars(schema_with = "field_schemas::time_of_day")]
    pub at: String,
    /// The number of backups to keep.
    #[schemars(range(min = 1, max = 1000))]
    pub keep: u32,
    /// The day of the week on which the newest backup is read completely, after that day's backup;
    /// or `daily`, or `never`.
    #[schemars(schema_with = "field_schemas::day_of_week")]
    pub verify: String,
}

/// The interval between backups, in milliseconds.
pub const BACKUP_PERIOD: i64 = 24 * 60 * 60 * 1000;

impl RegistryBackup {
    /// Returns whether backups are verified on schedule.
    #[must_use]
    pub fn is_verified(&self) -> bool {
        self.verify != formats::NEVER
    }
}

impl Default for RegistryBackup {
    fn default() -> Self {
        let (directory, at) = (
            "/var/backups/halite/registry".to_owned(),
            "02:30".to_owned(),
        );
        Self {
            directory,
            at,
            keep: 7,
            verify: "Sun".to_owned(),
        }
    }
}

/// The registry's name in references of images, certificates and hosts entries.
#[must_use]
pub fn name(cluster: &Cluster) -> String {
    format!("registry.{}.internal", cluster.metadata.name)
}

/// The host that runs the site registry, if one is declared.
#[must_use]
pub fn host(declaration: &Declaration) -> Option<&Document<Node>> {
    let registry = &declaration.cluster.site_registry;
    match &registry.node {
        _ if !registry.enabled => None,
        Some(name) => declaration.nodes.get(name),
        None => bootstrap_node(declaration),
    }
}

/// The secrets of the registry that a node may see.
pub(crate) fn allowed(declaration: &Declaration, minion: &str, node: &Node) -> Vec<String> {
    let registry = &declaration.cluster.site_registry;
    let runs_it = host(declaration).is_some_and(|host| host.metadata.name == minion);
    let pulls = registry.enabled && registry.pull_as.is_some() && node.runs_containers();
    let paths = [(runs_it, HTPASSWD), (pulls, PULL)];
    paths
        .into_iter()
        .filter(|(may, _)| *may)
        .map(|(_, path)| path.to_owned())
        .collect()
}

/// The secret at one of the registry's pillar paths.
pub(crate) fn secret(cluster: &Cluster, path: &str) -> Option<String> {
    let registry = &cluster.site_registry;
    let password = |user: &str| {
        Some(
            cluster
                .secrets
                .get(registry.users.get(user)?)?
                .value
                .reveal(),
        )
    };
    match path {
        HTPASSWD => {
            let line = |user: &String| {
                Some(format!(
                    "{user}:{}\n",
                    hash(cluster, user, password(user)?)?
                ))
            };
            registry.users.keys().map(line).collect()
        }
        PULL => {
            let user = registry.pull_as.as_deref()?;
            Some(STANDARD.encode(format!("{user}:{}", password(user)?)))
        }
        _ => None,
    }
}

/// The bcrypt hash of a password, as `htpasswd -B` writes it. The salt is derived from cluster and
/// user, so that the file is the same each time that it is made.
fn hash(cluster: &Cluster, user: &str, password: &str) -> Option<String> {
    let mut salt = [0; 16];
    let digest = Sha256::digest(format!(
        "halite site registry\0{}\0{user}",
        cluster.metadata.name
    ));
    salt.copy_from_slice(digest.get(..16)?);
    // bcrypt includes the NUL at the end of the C string, and drops the last of its 24 bytes.
    let mut password = password.as_bytes().to_vec();
    password.push(0);
    password.truncate(LONGEST_PASSWORD);
    let hash = bcrypt::bcrypt(COST, salt, &password);
    let text = GeneralPurpose::new(&alphabet::BCRYPT, NO_PAD);
    Some(format!(
        "$2y${COST:02}${}{}",
        text.encode(salt),
        text.encode(hash.get(..23)?)
    ))
}

/// The part of the view about the site registry.
pub(crate) fn view(declaration: &Declaration, allowed: impl Fn(&str) -> bool) -> Value {
    let cluster = &declaration.cluster.value;
    let registry = &cluster.site_registry;
    let host = host(declaration);
    let secret = |path: &str| allowed(path).then(|| reference::for_path(path));
    json!({
        "enabled": registry.enabled,
        "node": host.map(|node| &node.metadata.name),
        "address": host.and_then(|node| node.control_plane()),
        "name": name(cluster),
        "port": PORT,
        "data": DATA,
        "htpasswd": secret(HTPASSWD),
        "pull": secret(PULL),
        "backup": registry.backup,
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test's panic is its report")]
mod tests {
    use super::*;

    fn cluster(password: &str) -> Cluster {
        let registry =
            json!({"enabled": true, "users": {"ci": "own", "other": "own"}, "pullAs": "ci"});
        serde_json::from_value(json!({
            "apiVersion": "halite/v1", "kind": "Cluster", "metadata": {"name": "prod"},
            "networks": {"controlPlane": {"cidrs": ["10.0.0.0/24"]}}, "kubernetes": {"version": "1.36"},
            "siteRegistry": registry, "secrets": {"own": {"value": password}},
        }))
        .unwrap()
    }

    /// The expected hashes were made by crypt(3) of the C library.
    #[test]
    fn users_are_written_as_htpasswd_writes_them() {
        for (password, wanted) in [
            (
                "hunter2",
                "$2y$08$doBUCYWsi5rKJ9Wsg7fbf.Eu1ymPDeJoUYtvzs33bM2MuO12TozbG",
            ),
            (
                "pässwörd",
                "$2y$08$doBUCYWsi5rKJ9Wsg7fbf.WTg.a.O2XBPan1S2owdjj/jPZsiRYv.",
            ),
        ] {
            let file = secret(&cluster(password), HTPASSWD).unwrap();
            assert_eq!(file.lines().next(), Some(format!("ci:{wanted}").as_str()));
            assert_eq!(file.lines().count(), 2);
            assert_eq!(
                secret(&cluster(password), HTPASSWD),
                Some(file.clone()),
                "another one each time"
            );
            let hashes: Vec<&str> = file
                .lines()
                .map(|line| line.split_once(':').unwrap().1)
                .collect();
            assert_ne!(hashes[0], hashes[1], "one salt for two users");
        }
    }

    #[test]
    fn hosts_pull_with_a_name_and_password() {
        assert_eq!(
            secret(&cluster("hunter2"), PULL).as_deref(),
            Some("Y2k6aHVudGVyMg==")
        );
        assert_eq!(secret(&cluster("hunter2"), "siteRegistry.other"), None);
    }
}
