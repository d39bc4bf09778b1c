//! Imports between the modules of a crate go one way. Only a parent and its own private children
//! may import each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::modules::{self, Module, Name};
use crate::tree;

/// The module that a name is in: its longest beginning that is a module, re-exports followed.
fn module_of(modules: &BTreeMap<Name, Module>, name: &[String]) -> Name {
    let mut name = name.to_vec();
    // A re-export leads to another name; more than a few in a row do not occur.
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

/// The arrows between the modules of a crate, those of a parent to its private children left out.
fn arrows(modules: &BTreeMap<Name, Module>) -> BTreeMap<Name, BTreeSet<Name>> {
    let mut arrows = BTreeMap::new();
    for (from, module) in modules {
        let targets = module.names.iter().map(|name| module_of(modules, name));
        // What a private child contains is as private.
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
    for package in tree::packages() {
        for file in &package.roots {
            let modules = modules::of_crate(file);
            let arrows = arrows(&modules);
            for circle in circles(&arrows) {
                findings.push(format!(
                    "{}: a circle of {} files:",
                    package.name,
                    circle.len()
                ));
                for from in &circle {
                    let path = tree::relative(&root, &modules[*from].file);
                    let to: Vec<String> = arrows[*from]
                        .iter()
                        .filter(|to| circle.contains(to))
                        .map(|to| format!("crate::{}", to.join("::")))
                        .collect();
                    findings.push(format!("  {path} imports {}", to.join(", ")));
                }
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
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
