//! The layers of the shipped tree: the layers that each may include, as `states/tree/README.md`
//! says.

use halite_states::tree::{DirTree, Tree as _};

use crate::support::here;

/// A layer and the layers that it may include. Orchestrations name SLS as arguments.
const LAYERS: [(&str, &[&str]); 7] = [
    ("host", &[]),
    ("services", &["host"]),
    ("base", &["host"]),
    ("images", &["base", "services"]),
    ("addons", &["base"]),
    ("orchestrate", &[]),
    ("leave", &["services"]),
];

/// A pod network includes the removal of the previous one, which the addons' layer does.
const EXCEPTION: (&str, &str) = ("halite/base/network/init.sls", "halite.addons.owned");

/// The names below `include:`.
fn includes(text: &str) -> Vec<&str> {
    text.lines()
        .skip_while(|line| *line != "include:")
        .skip(1)
        .take_while(|line| line.starts_with("  - ") || line.starts_with("{%"))
        .filter_map(|line| line.strip_prefix("  - "))
        .collect()
}

#[test]
fn a_layer_includes_only_layers_that_it_builds_on() {
    let tree = DirTree::new().root(here().join("tree"));
    let mut checked = 0;
    for file in tree.list() {
        let Some(layer) = file
            .strip_prefix("halite/")
            .filter(|_| file.ends_with(".sls"))
            .and_then(|path| path.split('/').next())
        else {
            continue;
        };
        let (_, allowed) = LAYERS
            .iter()
            .find(|(name, _)| *name == layer)
            .unwrap_or_else(|| panic!("{file}: {layer} is not a layer"));
        let text = String::from_utf8(tree.read(&file).unwrap()).unwrap();
        for name in includes(&text) {
            let other = name.split('.').nth(1).unwrap();
            assert!(
                other == layer || allowed.contains(&other) || (file.as_str(), name) == EXCEPTION,
                "{file} includes {name}: {layer} builds on {allowed:?}"
            );
            checked += 1;
        }
    }
    assert!(checked > 30, "{checked}");
}

#[test]
fn everything_shipped_is_below_the_reserved_name() {
    let tree = DirTree::new().root(here().join("tree"));
    for file in tree.list() {
        let known = ["halite/", "custom/"]
            .iter()
            .any(|folder| file.starts_with(folder));
        assert!(
            known || ["top.sls", "README.md"].contains(&file.as_str()),
            "{file}"
        );
    }
}
