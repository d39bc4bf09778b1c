//! Names of types say their subject when read alone.

use std::collections::{BTreeMap, BTreeSet};

use crate::parsed;
use crate::tree;

/// Words that say nothing about a type when they are its whole name.
const VAGUE: &[&str] = &[
    "Again", "Answer", "Change", "Command", "Damage", "Due", "Entry", "Found", "Heard", "Here",
    "Host", "Image", "Key", "Kind", "Known", "Limits", "Listed", "Member", "Note", "Outcome",
    "Part", "Parts", "Place", "Reader", "Record", "Report", "Said", "Seen", "Source", "State",
    "Trial", "Wanted", "Way", "Whose",
];
/// Names that readers of Rust expect in each module.
const EXPECTED: &[&str] = &[
    "Args", "Builder", "Client", "Config", "Error", "Iter", "Options",
];
/// The present types with vague names, a file and a name in each line. The list may only shrink.
const PRESENT: &str = include_str!("vague_names.txt");
/// The present public names that more than two crates define, with the number of crates. The list
/// may only shrink.
const PRESENT_SHARED: &str = include_str!("shared_names.txt");
/// Maximum number of lines of both lists.
const MOST_PRESENT: usize = 36;
/// Crates that may define the same public name.
const SHARED: usize = 2;

#[test]
fn no_new_type_has_a_vague_name() {
    let mut vague = BTreeSet::new();
    for (path, facts) in parsed::facts() {
        let names = facts.types.iter().map(|found| found.name.as_str());
        let names = names.filter(|name| VAGUE.contains(name));
        vague.extend(names.map(|name| format!("{path} {name}")));
    }
    let present: BTreeSet<String> = PRESENT.lines().map(str::to_owned).collect();
    let new: Vec<&String> = vague.difference(&present).collect();
    let gone: Vec<&String> = present.difference(&vague).collect();
    assert!(
        new.is_empty(),
        "the name of a type must say its subject when read alone, as FoundPackage does and Found does not: {new:#?}"
    );
    assert!(
        gone.is_empty(),
        "remove these lines from vague_names.txt, so that they do not come back: {gone:#?}"
    );
}

#[test]
fn a_public_name_is_defined_by_two_crates_at_most() {
    let mut crates: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in tree::packages() {
        let start = format!("{}/src/", package.folder);
        let own = parsed::facts().iter();
        let own = own.filter(|(path, _)| path.starts_with(&start));
        for found in own.flat_map(|(_, facts)| &facts.types) {
            if found.is_public {
                let crates = crates.entry(found.name.clone()).or_default();
                crates.insert(package.name.clone());
            }
        }
    }
    let present: BTreeMap<&str, usize> = PRESENT_SHARED
        .lines()
        .map(|line| {
            let (name, count) = line.split_once(' ').unwrap();
            (name, count.parse().unwrap())
        })
        .collect();
    let shared: BTreeMap<&str, usize> = crates
        .iter()
        .filter(|(name, crates)| crates.len() > SHARED && !EXPECTED.contains(&name.as_str()))
        .map(|(name, crates)| (name.as_str(), crates.len()))
        .collect();
    assert_eq!(
        shared, present,
        "a public name that two other crates define needs a word more; shared_names.txt lists the present ones with \
         the number of crates, which may only shrink"
    );
}

#[test]
fn the_lists_of_present_names_are_short() {
    let present = PRESENT.lines().chain(PRESENT_SHARED.lines()).count();
    assert!(
        present <= MOST_PRESENT,
        "vague_names.txt and shared_names.txt have {present} lines, at most {MOST_PRESENT} are allowed: rename types"
    );
}
