//! The site registry: its users, its host, its package.

use std::path::Path;

use halite_document::source::join;

use super::Check;
use crate::registry::{DATA, LONGEST_PASSWORD, PACKAGE, SHORTEST_PASSWORD};

pub(super) fn check(check: &mut Check<'_>) {
    let declaration = check.declaration;
    let registry = &declaration.cluster.site_registry;
    if !registry.enabled {
        return;
    }
    if registry.users.is_empty() && check.sound("siteRegistry.users") {
        check.cluster(
            "siteRegistry.enabled",
            "the registry has no users, so no client may push or pull",
            "name some: `users: {ci: registry-ci}`, with the password as `secrets.registry-ci.value`",
        );
    }
    for (user, name) in &registry.users {
        let path = join("siteRegistry.users", user);
        match declaration.cluster.secrets.get(name) {
            None => check.cluster(
                &path,
                format!("there is no secret `{name}`"),
                format!("declare the password: `secrets: {{{name}: {{value: …}}}}`"),
            ),
            Some(secret) if secret.known().unwrap_or_default().len() > LONGEST_PASSWORD => check
                .cluster(
                    &path,
                    format!("the secret `{name}` is longer than {LONGEST_PASSWORD} bytes"),
                    "bcrypt ignores the bytes after them: choose a shorter one",
                ),
            // With a guessed password an attacker could replace every image of the site. An empty
            // one is reported at the secret itself.
            Some(secret)
                if (1..SHORTEST_PASSWORD)
                    .contains(&secret.known().unwrap_or_default().chars().count()) =>
            {
                check.cluster(
                    &path,
                    format!("the secret `{name}` is shorter than {SHORTEST_PASSWORD} characters"),
                    "a short password can be guessed: choose a longer one",
                )
            }
            Some(_) => {}
        }
    }
    if let Some(user) = registry
        .pull_as
        .as_ref()
        .filter(|user| !registry.users.contains_key(*user))
    {
        let users: Vec<&str> = registry.users.keys().map(String::as_str).collect();
        check.cluster(
            "siteRegistry.pullAs",
            format!("the registry has no user `{user}`"),
            format!("its users are: {}", users.join(", ")),
        );
    }
    let nodes = &declaration.nodes;
    if let Some(node) = registry
        .node
        .as_ref()
        .filter(|node| !nodes.is_empty() && !nodes.contains_key(node.as_str()))
    {
        let names: Vec<&str> = nodes
            .values()
            .map(|node| node.metadata.name.as_str())
            .collect();
        check.cluster(
            "siteRegistry.node",
            format!("there is no node `{node}`"),
            format!("the nodes are: {}", names.join(", ")),
        );
    }
    let (backup, data) = (Path::new(&registry.backup.directory), Path::new(DATA));
    if backup.starts_with(data) || data.starts_with(backup) {
        check.cluster(
            "siteRegistry.backup.directory",
            format!("the images themselves are in {DATA}"),
            "back them up to another directory, preferably on another disk",
        );
    }
    let Some(bundle) = check.context.bundle else {
        return;
    };
    if !bundle.packages.contains_key(PACKAGE) && !bundle.rpms.contains_key(PACKAGE) {
        check.cluster(
            "siteRegistry.enabled",
            format!("the bundle {} lacks the package `{PACKAGE}`", bundle.path),
            "switch it off, or use a bundle that was made with it; `ctl bundle show` shows what this one has",
        );
    }
}
