//! The changes between two bundles, as text for people.

use halite_api::{BundleChange, BundleDiff};
use halite_durable::digest::is_sha256;
use halite_manifest::{Diff, ItemChange};

use super::{megabytes, short_digest, table};

/// The changes between two bundles as a document.
pub fn document(diff: &Diff) -> BundleDiff {
    let all = |changes: &[ItemChange]| -> Vec<BundleChange> {
        let one = |change: &ItemChange| BundleChange {
            name: change.name.clone(),
            old: change.old.clone(),
            new: change.new.clone(),
        };
        changes.iter().map(one).collect()
    };
    BundleDiff {
        versions: all(&diff.versions),
        components: all(&diff.components),
        images: all(&diff.images),
        packages: all(&diff.packages),
        charts: all(&diff.charts),
        states: all(&diff.states),
        old_size: diff.old_size,
        new_size: diff.new_size,
        added_size: diff.added_size,
    }
}

/// Formats the changes between two bundles as tables.
pub fn tables(diff: &Diff) -> String {
    let lists = [
        ("versions", &diff.versions),
        ("components", &diff.components),
        ("images", &diff.images),
        ("packages", &diff.packages),
        ("charts", &diff.charts),
        ("states", &diff.states),
    ];
    let mut text = String::new();
    for (heading, changes) in lists.iter().filter(|(_, changes)| !changes.is_empty()) {
        text.push_str(&format!("{}\n", one_table(heading, changes)));
    }
    let [old, new, added] = [diff.old_size, diff.new_size, diff.added_size].map(megabytes);
    text + &format!("{old} before, {new} now, {added} of it new\n")
}

/// Formats changes as one table.
fn one_table(heading: &str, changes: &[ItemChange]) -> String {
    // States have only a digest.
    let short = |value: &Option<String>| match value.as_deref() {
        Some(digest) if is_sha256(digest) => digest.get(..12).map(str::to_owned),
        value => value.map(short_digest),
    };
    let changes: Vec<_> = changes
        .iter()
        .map(|change| (&change.name, short(&change.old), short(&change.new)))
        .collect();
    let rows = changes
        .iter()
        .map(|(name, old, new)| (name.as_str(), old.as_deref(), new.as_deref()));
    table::changes(heading, rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_shown_with_the_beginning_of_its_digest() {
        let reference =
            |digit: &str| format!("registry.k8s.io/etcd:3.6.8-0@sha256:{}", digit.repeat(64));
        let change = ItemChange {
            name: "etcd".into(),
            old: Some("registry.k8s.io/etcd:3.6.6-0".into()),
            new: Some(reference("a")),
        };
        let text = one_table("images", &[change]);
        assert!(text.contains("registry.k8s.io/etcd:3.6.6-0"), "{text}");
        assert!(
            text.contains("registry.k8s.io/etcd:3.6.8-0@sha256:aaaaaaaaaaaa"),
            "{text}"
        );
        assert!(!text.contains(&"a".repeat(13)), "{text}");
        let change = ItemChange {
            name: "top.sls".into(),
            old: Some("b".repeat(64)),
            new: Some("c".repeat(64)),
        };
        let text = one_table("states", &[change]);
        assert!(text.contains(&format!("  {}  ", "b".repeat(12))), "{text}");
    }
}
