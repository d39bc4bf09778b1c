//! The site registry in a minion's view, and the texts with its passwords.

use std::net::Ipv4Addr;

use base64::engine::general_purpose::{GeneralPurpose, NO_PAD, STANDARD};
use base64::{Engine as _, alphabet};
use halite_secrets::reference;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::cluster::Cluster;
use crate::declaration::Declaration;
use crate::node::Node;
use crate::registry::{DATA, HTPASSWD, LONGEST_PASSWORD, PORT, PULL, RegistryBackup};

/// The cost factor of bcrypt. The registry computes the hash at every request, which takes 10 ms
/// with this cost.
const COST: u32 = 8;

/// The secrets of the registry that a node may see.
pub(super) fn allowed(declaration: &Declaration, minion: &str, node: &Node) -> Vec<String> {
    let registry = &declaration.cluster.site_registry;
    let runs_it = declaration
        .registry_host()
        .is_some_and(|host| host.metadata.name == minion);
    let pulls = registry.enabled && registry.pull_as.is_some() && node.runs_containers();
    let paths = [(runs_it, HTPASSWD), (pulls, PULL)];
    paths
        .into_iter()
        .filter(|(may, _)| *may)
        .map(|(_, path)| path.to_owned())
        .collect()
}

/// The secret at one of the registry's pillar paths.
pub(super) fn secret(cluster: &Cluster, path: &str) -> Option<String> {
    let registry = &cluster.site_registry;
    let password = |user: &str| {
        let secret = cluster.secrets.get(registry.users.get(user)?)?;
        secret.known()
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

/// The bcrypt hash of a password, in the format of `htpasswd -B`. The salt is derived from cluster
/// and user, so that the file is the same each time.
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
#[derive(Debug, Serialize)]
pub(super) struct View<'a> {
    enabled: bool,
    node: Option<&'a str>,
    address: Option<Ipv4Addr>,
    name: String,
    port: u16,
    data: &'static str,
    /// A reference to the file of users.
    htpasswd: Option<String>,
    /// A reference to the name and password with which hosts pull.
    pull: Option<String>,
    backup: &'a RegistryBackup,
}

/// Returns the part of the view.
pub(super) fn view(declaration: &Declaration, allowed: impl Fn(&str) -> bool) -> View<'_> {
    let cluster = &declaration.cluster.value;
    let registry = &cluster.site_registry;
    let host = declaration.registry_host();
    let secret = |path: &str| allowed(path).then(|| reference::for_path(path));
    View {
        enabled: registry.enabled,
        node: host.map(|node| node.metadata.name.as_str()),
        address: host.and_then(|node| node.control_plane()),
        name: cluster.registry_name(),
        port: PORT,
        data: DATA,
        htpasswd: secret(HTPASSWD),
        pull: secret(PULL),
        backup: &registry.backup,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test's panic is its report")]
mod tests {
    use serde_json::json;

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
