//! Imports between the modules of a crate go one way, file by file and folder by folder. Only a
//! parent and its own private children may import each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use crate::modules::{self, Module};
use crate::parsed::Name;
use crate::tree;

/// A library or program, with the arrows between its modules.
struct Crate {
    package: &'static str,
    modules: BTreeMap<Name, Module>,
    arrows: BTreeMap<Name, BTreeSet<Name>>,
}

static CRATES: LazyLock<Vec<Crate>> = LazyLock::new(|| {
    let packages = tree::packages().iter();
    let crates = packages.flat_map(|package| {
        let roots = package.roots.iter();
        roots.map(move |root| {
            let modules = modules::of_crate(root);
            Crate {
                package: &package.name,
                arrows: arrows(&modules),
                modules,
            }
        })
    });
    crates.collect()
});

/// The module that contains a name: its longest prefix that is a module, re-exports followed.
fn module_of(modules: &BTreeMap<Name, Module>, name: &[String]) -> Name {
    let mut name = name.to_vec();
    // A re-export refers to another name; more than a few in a row do not occur.
    for _ in 0..8 {
        let length = (0..=name.len())
            .rev()
            .find(|end| modules.contains_key(&name[..*end]))
            .unwrap();
        let (module, item) = name.split_at(length);
        let Some(target) = item
            .first()
            .and_then(|item| modules[module].exports.get(item))
        else {
            return module.to_vec();
        };
        let mut target = target.clone();
        target.extend_from_slice(&item[1..]);
        if target == name {
            return module.to_vec();
        }
        name = target;
    }
    panic!("{}: re-exported too often", name.join("::"));
}

/// The arrows between the modules of a crate, except those from a parent to its private children.
fn arrows(modules: &BTreeMap<Name, Module>) -> BTreeMap<Name, BTreeSet<Name>> {
    let mut arrows = BTreeMap::new();
    for (from, module) in modules {
        let targets = module.names.iter().map(|name| module_of(modules, name));
        // The contents of a private child are equally private.
        let is_own_child = |to: &Name| {
            to.len() > from.len() && to.starts_with(from) && modules[&to[..=from.len()]].is_private
        };
        let targets = targets
            .filter(|to| to != from && !is_own_child(to))
            .collect();
        arrows.insert(from.clone(), targets);
    }
    arrows
}

/// The circles: sets of modules that reach each other.
fn circles(arrows: &BTreeMap<Name, BTreeSet<Name>>) -> Vec<BTreeSet<&Name>> {
    let reached = |from: &Name| {
        let mut seen = BTreeSet::new();
        let mut waiting: Vec<&Name> = arrows[from].iter().collect();
        while let Some(name) = waiting.pop() {
            if seen.insert(name) {
                waiting.extend(&arrows[name]);
            }
        }
        seen
    };
    let reach: BTreeMap<&Name, BTreeSet<&Name>> =
        arrows.keys().map(|name| (name, reached(name))).collect();
    let mut found: Vec<BTreeSet<&Name>> = Vec::new();
    for (name, targets) in &reach {
        let circle: BTreeSet<&Name> = targets
            .iter()
            .copied()
            .filter(|other| reach[other].contains(name))
            .collect();
        if !circle.is_empty() && !found.contains(&circle) {
            found.push(circle);
        }
    }
    found
}

#[test]
fn no_modules_import_each_other_in_a_circle() {
    let root = tree::root();
    let mut findings = Vec::new();
    for own in CRATES.iter() {
        for circle in circles(&own.arrows) {
            let (package, count) = (own.package, circle.len());
            findings.push(format!("{package}: a circle of {count} files:"));
            for from in &circle {
                let path = tree::relative(&root, &own.modules[*from].file);
                let to: Vec<String> = own.arrows[*from]
                    .iter()
                    .filter(|to| circle.contains(to))
                    .map(|to| format!("crate::{}", to.join("::")))
                    .collect();
                findings.push(format!("  {path} imports {}", to.join(", ")));
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

/// The arrows between the folders in each folder. A module counts for its folder with everything
/// below it; imports between a folder and its contents count as those of files.
fn folders(
    arrows: &BTreeMap<Name, BTreeSet<Name>>,
) -> BTreeMap<Name, BTreeMap<Name, BTreeSet<Name>>> {
    let mut folders: BTreeMap<Name, BTreeMap<Name, BTreeSet<Name>>> = BTreeMap::new();
    for (from, targets) in arrows {
        for to in targets {
            let same = from.iter().zip(to).take_while(|(a, b)| a == b).count();
            if same < from.len() && same < to.len() {
                let siblings = folders.entry(from[..same].to_vec()).or_default();
                siblings.entry(to[..=same].to_vec()).or_default();
                let own = siblings.entry(from[..=same].to_vec()).or_default();
                own.insert(to[..=same].to_vec());
            }
        }
    }
    folders
}

/// One import for each arrow between two folders of a circle.
fn reasons(arrows: &BTreeMap<Name, BTreeSet<Name>>, circle: &BTreeSet<&Name>) -> Vec<String> {
    let mut reasons = Vec::new();
    for one in circle {
        for other in circle.iter().filter(|other| *other != one) {
            let import = arrows.iter().find_map(|(from, targets)| {
                let to = targets.iter().find(|to| to.starts_with(other))?;
                from.starts_with(one).then_some((from, to))
            });
            if let Some((from, to)) = import {
                reasons.push(format!("  {} imports {}", shown(from), shown(to)));
            }
        }
    }
    reasons
}

/// A module's path as written in code.
fn shown(name: &[String]) -> String {
    [&["crate".to_owned()], name].concat().join("::")
}

#[test]
fn no_folders_import_each_other_in_a_circle() {
    let mut findings = Vec::new();
    for own in CRATES.iter() {
        for (folder, siblings) in folders(&own.arrows) {
            for circle in circles(&siblings) {
                let names = circle.iter().filter_map(|name| name.last().cloned());
                let names = names.collect::<Vec<String>>().join(", ");
                let found = format!("{}: {names} in {}", own.package, shown(&folder));
                findings.push(format!("{found} import each other:"));
                findings.extend(reasons(&own.arrows, &circle));
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn a_circle_of_folders_is_found_though_no_files_are_in_one() {
    let name = |text: &str| -> Name { text.split("::").map(str::to_owned).collect() };
    let imports = |pairs: &[(&str, &[&str])]| -> BTreeMap<Name, BTreeSet<Name>> {
        let imports = pairs.iter();
        imports
            .map(|(from, to)| (name(from), to.iter().map(|to| name(to)).collect()))
            .collect()
    };
    let arrows = imports(&[
        ("a::one", &["b::one"]),
        ("a::two", &[]),
        ("b::one", &[]),
        ("b::two", &["a::two"]),
    ]);
    assert!(circles(&arrows).is_empty());
    let found = folders(&arrows);
    assert_eq!(found.len(), 1);
    let circles = circles(&found[&Name::new()]);
    let (a, b) = (name("a"), name("b"));
    assert_eq!(circles, [BTreeSet::from([&a, &b])]);
    assert_eq!(
        reasons(&arrows, &circles[0]),
        [
            "  crate::a::one imports crate::b::one",
            "  crate::b::two imports crate::a::two"
        ]
    );
}

#[test]
fn a_circle_is_found_and_a_private_child_makes_none() {
    let name = |text: &str| -> Name { text.split("::").map(str::to_owned).collect() };
    let module = |names: &[&str], is_private| Module {
        file: "x.rs".into(),
        is_private,
        names: names.iter().map(|text| name(text)).collect(),
        exports: BTreeMap::new(),
    };
    let with = |is_private| {
        BTreeMap::from([
            (Name::new(), module(&[], false)),
            (name("a"), module(&["a::b::Item"], false)),
            (name("a::b"), module(&["a::Other"], is_private)),
        ])
    };
    assert!(circles(&arrows(&with(true))).is_empty());
    assert_eq!(circles(&arrows(&with(false))).len(), 1);
}
