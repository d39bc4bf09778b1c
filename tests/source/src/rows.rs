//! `docs/dev/rows.md`: the tests of each capability exist, and each capability has one line. And the
//! differences from Salt have their reasons.

use std::collections::BTreeSet;

use crate::named_tests::{missing, rows};
use crate::tree;

const DOCUMENT: &str = "docs/dev/rows.md";
const FROM_SALT: &str = "docs/coming-from-salt.md";
/// The text in the last cell of a line without a test.
const NONE: &str = "not shown yet";

#[test]
fn every_difference_from_salt_has_its_reason() {
    let page = tree::files(&[".md"]);
    let page = page.iter().find(|file| file.path == FROM_SALT).unwrap();
    let rows = (1..).zip(page.text.lines());
    let rows = rows.skip_while(|(_, line)| !line.starts_with("| in Salt | in Halite | why |"));
    let rows = rows.skip(2).take_while(|(_, line)| line.starts_with('|'));
    let mut count = 0;
    for (number, row) in rows {
        count += 1;
        let cells = row.trim_end().trim_end_matches('|').trim_end();
        // Without a reason, the row ends with the bar before it.
        assert!(!cells.ends_with('|'), "{FROM_SALT}:{number} has no reason");
    }
    assert!(count > 40, "{count} rows");
}

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
