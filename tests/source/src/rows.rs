//! `docs/dev/rows.md`: the tests of each capability exist, and each capability has one line.

use std::collections::BTreeSet;

use crate::named_tests::{missing, rows};

const DOCUMENT: &str = "docs/dev/rows.md";
/// The text in the last cell of a line without a test.
const NONE: &str = "not shown yet";

#[test]
fn every_test_of_a_capability_exists() {
    let rows = rows(DOCUMENT, "row");
    let named: usize = rows.iter().map(|row| row.tests.len()).sum();
    // Fewer rows mean that the format of the table has changed, so that it is not read.
    assert!(named > 40, "{named} names");
    let findings = missing(DOCUMENT, &rows);
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}

#[test]
fn a_capability_has_one_line_and_says_if_no_test_shows_it() {
    let mut seen = BTreeSet::new();
    for row in rows(DOCUMENT, "row") {
        let [name, .., note] = row.cells.as_slice() else {
            panic!("{DOCUMENT}:{}: two cells at least", row.line)
        };
        assert!(seen.insert(name.clone()), "{name} has two lines");
        assert!(
            !row.tests.is_empty() || note.contains(NONE),
            "{DOCUMENT}:{}: name a test, or say {NONE:?}",
            row.line
        );
    }
    assert!(seen.len() >= 15, "{seen:?}");
}
