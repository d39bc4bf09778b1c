//! Names of types say their subject when read alone.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Attribute, Ident, Visibility};

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
/// The present public names that more than two crates define, with the number of crates. The list may
/// only shrink.
const PRESENT_SHARED: &str = include_str!("shared_names.txt");
/// Maximum number of lines of both lists.
const MOST_PRESENT: usize = 60;
/// Crates that may define the same public name.
const SHARED: usize = 2;

/// A type that other files can use.
struct Type {
    name: String,
    is_public: bool,
}

/// The types of a file that are not private to it.
#[derive(Default)]
struct Types(Vec<Type>);

impl Types {
    fn add(&mut self, name: &Ident, visibility: &Visibility) {
        if !matches!(visibility, Visibility::Inherited) {
            self.0.push(Type {
                name: name.to_string(),
                is_public: matches!(visibility, Visibility::Public(_)),
            });
        }
    }
}

impl<'ast> Visit<'ast> for Types {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add(&item.ident, &item.vis);
    }
    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add(&item.ident, &item.vis);
    }
    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add(&item.ident, &item.vis);
    }
    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.add(&item.ident, &item.vis);
    }
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !module.attrs.iter().any(is_test) {
            visit::visit_item_mod(self, module);
        }
    }
}

/// Returns whether an attribute is `#[cfg(test)]`.
fn is_test(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
        && attribute
            .parse_args::<Ident>()
            .is_ok_and(|word| word == "test")
}

fn types(text: &str) -> Vec<Type> {
    let mut types = Types::default();
    types.visit_file(&syn::parse_file(text).unwrap());
    types.0
}

#[test]
fn no_new_type_has_a_vague_name() {
    let mut vague = BTreeSet::new();
    for file in tree::files(&[".rs"]) {
        for Type { name, .. } in types(&file.text) {
            if VAGUE.contains(&name.as_str()) {
                vague.insert(format!("{} {name}", file.path));
            }
        }
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
    let packages = tree::packages();
    for package in &packages {
        let start = format!("{}/src/", package.folder);
        for file in tree::files(&[".rs"]) {
            if file.path.starts_with(&start) {
                for Type { name, .. } in types(&file.text).into_iter().filter(|t| t.is_public) {
                    crates.entry(name).or_default().insert(package.name.clone());
                }
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
