//! No crate of the master is so large that its parts lose their direction.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use syn::{Item, ItemMod};

use crate::modules;
use crate::tree;
use crate::tree::Package;

/// Maximum number of product lines of a crate.
const MOST: usize = 15_000;
/// The folder of the master; its other crates are below it.
const MASTER: &str = "master";

/// The lines of a module of tests that is in a file with other code.
fn lines_of_tests(item: &Item) -> Option<usize> {
    let Item::Mod(ItemMod {
        attrs,
        content: Some((braces, _)),
        ..
    }) = item
    else {
        return None;
    };
    if !modules::is_of_tests(attrs) {
        return None;
    }
    let first = attrs.first()?.pound_token.spans[0].start().line;
    Some(braces.span.close().end().line + 1 - first)
}

/// The lines of a file without modules of tests.
fn product_lines(text: &str) -> usize {
    let parsed = syn::parse_file(text).unwrap();
    let of_tests: usize = parsed.items.iter().filter_map(lines_of_tests).sum();
    text.lines().count() - of_tests
}

/// The product lines of a crate. Files of modules of tests do not count.
fn lines(package: &Package) -> usize {
    let modules = package
        .roots
        .iter()
        .flat_map(|root| modules::of_crate(root).into_values());
    let files: BTreeSet<PathBuf> = modules.map(|module| module.file).collect();
    let texts = files.iter().map(|file| fs::read_to_string(file).unwrap());
    texts.map(|text| product_lines(&text)).sum()
}

#[test]
fn no_crate_of_the_master_is_too_large() {
    let mut packages = tree::packages();
    packages.retain(|package| package.folder.split('/').next() == Some(MASTER));
    assert!(packages.len() > 5, "the crates of the master are missing");
    let sizes = packages.iter().map(|package| (package, lines(package)));
    let large = sizes.filter(|(_, lines)| *lines > MOST);
    let large: Vec<String> = large
        .map(|(package, lines)| format!("{}: {lines} product lines", package.name))
        .collect();
    assert!(
        large.is_empty(),
        "a crate of the master has at most {MOST} product lines; give a part of it a crate of its own \
         (docs/decisions/0075-the-master-is-cut-into-crates.md):\n{}",
        large.join("\n")
    );
}

#[test]
fn modules_of_tests_do_not_count() {
    let code = "fn a() {}\n\nmod part {\n    fn b() {}\n}\n";
    let tests = "\n#[cfg(test)]\nmod tests {\n    #[test]\n    fn c() {}\n}\n";
    assert_eq!(product_lines(code), 5);
    assert_eq!(product_lines(&format!("{code}{tests}")), 6);
}
