//! The changes between two bundles, as people read them.

use halite_manifest::{Change, Diff};

use super::{megabytes, table};

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
fn one_table(heading: &str, changes: &[Change]) -> String {
    let rows = changes
        .iter()
        .map(|c| (c.name.as_str(), c.old.as_deref(), c.new.as_deref()));
    table::changes(heading, rows)
}
