//! The profiles of the shipped programs.

use std::fs;

use crate::tree;

/// A number that wraps would continue with a wrong order, for example of the masters.
#[test]
fn shipped_programs_check_their_arithmetic() {
    let text = fs::read_to_string(tree::root().join("Cargo.toml")).unwrap();
    let section = |name: &str| {
        let (_, rest) = text.split_once(&format!("\n[{name}]\n")).unwrap();
        rest.split("\n[").next().unwrap()
    };
    let has = |name: &str, line: &str| section(name).lines().any(|own| own == line);
    assert!(has("profile.release", "overflow-checks = true"));
    assert!(has("profile.small", "inherits = \"release\""));
    assert!(!text.contains("overflow-checks = false"));
}
