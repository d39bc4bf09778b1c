//! Imports: one module path per line, in three groups: `std`, other crates, this crate.

use crate::parsed;

#[test]
fn imports_are_one_path_per_line_in_three_groups() {
    let files = parsed::facts().values();
    let findings: Vec<&str> = files
        .flat_map(|facts| &facts.imports)
        .map(String::as_str)
        .collect();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
