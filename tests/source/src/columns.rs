//! Comments have at most 100 columns (STYLE.md): rustfmt wraps code only.

use crate::tree;

/// The columns of a line.
const COLUMNS: usize = 100;

#[test]
fn comments_fit_into_a_hundred_columns() {
    let mut findings = Vec::new();
    for file in tree::files(&[".rs"]) {
        for (number, line) in file.text.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            if is_comment && line.chars().count() > COLUMNS {
                findings.push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    assert!(
        findings.is_empty(),
        "wrap these comments at {COLUMNS} columns:\n{}",
        findings.join("\n")
    );
}
