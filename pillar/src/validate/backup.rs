//! Backups of the cluster: unsuitable directories, and recipients.

use std::collections::BTreeSet;
use std::path::Path;

use super::Check;

/// Directories whose content other programs create and remove, each with its use.
const TAKEN: [(&str, &str); 7] = [
    (
        "/etc/halite",
        "the declaration is there, and would be in each backup of itself",
    ),
    ("/var/lib/halite/master", "the master's own files are there"),
    ("/var/lib/halite/bundles", "the bundles are there"),
    (
        "/var/lib/halite/registry",
        "the site registry's images are there",
    ),
    ("/var/lib/etcd", "etcd's data is there"),
    ("/tmp", "files there are removed at a start"),
    ("/run", "files there are gone after a start"),
];

pub(super) fn check(check: &mut Check<'_>) {
    let backup = &check.declaration.cluster.backup;
    let directory = Path::new(&backup.directory);
    let taken = |(place, _): &&(&str, &str)| {
        directory.starts_with(place) || Path::new(place).starts_with(directory)
    };
    if let Some((place, why)) = TAKEN.iter().find(taken) {
        check.cluster(
            "backup.directory",
            format!(
                "{} cannot have the backups: {why} ({place})",
                backup.directory
            ),
            "take a directory of their own, preferably on another disk or share",
        );
    }
    let mut seen = BTreeSet::new();
    for (index, recipient) in backup.recipients.iter().enumerate() {
        if !seen.insert(recipient) {
            check.unseen(
                &format!("backup.recipients[{index}]"),
                "this recipient is listed twice",
                "remove one of the two",
            );
        }
    }
}
